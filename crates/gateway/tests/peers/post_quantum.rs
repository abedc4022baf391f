//! Post-quantum key exchange (RFC 9370 with ML-KEM): between Testudos, and beside a strongSwan that has none of it.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

const CLASSIC: &str = "aes256gcm16-prfsha384-ecp384";
const HYBRID: &str = "aes256gcm16-prfsha384-ecp384-ke1_mlkem768";

fn additional_ke(pair: &Pair, side: Side) -> Option<String> {
    pair.sas(side)[0].get("ake1").map(str::to_owned)
}

fn down(pair: &Pair, side: Side) {
    pair.swanctl(side).terminate("lab").unwrap();
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 0, SOON);
    }
}

#[test]
fn two_gateways_exchange_ml_kem_without_ip_fragments() {
    for (outer, proposals, expected) in [
        (Family::V4, HYBRID, "ML_KEM_768"),
        (Family::V6, "aes128-sha256-x25519-ke1_mlkem1024-ke2_mlkem512", "ML_KEM_1024"),
    ] {
        let mut pair = Scenario::new("mlkem", Kind::Testudo)
            .outer(outer)
            .start_with(|_, connection| connection.proposals = proposals.into());
        for initiator in [Side::One, Side::Two] {
            let watch = Watch::start(&pair.t);
            let wire = Capture::everything(&pair.t.wire, 60).unwrap();
            pair.up(initiator);
            for side in [Side::One, Side::Two] {
                assert_eq!(additional_ke(&pair, side).as_deref(), Some(expected), "{side:?}");
            }
            pair.ping_both_ways();
            let shown = wire.stop().unwrap().show(60).unwrap();
            assert!(!shown.contains("frag"), "no IP datagram is fragmented: {shown}");
            down(&pair, initiator);
            watch.saw_nothing();
        }
        pair.await_log(&format!("additional key exchange 1 by {expected}"));
    }
}

#[test]
fn a_strongswan_without_ml_kem_takes_the_proposal_without() {
    let pair = Scenario::new("nomlkem", Kind::Strongswan).start_with(|side, connection| {
        connection.proposals = match side {
            Side::One => format!("{HYBRID}, {CLASSIC}"),
            Side::Two => CLASSIC.into(),
        };
    });
    for initiator in [Side::One, Side::Two] {
        pair.up(initiator);
        assert_eq!(pair.sas(Side::One)[0].get("dh-group"), Some("ECP_384"));
        assert_eq!(additional_ke(&pair, Side::One), None);
        pair.ping_from(initiator, Family::V4, 56);
        down(&pair, initiator);
    }
}

#[test]
fn who_insists_on_ml_kem_has_no_tunnel_with_a_strongswan_without() {
    let mut pair = Scenario::new("onlymlkem", Kind::Strongswan).start_with(|side, connection| {
        connection.proposals = if side == Side::One { HYBRID.into() } else { CLASSIC.into() };
    });
    for initiator in [Side::One, Side::Two] {
        assert!(pair.swanctl(initiator).initiate("lab", UP_LIMIT).is_err(), "{initiator:?}");
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
    }
    let log = pair.two.process().log().unwrap();
    assert!(log.contains("NO_PROPOSAL_CHOSEN") || log.contains("NO_PROP"), "{log}");
}
