//! Extensions announced in IKE_SA_INIT. The responder names only those that the initiator named,
//! and that it accepts IKE SAs without a child, so that its answer is no larger than necessary.

use crate::cert::{Certificate, Hashes};
use crate::config::{Connection, Fragmentation, IkeProposal};
use crate::exchange::childless;
use crate::message::{CertEncoding, CertPayload, Notify, NotifyType, Payload, Payloads, SaPayload};
use crate::sa::{CounterSync, Extensions};
use crate::suite::{IkeSuite, without_additional};
use std::borrow::Cow;

/// The initiator's announcements.
pub(super) fn offer(connection: &Connection, ppk: bool) -> Vec<Payload> {
    // An initiator that offers additional key exchanges must announce it; nothing else of ours
    // needs it (RFC 9370 §2.2.1).
    let intermediate = connection.proposals.iter().any(has_additional_ke);
    ours(connection, ppk).filter(|kind| intermediate || *kind != INTERMEDIATE).map(notify).collect()
}

/// The responder's announcements.
pub(super) fn answer(connection: &Connection, request: &Payloads, ppk: bool) -> Vec<Payload> {
    let asked = ours(connection, ppk).filter(|kind| request.notify(*kind).is_some());
    // An initiator does not announce it (RFC 6023 §4).
    let childless = childless::is_taken(connection).then_some(NotifyType::ChildlessIkev2Supported);
    asked.chain(childless).map(notify).collect()
}

/// The agreed extensions, by ours and the peer's announcements.
pub(super) fn agreed(connection: &Connection, peer: &Payloads, ppk: bool) -> Extensions {
    let both = |wanted| ours(connection, ppk).any(|kind| kind == wanted) && peer.notify(wanted).is_some();
    let fragmentation = both(NotifyType::FragmentationSupported);
    let hashes =
        peer.notify(NotifyType::SignatureHashAlgorithms).map(|notify| Hashes::from_notify(&notify.data));
    Extensions {
        fragmentation,
        fragment: fragmentation && connection.fragmentation == Fragmentation::Yes,
        hashes: hashes.unwrap_or_default(),
        ppk: both(NotifyType::UsePpk),
        asked_for_certificate: peer.asks_for_certificates(CertEncoding::X509Signature),
        asked_for_key: peer.asks_for_certificates(CertEncoding::RawPublicKey),
        counter_sync: CounterSync::default(),
    }
}

/// The offer from which a responder may choose: without IKE_INTERMEDIATE there are no additional
/// key exchanges (RFC 9370 §2.2.1).
pub(super) fn understood<'a>(offered: &'a SaPayload, request: &Payloads) -> Cow<'a, SaPayload> {
    match request.notify(INTERMEDIATE) {
        Some(_) => Cow::Borrowed(offered),
        None => Cow::Owned(without_additional(offered)),
    }
}

/// True if a responder that chose this suite has announced everything that it needs.
pub(super) fn vouched_for(suite: IkeSuite, response: &Payloads) -> bool {
    suite.next_additional(0).is_none() || response.notify(INTERMEDIATE).is_some()
}

const INTERMEDIATE: NotifyType = NotifyType::IntermediateExchangeSupported;

/// Our extensions on this connection. `ppk`: there is a PPK to use.
fn ours(connection: &Connection, ppk: bool) -> impl Iterator<Item = NotifyType> {
    let fragmentation = connection.fragmentation != Fragmentation::No;
    [
        fragmentation.then_some(NotifyType::FragmentationSupported),
        Some(NotifyType::SignatureHashAlgorithms),
        Some(INTERMEDIATE),
        ppk.then_some(NotifyType::UsePpk),
    ]
    .into_iter()
    .flatten()
}

fn has_additional_ke(proposal: &IkeProposal) -> bool {
    proposal.additional.iter().flatten().any(Option::is_some)
}

fn notify(kind: NotifyType) -> Payload {
    let data = match kind {
        // The hashes that the peer's signatures may use (RFC 7427 §4).
        NotifyType::SignatureHashAlgorithms => Hashes::ALL.to_notify(),
        _ => Vec::new(),
    };
    Payload::Notify(Notify::new(kind, data))
}

/// A certificate request for these CAs, at most `most` of them; `None` without any.
pub(crate) fn certificate_request<'a>(
    cas: impl IntoIterator<Item = &'a Certificate>,
    most: usize,
) -> Option<Payload> {
    let mut ids: Vec<[u8; 20]> = cas.into_iter().map(|ca| ca.key().info_id()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(most);
    (!ids.is_empty()).then(|| Payload::CertificateRequest(CertPayload::x509(ids.concat())))
}

/// A request for the peer's public key without a certificate. The authority stays empty (RFC 7670
/// §3).
pub(crate) fn key_request() -> Payload {
    Payload::CertificateRequest(CertPayload::raw_key(Vec::new()))
}
