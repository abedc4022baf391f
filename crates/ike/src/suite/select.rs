//! The responder's choice (RFC 7296 §2.7, §3.3.6).
//!
//! Our order decides, as with strongSwan: the first configured proposal that matches an offered
//! one, and in it, for each type, our first offered transform. Unknown parts make a proposal
//! (unknown transform type) or a transform (unknown ID or attribute) unacceptable, never the
//! payload.

use super::additional::{self, is_additional};
use super::algorithm::{EspSuite, IkeSuite, Wire};
use super::error::SuiteError;
use super::offer::{ChildExchange, protocol};
use crate::config::{EspProposal, IkeProposal};
use crate::message::{IkeSpi, Proposal, Protocol, SaPayload, SaSpi, Transform, TransformId, TransformType};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::EspAlgorithm;

/// The chosen algorithms of an IKE SA, and the answer with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeChoice {
    /// The algorithms.
    pub suite: IkeSuite,
    /// The initiator's new SPI, when an IKE SA is rekeyed.
    pub spi: Option<IkeSpi>,
    answer: Proposal,
}

/// The chosen algorithms of a Child SA, and the answer with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspChoice {
    /// The algorithms.
    pub suite: EspSuite,
    /// The initiator's SPI, for packets from us.
    pub spi: Spi,
    answer: Proposal,
}

impl IkeChoice {
    /// The SA payload of the answer. `spi`: ours, when an IKE SA is rekeyed.
    pub fn answer(&self, spi: Option<IkeSpi>) -> SaPayload {
        answer(&self.answer, spi.map_or(SaSpi::None, SaSpi::Ike))
    }
}

impl EspChoice {
    /// The SA payload of the answer; packets to us will carry `spi`.
    pub fn answer(&self, spi: Spi) -> SaPayload {
        answer(&self.answer, SaSpi::Child(spi))
    }
}

fn answer(chosen: &Proposal, spi: SaSpi) -> SaPayload {
    SaPayload { proposals: vec![Proposal { spi, ..chosen.clone() }] }
}

/// Chooses for an IKE SA. If the KE payload is of another method than the chosen one, the answer
/// must be INVALID_KE_PAYLOAD (RFC 7296 §1.2).
pub fn ike(offered: &SaPayload, ours: &[IkeProposal]) -> Result<IkeChoice, SuiteError> {
    for own in ours {
        for offer in offered.proposals.iter().filter(|offer| offer.protocol == Protocol::Ike) {
            let spi = match offer.spi {
                SaSpi::None => None,
                SaSpi::Ike(spi) if !spi.is_zero() => Some(spi),
                _ => continue,
            };
            if let Some((suite, transforms)) = match_ike(offer, own) {
                let answer = Proposal { transforms, ..offer.clone() };
                return Ok(IkeChoice { suite, spi, answer });
            }
        }
    }
    Err(SuiteError::NoProposal { offered: offered.proposals.len() })
}

/// Chooses for a Child SA.
pub fn esp(
    offered: &SaPayload,
    ours: &[EspProposal],
    exchange: ChildExchange,
) -> Result<EspChoice, SuiteError> {
    for own in ours {
        for offer in offered.proposals.iter().filter(|offer| offer.protocol == protocol(own)) {
            // Values to 255 are reserved (RFC 4303 §2.1).
            let SaSpi::Child(spi @ Spi(256..)) = offer.spi else { continue };
            if let Some((suite, transforms)) = match_esp(offer, own, exchange) {
                let answer = Proposal { transforms, ..offer.clone() };
                return Ok(EspChoice { suite, spi, answer });
            }
        }
    }
    Err(SuiteError::NoProposal { offered: offered.proposals.len() })
}

