//! An endpoint's handling of payloads from a stranger: selection, checks, key agreement.

use super::config::connections;
use std::sync::OnceLock;
use testudo_base::spi::Spi;
use testudo_ike::config::{EspProposal, IkeProposal, KeyExchange};
use testudo_ike::message::{KePayload, Notify, Payloads, SaPayload, SaSpi, TsPayload};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{Entropy, KePrivate, accept, offer, respond, select};

/// Our proposals for IKE and for ESP.
struct Ours {
    ike: Vec<IkeProposal>,
    esp: Vec<EspProposal>,
    ke: [KePrivate; 3],
}

/// Always the same octets.
struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(7);
    }
}

fn ours() -> &'static Ours {
    static OURS: OnceLock<Ours> = OnceLock::new();
    OURS.get_or_init(|| {
        let connections = connections();
        let children = connections.iter().flat_map(|connection| &connection.children);
        let key = |method| KePrivate::generate(method, &mut Constant).expect("a key");
        Ours {
            ike: connections.iter().flat_map(|connection| connection.proposals.clone()).collect(),
            esp: children.flat_map(|child| child.proposals.clone()).collect(),
            ke: [KeyExchange::X25519, KeyExchange::Ecp256, KeyExchange::MlKem512].map(key),
        }
    })
}

/// Processes the payloads as an endpoint might.
pub(super) fn look_at(payloads: &Payloads) {
    if let Some(sa) = payloads.sa() {
        as_offer(sa);
        as_answer(sa);
    }
    if let Some(ke) = payloads.ke() {
        agree(ke);
    }
    for ts in [payloads.ts_initiator(), payloads.ts_responder()].into_iter().flatten() {
        check_selectors(ts);
    }
    for id in [payloads.id_initiator(), payloads.id_responder()].into_iter().flatten() {
        assert_eq!(id.body().len(), 4 + id.data().len());
        assert!(!id.kind().to_string().contains(char::is_control));
        if let Some(identity) = id.identity() {
            assert!(!identity.to_string().contains(char::is_control), "an identity goes into the log");
        }
    }
    payloads.notifies().for_each(check_notify);
    assert!(payloads.iter().all(|payload| !payload.kind().to_string().is_empty()));
    assert_eq!(payloads.error().is_some(), payloads.notifies().any(|notify| notify.kind.is_error()));
}

/// A responder's choice must be acceptable to the initiator.
fn as_offer(sa: &SaPayload) {
    let ours = ours();
    let mut numbers: Vec<u8> = sa.proposals.iter().map(|proposal| proposal.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if let Ok(choice) = select::ike(sa, &ours.ike) {
        let answer = choice.answer(choice.spi);
        // If two proposals have the same number, the answer is ambiguous.
        if numbers.len() == sa.proposals.len() {
            assert_eq!(accept::ike(sa, &ours.ike, &answer), Ok((choice.suite, choice.spi)));
        }
    }
    for exchange in [ChildExchange::IkeAuth, ChildExchange::CreateChildSa] {
        if let Ok(choice) = select::esp(sa, &ours.esp, exchange) {
            assert!(choice.spi.0 >= 256, "RFC 4303 §2.1");
            assert!(exchange == ChildExchange::CreateChildSa || choice.suite.ke.is_none());
            let [proposal] = <[_; 1]>::try_from(choice.answer(Spi(0x1000)).proposals).expect("one proposal");
            assert_eq!(proposal.spi, SaSpi::Child(Spi(0x1000)));
        }
    }
}

/// An accepted answer to our offer must be something that we offered.
fn as_answer(sa: &SaPayload) {
    let ours = ours();
    if let Ok((suite, spi)) = accept::ike(&offer::ike(&ours.ike, None), &ours.ike, sa) {
        assert!(spi.is_none());
        assert!(ours.ike.iter().any(|own| {
            own.encryption.contains(&suite.encryption)
                && own.prf.contains(&suite.prf)
                && own.ke.contains(&suite.ke)
        }));
    }
    let offered = offer::esp(&ours.esp, Spi(0x1000), ChildExchange::IkeAuth);
    if let Ok((suite, spi)) = accept::esp(&offered, &ours.esp, sa) {
        assert!(spi.0 >= 256 && suite.ke.is_none());
        let algorithms = |own: &EspProposal| {
            let none = own.integrity.is_empty().then_some(None);
            let integrity: Vec<_> = own.integrity.iter().copied().map(Some).chain(none).collect();
            let with_each =
                own.encryption.iter().flat_map(|cipher| integrity.iter().map(|mac| cipher.with(*mac)));
            with_each.collect::<Vec<_>>()
        };
        assert!(
            ours.esp
                .iter()
                .any(|own| algorithms(own).contains(&Some(suite.algorithm)) && own.esn.contains(&suite.esn))
        );
    }
}

/// The two sides agree on a secret, or the public value is refused.
fn agree(ke: &KePayload) {
    for own in &ours().ke {
        if let Ok(shared) = own.agree(ke) {
            assert_eq!(shared.len(), 32);
            assert!(shared.expose().iter().any(|octet| *octet != 0), "RFC 8031 §5");
        }
        if let Ok((answer, shared)) = respond(own.method(), ke, &mut Constant) {
            assert_eq!((answer.method, shared.len()), (ke.method, 32));
            assert!(answer.data.len() <= ke.data.len(), "no amplification");
        }
    }
}

fn check_selectors(ts: &TsPayload) {
    assert!(!ts.selectors.is_empty() || !ts.unknown.is_empty());
    for selector in &ts.selectors {
        assert_eq!(selector.addrs.start().is_ipv4(), selector.addrs.end().is_ipv4());
        assert!(selector.addrs.start() <= selector.addrs.end());
        let opaque = (selector.port_start, selector.port_end) == (u16::MAX, 0);
        assert!(selector.port_start <= selector.port_end || opaque, "RFC 7296 §3.13.1");
    }
}

fn check_notify(notify: &Notify) {
    assert!(!notify.kind.to_string().is_empty());
    assert!(notify.wanted_ke().is_none() || notify.data.len() == 2);
    assert!(notify.sa.as_ref().is_none_or(|sa| sa.spi != SaSpi::None));
}
