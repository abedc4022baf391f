//! Post-quantum key exchange (RFC 9370 with ML-KEM): between Testudos, and beside a strongSwan that
//! has none of it; and post-quantum pre-shared keys (RFC 8784), with both.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use crate::rekeying::renew_everything;
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
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

/// IKE_FOLLOWUP_KE, both roles, Child SAs and IKE SAs, the traffic going on.
#[test]
fn two_gateways_renew_with_ml_kem_and_lose_no_packet() {
    let mut pair = Scenario::new("followup", Kind::Testudo).start_with(|_, connection| {
        connection.proposals = HYBRID.into();
        connection.esp_proposals = "aes256gcm16-x25519-ke1_mlkem768".into();
    });
    let watch = Watch::start(&pair.t);
    let wire = Capture::everything(&pair.t.wire, 60).unwrap();
    pair.up(Side::One);
    assert_eq!(pair.sas(Side::One)[0].children[0].get("ake1"), None, "the first has the keys of the IKE SA");
    renew_everything(&pair);
    for side in [Side::One, Side::Two] {
        assert_eq!(additional_ke(&pair, side).as_deref(), Some("ML_KEM_768"), "{side:?}");
        let child = &pair.sas(side)[0].children[0];
        assert_eq!((child.get("dh-group"), child.get("ake1")), (Some("CURVE_25519"), Some("ML_KEM_768")));
    }
    pair.ping_both_ways();
    let shown = wire.stop().unwrap().show(60).unwrap();
    assert!(!shown.contains("frag"), "no IP datagram is fragmented: {shown}");
    watch.saw_nothing();
    pair.await_log("additional key exchange 1 by ML_KEM_768");
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_strongswan_without_ml_kem_renews_without() {
    let pair = Scenario::new("nofollowup", Kind::Strongswan).start_with(|side, connection| {
        let (hybrid, classic) = ("aes256gcm16-x25519-ke1_mlkem768", "aes256gcm16-x25519");
        (connection.proposals, connection.esp_proposals) = match side {
            Side::One => (format!("{HYBRID}, {CLASSIC}"), format!("{hybrid}, {classic}")),
            Side::Two => (CLASSIC.into(), classic.into()),
        };
    });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    renew_everything(&pair);
    let sa = pair.sas(Side::One).pop().unwrap();
    assert_eq!((sa.get("dh-group"), sa.get("ake1")), (Some("ECP_384"), None));
    let child = &sa.children[0];
    assert_eq!((child.get("dh-group"), child.get("ake1")), (Some("CURVE_25519"), None));
    pair.ping_both_ways();
    watch.saw_nothing();
}

#[test]
fn required_ml_kem_fails_with_a_strongswan_without_it() {
    let mut pair = Scenario::new("onlymlkem", Kind::Strongswan).start_with(|side, connection| {
        connection.proposals = if side == Side::One { HYBRID.into() } else { CLASSIC.into() };
    });
    for initiator in [Side::One, Side::Two] {
        assert!(pair.swanctl(initiator).initiate("lab", UP_LIMIT).is_err(), "{initiator:?}");
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
    }
    pair.two.process().wait_log("NO_PROP", SOON).unwrap();
}

/// `ppk_id`, `ppk_required`, and the PPKs that are loaded.
type Ppks<'a> = (Option<&'a str>, bool, &'a [(&'a str, &'a str)]);

fn load_with_ppks(pair: &Pair, side: Side, (id, required, loaded): Ppks<'_>) {
    let mut connection = Connection::of(side, Family::V4);
    connection.more = vec![format!("ppk_required = {}", if required { "yes" } else { "no" })];
    connection.more.extend(id.map(|id| format!("ppk_id = {id}")));
    let ppks: String = loaded
        .iter()
        .map(|(id, secret)| {
            format!("    ppk-{id} {{\n        id = {id}\n        secret = \"{secret}\"\n    }}\n")
        })
        .collect();
    pair.swanctl(side).load(&format!("{connection}secrets {{\n{ppks}}}\n")).unwrap();
}

/// Each side initiates once. `ppk`: whether the tunnel has one; none: there is no tunnel.
fn tunnels(pair: &Pair, sides: [Ppks<'_>; 2], ppk: Option<bool>) {
    load_with_ppks(pair, Side::One, sides[0]);
    load_with_ppks(pair, Side::Two, sides[1]);
    for initiator in [Side::One, Side::Two] {
        if ppk.is_none() {
            assert!(pair.swanctl(initiator).initiate("lab", UP_LIMIT).is_err(), "{sides:?} {initiator:?}");
            for side in [Side::One, Side::Two] {
                pair.await_sas(side, 0, SOON);
            }
            continue;
        }
        pair.up(initiator);
        for side in [Side::One, Side::Two] {
            let shown = pair.sas(side)[0].get("ppk").map(str::to_owned);
            assert_eq!(Some(shown.as_deref() == Some("yes")), ppk, "{sides:?} {initiator:?} {side:?}");
        }
        pair.ping_from(initiator, Family::V4, 56);
        down(pair, initiator);
    }
}

fn ppks_in_both_roles(name: &'static str, peer: Kind) {
    let pair = Scenario::new(name, peer).start_empty();
    let ppk: &[_] = &[("quantum", "32 octets that no curve protects")];
    let other: &[_] = &[("another", "with another value")];
    let (optional, required) = ((Some("quantum"), false, ppk), (Some("quantum"), true, ppk));
    tunnels(&pair, [optional, optional], Some(true));
    tunnels(&pair, [required, optional], Some(true));
    tunnels(&pair, [optional, required], Some(true));
    // The other side has another PPK, and takes any that is loaded.
    tunnels(&pair, [optional, (None, false, other)], Some(false));
    tunnels(&pair, [required, (None, false, other)], None);
    tunnels(&pair, [(None, false, other), required], None);
    // The same name, and another value.
    tunnels(&pair, [required, (Some("quantum"), true, &[("quantum", "a slip of the pen")])], None);
}

#[test]
fn strongswan_and_we_use_a_ppk() {
    ppks_in_both_roles("ppk", Kind::Strongswan);
}

#[test]
fn two_gateways_use_a_ppk() {
    ppks_in_both_roles("ppks", Kind::Testudo);
}