fn match_ike(offer: &Proposal, own: &IkeProposal) -> Option<(IkeSuite, Vec<Transform>)> {
    const KNOWN: [TransformType; 4] =
        [TransformType::Encryption, TransformType::Prf, TransformType::Integrity, TransformType::KeyExchange];
    if !holds_only(offer, &KNOWN) {
        return None;
    }
    let encryption = pick(offer, &own.encryption)?;
    let prf = pick(offer, &own.prf)?;
    let ke = pick(offer, &own.ke)?;
    let mut transforms = vec![encryption.transform(), prf.transform()];
    let (integrity, answer) = match_integrity(offer, &own.integrity)?;
    transforms.extend(answer);
    transforms.push(ke.transform());
    let (additional, answer) = additional::choose(offer, &own.additional, Some(ke))?;
    transforms.extend(answer);
    Some((IkeSuite { encryption, integrity, prf, ke, additional }, transforms))
}

fn match_esp(
    offer: &Proposal,
    own: &EspProposal,
    exchange: ChildExchange,
) -> Option<(EspSuite, Vec<Transform>)> {
    const KNOWN: [TransformType; 4] =
        [TransformType::Encryption, TransformType::Integrity, TransformType::KeyExchange, TransformType::Esn];
    if !holds_only(offer, &KNOWN) {
        return None;
    }
    let (integrity, answer) = match_integrity(offer, &own.integrity)?;
    let mut transforms = Vec::new();
    let algorithm = if own.is_ah() {
        transforms.extend(without(offer, TransformType::Encryption)?);
        EspAlgorithm::Ah(integrity?)
    } else {
        let encryption = pick(offer, &own.encryption)?;
        transforms.push(encryption.transform());
        encryption.with(integrity)?
    };
    let esn = pick(offer, &own.esn)?;
    transforms.extend(answer);
    let ke = match exchange {
        // A method offered here is meaningless: there is no KE payload in IKE_AUTH (RFC 7296 §1.2).
        // So are additional key exchanges, which need the first.
        ChildExchange::IkeAuth => None,
        ChildExchange::CreateChildSa if own.ke.is_empty() => {
            transforms.extend(without(offer, TransformType::KeyExchange)?);
            None
        }
        ChildExchange::CreateChildSa => Some(pick(offer, &own.ke)?),
    };
    transforms.extend(ke.map(Wire::transform));
    let additional = match exchange {
        ChildExchange::IkeAuth => Default::default(),
        ChildExchange::CreateChildSa => {
            let (agreed, answer) = additional::choose(offer, &own.additional, ke)?;
            transforms.extend(answer);
            agreed
        }
    };
    transforms.push(esn.transform());
    Some((EspSuite { algorithm, esn, ke, additional }, transforms))
}

/// The integrity algorithm, and the answer's transform; none with an AEAD.
fn match_integrity<T: Wire>(offer: &Proposal, own: &[T]) -> Option<(Option<T>, Option<Transform>)> {
    if own.is_empty() {
        return Some((None, without(offer, TransformType::Integrity)?));
    }
    let integrity = pick(offer, own)?;
    Some((Some(integrity), Some(integrity.transform())))
}

/// True if all transforms are of types that are known for the protocol, including additional key
/// exchanges; otherwise the proposal is unacceptable (RFC 7296 §3.3.6).
fn holds_only(offer: &Proposal, known: &[TransformType]) -> bool {
    let mut kinds = offer.transforms.iter().map(|transform| transform.kind);
    kinds.all(|kind| known.contains(&kind) || is_additional(kind))
}

/// Our first algorithm that is offered with exactly its attributes.
fn pick<T: Wire>(offer: &Proposal, own: &[T]) -> Option<T> {
    own.iter().copied().find(|algorithm| offer.transforms.contains(&algorithm.transform()))
}

/// The answer for a type of which we want none: nothing if the type is absent, NONE if that is
/// offered. `None` if the initiator insists on an algorithm.
fn without(offer: &Proposal, kind: TransformType) -> Option<Option<Transform>> {
    let none = Transform::new(kind, TransformId::NONE);
    if offer.transforms_of(kind).next().is_none() {
        Some(None)
    } else {
        offer.transforms.contains(&none).then_some(Some(none))
    }
}
