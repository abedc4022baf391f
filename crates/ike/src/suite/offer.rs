//! Offers: from the configuration to proposals on the wire.
//!
//! One proposal structure for each configured proposal, in the configured order. An AEAD has no
//! integrity transform (RFC 5282 §8, RFC 7296 §3.3): the RFC forbids offering one.

use super::additional;
use super::algorithm::Wire;
use crate::config::{EspProposal, IkeProposal};
use crate::message::{IkeSpi, Proposal, Protocol, SaPayload, SaSpi, Transform};
use testudo_base::spi::Spi;

/// The exchange that makes a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExchange {
    /// IKE_AUTH: no key exchange of its own (RFC 7296 §1.2).
    IkeAuth,
    /// CREATE_CHILD_SA: with key exchanges, if the configuration names some.
    CreateChildSa,
}

/// The offer of an IKE SA. `spi`: ours, when an IKE SA is rekeyed (RFC 7296 §1.3.2).
pub fn ike(proposals: &[IkeProposal], spi: Option<IkeSpi>) -> SaPayload {
    let spi = spi.map_or(SaSpi::None, SaSpi::Ike);
    numbered(proposals.iter().map(|proposal| {
        let mut transforms = transforms(&proposal.encryption);
        transforms.extend(self::transforms(&proposal.prf));
        transforms.extend(self::transforms(&proposal.integrity));
        transforms.extend(self::transforms(&proposal.ke));
        transforms.extend(additional::of(&proposal.additional));
        (Protocol::Ike, spi.clone(), transforms)
    }))
}

/// The offer of a Child SA, whose packets to us will carry `spi`.
pub fn esp(proposals: &[EspProposal], spi: Spi, exchange: ChildExchange) -> SaPayload {
    numbered(proposals.iter().map(|proposal| {
        let mut transforms = transforms(&proposal.encryption);
        transforms.extend(self::transforms(&proposal.integrity));
        if exchange == ChildExchange::CreateChildSa {
            transforms.extend(self::transforms(&proposal.ke));
            transforms.extend(additional::of(&proposal.additional));
        }
        transforms.extend(self::transforms(&proposal.esn));
        (protocol(proposal), SaSpi::Child(spi), transforms)
    }))
}

/// The protocol of a proposal.
pub(super) fn protocol(proposal: &EspProposal) -> Protocol {
    if proposal.is_ah() { Protocol::Ah } else { Protocol::Esp }
}

fn transforms<T: Wire>(algorithms: &[T]) -> Vec<Transform> {
    algorithms.iter().map(|algorithm| algorithm.transform()).collect()
}

/// Numbers proposals from 1 (RFC 7296 §3.3.1). Numbers end at 255, and so do proposals.
fn numbered(proposals: impl Iterator<Item = (Protocol, SaSpi, Vec<Transform>)>) -> SaPayload {
    let proposals = (1..=u8::MAX).zip(proposals);
    SaPayload {
        proposals: proposals
            .map(|(number, (protocol, spi, transforms))| Proposal { number, protocol, spi, transforms })
            .collect(),
    }
}
