//! What CREATE_CHILD_SA needs for new keys: a nonce that is long enough, and a key exchange that is
//! configured.

use crate::scenarios::answers::sun;
use crate::scenarios::common::build::{esp_proposal, ike_proposal, ts};
use crate::scenarios::common::peer::{Peer, SPI, only_notify};
use crate::scenarios::common::responder::Responder;
use crate::scenarios::common::{Weather, World};
use testudo_ike::config::{KeyExchange, Prf};
use testudo_ike::message::{ExchangeType, Nonce, Notify, NotifyType, Payload, TsPayload};
use testudo_ike::suite::offer;
use testudo_ipsec::sa::EspAlgorithm;

/// It has at least half of the key of the PRF (RFC 7296 §2.10).
#[test]
fn a_nonce_that_is_too_short_for_the_prf_is_refused() {
    let mut proposal = ike_proposal(&[KeyExchange::X25519]);
    proposal.prf = vec![Prf::HmacSha512];
    let mut world = sun();
    let mut site = world.hosts[0].endpoint.connection("site").unwrap().clone();
    site.proposals = vec![proposal.clone()];
    let now = world.now;
    world.hosts[0].load(now, site);
    let mut peer = Peer::try_init_for(&mut world, 5, &[proposal], vec![]).unwrap();
    let payloads = peer.auth_payloads();
    peer.request(&mut world, ExchangeType::IkeAuth, payloads).unwrap();
    let range = |range: &str| TsPayload::new(vec![ts(range)]);
    for (octets, is_enough) in [(31, false), (32, true)] {
        let esp = esp_proposal(EspAlgorithm::Aes128Gcm16);
        let payloads = vec![
            Payload::Sa(offer::esp(&[esp], SPI, offer::ChildExchange::CreateChildSa)),
            Payload::Nonce(Nonce::new(vec![7; octets]).unwrap()),
            Payload::TsInitiator(range("10.109.0.0-10.109.255.255")),
            Payload::TsResponder(range("10.115.0.0-10.115.255.255")),
        ];
        let answer = peer.request(&mut world, ExchangeType::CreateChildSa, payloads);
        if !is_enough {
            assert_eq!(only_notify(answer), NotifyType::InvalidSyntax);
        }
        assert_eq!(world.hosts[0].installed.len(), 1 + usize::from(is_enough), "{octets} octets");
    }
}

/// A peer may want another key exchange, but none that is not configured, and none twice.
#[test]
fn a_key_exchange_is_tried_once_if_it_is_configured() {
    use KeyExchange::{Ecp256, Ecp384, X25519};
    for (wanted, is_tried) in [(Ecp256, true), (X25519, false), (Ecp384, false)] {
        let mut world = World::pair_with(6, Weather::FAIR, |_, connection| {
            connection.children[0].proposals[0].ke = vec![X25519, Ecp256];
        });
        world.hosts.remove(1);
        let mut sun = Responder::establish(&mut world);
        let (now, child) = (world.now, world.hosts[0].sas()[0].children[0].id);
        assert!(world.hosts[0].endpoint.rekey_child(now, child));
        world.settle(0);
        let refusal = || vec![Payload::Notify(Notify::invalid_ke(wanted.into()))];
        let said = sun.answer(&mut world, ExchangeType::CreateChildSa, 2, refusal());
        assert_eq!(said.len(), usize::from(is_tried), "{wanted:?}: {said:?}");
        if is_tried {
            assert_eq!(said[0].0.exchange, ExchangeType::CreateChildSa);
            let said = sun.answer(&mut world, ExchangeType::CreateChildSa, 3, refusal());
            assert!(said.is_empty(), "{said:?}");
        }
        assert_eq!(world.hosts[0].in_use.lock().unwrap().len(), 1);
    }
}
