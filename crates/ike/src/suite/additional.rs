//! Additional key exchanges in proposals (RFC 9370 §2.2.1): one transform type each, and NONE for
//! one that may be left out.

use super::algorithm::Wire;
use super::error::SuiteError;
use crate::config::{ADDITIONAL_KE, KeyExchange};
use crate::message::{Proposal, SaPayload, Transform, TransformId, TransformType};

/// The agreed methods.
pub(super) type Agreed = [Option<KeyExchange>; ADDITIONAL_KE];
/// The configured methods of each exchange.
type Configured = [Vec<Option<KeyExchange>>; ADDITIONAL_KE];

/// The first agreed key exchange from number `from` on, counted from 0, with its number.
pub(crate) fn next_additional(agreed: &Agreed, from: usize) -> Option<(usize, KeyExchange)> {
    let places = agreed.iter().enumerate().skip(from);
    places.filter_map(|(place, method)| Some((place, (*method)?))).next()
}

/// The transforms of a proposal.
pub(super) fn of(configured: &Configured) -> Vec<Transform> {
    let places = TransformType::ADDITIONAL_KE.into_iter().zip(configured);
    places.flat_map(|(kind, methods)| methods.iter().map(move |method| transform(kind, *method))).collect()
}

/// The offer as seen by a side without IKE_INTERMEDIATE: these transform types are unknown to it,
/// and the proposals with them unacceptable.
pub fn without_additional(offered: &SaPayload) -> SaPayload {
    let plain =
        |proposal: &&Proposal| !proposal.transforms.iter().any(|transform| is_additional(transform.kind));
    SaPayload { proposals: offered.proposals.iter().filter(plain).cloned().collect() }
}

pub(super) fn is_additional(kind: TransformType) -> bool {
    TransformType::ADDITIONAL_KE.contains(&kind)
}

/// The responder's choice beside the key exchange `ke`, and the answer's transforms. No method is
/// used twice, and without a first key exchange there is no additional one (RFC 9370 §2.2.4).
pub(super) fn choose(
    offer: &Proposal,
    own: &Configured,
    ke: Option<KeyExchange>,
) -> Option<(Agreed, Vec<Transform>)> {
    let mut taken = Vec::with_capacity(ADDITIONAL_KE);
    if !search(offer, own, ke, &mut taken) {
        return None;
    }
    let mut agreed = Agreed::default();
    let mut answer = Vec::new();
    for ((kind, place), method) in TransformType::ADDITIONAL_KE.into_iter().zip(&mut agreed).zip(taken) {
        *place = method;
        if offer.transforms_of(kind).next().is_some() {
            answer.push(transform(kind, method));
        }
    }
    Some((agreed, answer))
}

/// Finds a method for each exchange after those in `taken`: the first combination in our order of
/// preference. A method that an earlier exchange could use may be the only one for a later
/// exchange.
fn search(
    offer: &Proposal,
    own: &Configured,
    ke: Option<KeyExchange>,
    taken: &mut Vec<Option<KeyExchange>>,
) -> bool {
    let (Some(kind), Some(methods)) = (TransformType::ADDITIONAL_KE.get(taken.len()), own.get(taken.len()))
    else {
        return true;
    };
    let offered = |method: Option<KeyExchange>| {
        let left_out = method.is_none() && offer.transforms_of(*kind).next().is_none();
        left_out || offer.transforms.contains(&transform(*kind, method))
    };
    // If nothing is configured, no exchange is wanted.
    let methods = if methods.is_empty() { [None].as_slice() } else { methods };
    for method in methods {
        let unusable = method.is_some() && (ke.is_none() || taken.contains(method) || *method == ke);
        if unusable || !offered(*method) {
            continue;
        }
        taken.push(*method);
        if search(offer, own, ke, taken) {
            return true;
        }
        taken.pop();
    }
    false
}

/// The initiator's check of a choice that contains only offered transforms (RFC 9370 §2.2.1).
pub(super) fn check<'a>(
    chosen: &Proposal,
    ours: impl Iterator<Item = &'a Configured> + Clone,
    ke: Option<KeyExchange>,
) -> Result<Agreed, SuiteError> {
    let mut agreed = Agreed::default();
    for (index, kind) in TransformType::ADDITIONAL_KE.into_iter().enumerate() {
        let Some(transform) = chosen.transforms_of(kind).next().filter(|t| t.id != TransformId::NONE) else {
            continue;
        };
        let mut configured = ours.clone().filter_map(|own| own.get(index)).flatten().flatten();
        let method = configured
            .find(|method| self::transform(kind, Some(**method)) == *transform)
            .ok_or(SuiteError::NotOffered("it holds a key exchange that was not offered"))?;
        if ke.is_none() {
            return Err(SuiteError::NotOffered("it names an additional key exchange and no first one"));
        }
        if agreed.contains(&Some(*method)) || Some(*method) == ke {
            return Err(SuiteError::NotOffered("it names one method for two key exchanges"));
        }
        if let Some(place) = agreed.get_mut(index) {
            *place = Some(*method);
        }
    }
    Ok(agreed)
}

fn transform(kind: TransformType, method: Option<KeyExchange>) -> Transform {
    Transform { kind, ..method.map_or_else(|| Transform::new(kind, TransformId::NONE), Wire::transform) }
}
