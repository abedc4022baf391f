//! The initiator's check that the response is a choice from its offer (RFC 7296 §3.3.6).

use super::additional::{self, is_additional};
use super::algorithm::{EspSuite, IkeSuite, Wire};
use super::error::SuiteError;
use crate::config::{EspProposal, IkeProposal};
use crate::message::{IkeSpi, Proposal, Protocol, SaPayload, SaSpi, Transform, TransformId, TransformType};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::EspAlgorithm;

/// Checks the response about an IKE SA against `offer`, made from `ours`. Returns the algorithms,
/// and the responder's new SPI when an IKE SA is rekeyed.
pub fn ike(
    offer: &SaPayload,
    ours: &[IkeProposal],
    answer: &SaPayload,
) -> Result<(IkeSuite, Option<IkeSpi>), SuiteError> {
    let (chosen, offered) = chosen(offer, answer, Protocol::Ike)?;
    let spi = match (&offered.spi, &chosen.spi) {
        (SaSpi::None, SaSpi::None) => None,
        (SaSpi::Ike(_), SaSpi::Ike(spi)) if !spi.is_zero() => Some(*spi),
        _ => return Err(SuiteError::NotOffered("it has an SPI of the wrong length, or zero")),
    };
    let encryption = find(chosen, ours.iter().flat_map(|own| &own.encryption))?;
    let integrity = match offered.transforms_of(TransformType::Integrity).next() {
        None => None,
        Some(_) => Some(find(chosen, ours.iter().flat_map(|own| &own.integrity))?),
    };
    let prf = find(chosen, ours.iter().flat_map(|own| &own.prf))?;
    let ke = find(chosen, ours.iter().flat_map(|own| &own.ke))?;
    let additional = additional::check(chosen, ours.iter().map(|own| &own.additional), Some(ke))?;
    Ok((IkeSuite { encryption, integrity, prf, ke, additional }, spi))
}

/// Checks the response about a Child SA against `offer`, made from `ours`. Returns the algorithms,
/// and the responder's SPI.
pub fn esp(
    offer: &SaPayload,
    ours: &[EspProposal],
    answer: &SaPayload,
) -> Result<(EspSuite, Spi), SuiteError> {
    let ah = answer.proposals.first().is_some_and(|answer| answer.protocol == Protocol::Ah);
    let (chosen, offered) = chosen(offer, answer, if ah { Protocol::Ah } else { Protocol::Esp })?;
    let ours = || ours.iter().filter(|own| own.is_ah() == ah);
    // Values to 255 are reserved (RFC 4303 §2.1).
    let SaSpi::Child(spi @ Spi(256..)) = chosen.spi else {
        return Err(SuiteError::NotOffered("it has an SPI of the wrong length, or a reserved one"));
    };
    let integrity = match offered.transforms_of(TransformType::Integrity).next() {
        None => None,
        Some(_) => Some(find(chosen, ours().flat_map(|own| &own.integrity))?),
    };
    let algorithm = match ah {
        true => integrity.map(EspAlgorithm::Ah),
        false => find(chosen, ours().flat_map(|own| &own.encryption))?.with(integrity),
    };
    let unfit = SuiteError::NotOffered("its encryption and integrity do not go together");
    let algorithm = algorithm.ok_or(unfit)?;
    let esn = find(chosen, ours().flat_map(|own| &own.esn))?;
    let ke = match offered.transforms_of(TransformType::KeyExchange).next() {
        None => None,
        Some(_) => Some(find(chosen, ours().flat_map(|own| &own.ke))?),
    };
    let additional = additional::check(chosen, ours().map(|own| &own.additional), ke)?;
    Ok((EspSuite { algorithm, esn, ke, additional }, spi))
}

/// The only proposal of the response, and the proposal of the offer that it answers, once they
/// agree.
fn chosen<'a>(
    offer: &'a SaPayload,
    answer: &'a SaPayload,
    protocol: Protocol,
) -> Result<(&'a Proposal, &'a Proposal), SuiteError> {
    let [chosen] = answer.proposals.as_slice() else {
        return Err(SuiteError::NotOffered("it holds more than one proposal"));
    };
    let offered = offer
        .proposals
        .iter()
        .find(|offered| offered.number == chosen.number && offered.protocol == protocol)
        .filter(|_| chosen.protocol == protocol)
        .ok_or(SuiteError::NotOffered("it has another number or protocol"))?;
    for transform in &chosen.transforms {
        if !offered.transforms.contains(transform) && !says_none(offered, transform) {
            return Err(SuiteError::NotOffered("it holds a transform that was not offered"));
        }
        if chosen.transforms_of(transform.kind).count() != 1 {
            return Err(SuiteError::NotOffered("it holds two transforms of one type"));
        }
    }
    let missing = |kind| chosen.transforms_of(kind).next().is_none() && !may_leave_out(offered, kind);
    if offered.transforms.iter().any(|transform| missing(transform.kind)) {
        return Err(SuiteError::NotOffered("it leaves out a transform type"));
    }
    Ok((chosen, offered))
}

/// True for a transform type for which we offer NONE: leaving it out chooses NONE, as strongSwan
/// does.
fn may_leave_out(offered: &Proposal, kind: TransformType) -> bool {
    is_additional(kind) && offered.transforms.contains(&Transform::new(kind, TransformId::NONE))
}

/// True for a transform NONE of a type that we did not offer: the same as leaving it out (RFC 7296
/// §3.3.3).
fn says_none(offered: &Proposal, transform: &Transform) -> bool {
    (matches!(transform.kind, TransformType::Integrity | TransformType::KeyExchange)
        || is_additional(transform.kind))
        && *transform == Transform::new(transform.kind, TransformId::NONE)
        && offered.transforms_of(transform.kind).next().is_none()
}

/// The algorithm of a transform in the response.
fn find<'a, T: Wire + 'a>(chosen: &Proposal, mut ours: impl Iterator<Item = &'a T>) -> Result<T, SuiteError> {
    ours.find(|algorithm| chosen.transforms.contains(&algorithm.transform()))
        .copied()
        .ok_or(SuiteError::NotOffered("it leaves out a transform type"))
}
