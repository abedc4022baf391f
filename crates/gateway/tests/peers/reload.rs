//! A changed swanctl.conf is loaded while traffic runs: what did not change keeps its SAs, the rest
//! is replaced, and no packet is lost.

use crate::common::{Pair, Scenario, Watch};
use crate::rekeying::under_traffic;
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl::ChildSa;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// Both sides have changed over by then.
const SETTLED: Duration = Duration::from_secs(180);

/// A connection with two children: `lab` for IPv4, which `edit` changes, and `six` for IPv6.
fn text(side: Side, edit: impl Fn(Side, &mut Connection)) -> String {
    let mut connection = Connection::of(side, Family::V4);
    connection.local_ts = vec![side.network(Family::V4)];
    connection.remote_ts = vec![side.other().network(Family::V4)];
    edit(side, &mut connection);
    let (local, remote) = (side.network(Family::V6), side.other().network(Family::V6));
    let six =
        format!("six {{\n local_ts = {local}\n remote_ts = {remote}\n esp_proposals = aes128gcm16\n }}");
    connection.to_string().replacen("children {\n", &format!("children {{\n{six}\n"), 1)
}

/// A tunnel with both children.
fn start(name: &'static str, peer: Kind) -> Pair {
    let pair = Scenario::new(name, peer).start_empty();
    for side in [Side::One, Side::Two] {
        pair.swanctl(side).load(&text(side, |_, _| {})).unwrap();
    }
    pair.up(Side::One);
    pair.swanctl(Side::One).initiate("six", SETTLED).unwrap();
    pair.ping_both_ways();
    pair
}

fn load(pair: &Pair, side: Side, edit: impl Fn(Side, &mut Connection)) {
    pair.swanctl(side).load(&text(side, edit)).unwrap();
}

/// One IKE SA at that side, and of each child one Child SA in use: the IKE SA's SPI, and the
/// inbound one of both children.
fn spis(pair: &Pair, side: Side) -> Result<[String; 3], String> {
    let sas = pair.sas(side);
    let [sa] = sas.as_slice() else { return Err(format!("{sas:?}")) };
    let of = |name: &str| -> Result<String, String> {
        let used = sa.children.iter().filter(|child| child.name == name && child.state == "INSTALLED");
        match used.collect::<Vec<_>>().as_slice() {
            [child] => Ok(child.get("spi-in").unwrap_or_default().to_owned()),
            _ => Err(format!("{name}: {sas:?}")),
        }
    };
    Ok([sa.get("initiator-spi").unwrap_or_default().to_owned(), of("lab")?, of("six")?])
}

/// Waits until each side has one IKE SA with both children, of which exactly those are others than
/// before that should be.
fn await_changed(pair: &Pair, before: &[[String; 3]; 2], changed: [bool; 3]) {
    for (side, before) in [Side::One, Side::Two].into_iter().zip(before) {
        wait_until(&format!("what changed at side {side:?}"), SETTLED, || {
            let fits = spis(pair, side).and_then(|now| {
                let differs: Vec<bool> = now.iter().zip(before).map(|(now, before)| now != before).collect();
                if differs == changed { Ok(()) } else { Err(format!("{differs:?}: {:?}", pair.sas(side))) }
            });
            Ok(fits)
        })
        .unwrap();
    }
}

fn both(pair: &Pair) -> [[String; 3]; 2] {
    [Side::One, Side::Two].map(|side| spis(pair, side).unwrap())
}

/// The change is loaded at the peer and then here, under traffic through child `lab`.
fn change(pair: &Pair, changed: [bool; 3], edit: impl Fn(Side, &mut Connection) + Sync) {
    let before = both(pair);
    under_traffic(pair, || {
        load(pair, Side::Two, &edit);
        load(pair, Side::One, &edit);
        await_changed(pair, &before, changed);
    });
    pair.ping_both_ways();
}

fn networks(side: Side, connection: &mut Connection, length: &str) {
    let network = |side: Side| side.network(Family::V4).replace("/24", length);
    connection.local_ts = vec![network(side)];
    connection.remote_ts = vec![network(side.other())];
}

fn negotiated(pair: &Pair, key: &str) -> String {
    negotiated_at(pair, Side::One, key)
}

fn negotiated_at(pair: &Pair, side: Side, key: &str) -> String {
    let sas = pair.sas(side);
    let used = |child: &&ChildSa| child.name == "lab" && child.state == "INSTALLED";
    let child = sas[0].children.iter().find(used).unwrap();
    child.get(key).unwrap_or_default().to_owned()
}

/// Narrower and wider selectors of one child: the other keeps its SA.
fn other_selectors(peer: Kind) {
    let mut pair = start("reload-ts", peer);
    let watch = Watch::start(&pair.t);
    for length in ["/29", "/23", "/24"] {
        change(&pair, [false, true, false], |side, connection| networks(side, connection, length));
        assert_eq!(negotiated(&pair, "remote-ts"), format!("10.2.0.0{length}"));
        if length == "/29" {
            no_longer_covered(&pair);
        }
    }
    watch.saw_nothing();
    pair.await_log("connection lab changed: children lab replaced, six kept");
}

/// A prefix that is no longer protected stays shut, even when the last SA that carried it is gone.
fn no_longer_covered(pair: &Pair) {
    wait_until("the end of what the old SA protected", SETTLED, || {
        let shut = pair.one.status()?["counters"]["inherited"].to_string();
        Ok(if shut.contains("10.2.0.0/24") { Ok(()) } else { Err(shut) })
    })
    .unwrap();
    let pong = Ping::new([10, 2, 0, 100].into()).count(5).brief().run(&pair.t.client).unwrap();
    assert_eq!(pong.received, 0);
}

#[test]
fn other_selectors_with_strongswan() {
    other_selectors(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn other_selectors_with_testudo() {
    other_selectors(Kind::Testudo);
}

fn stronger(_: Side, connection: &mut Connection) {
    connection.esp_proposals = "aes256gcm16-x25519".into();
}

fn other_algorithms(peer: Kind) {
    let pair = start("reload-esp", peer);
    let watch = Watch::start(&pair.t);
    change(&pair, [false, true, false], stronger);
    for side in [Side::One, Side::Two] {
        let found = ["encr-keysize", "dh-group"].map(|key| negotiated_at(&pair, side, key));
        assert_eq!(found, ["256", "CURVE_25519"], "{side:?}");
    }
    watch.saw_nothing();
}

#[test]
fn other_algorithms_of_a_child() {
    other_algorithms(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn other_algorithms_of_a_child_with_testudo() {
    other_algorithms(Kind::Testudo);
}

/// Identity and key, and then the algorithms of the IKE SA.
fn anew(peer: Kind) {
    let mut pair = start("reload-ike", peer);
    let watch = Watch::start(&pair.t);
    let renamed = |side: Side, connection: &mut Connection| {
        let name = "gw1.other.example".to_owned();
        *(if side == Side::One { &mut connection.local_id } else { &mut connection.remote_id }) = name;
        connection.psk = "another key that only the lab knows".into();
    };
    change(&pair, [true, true, true], renamed);
    assert_eq!(pair.sas(Side::Two)[0].get("remote-id"), Some("gw1.other.example"));
    pair.await_log("connection lab changed: IKE_SAs set up anew because of local");
    // strongSwan rekeys an IKE SA by the configuration with which it was set up: then it is
    // set up again.
    let anew = peer == Kind::Strongswan;
    change(&pair, [true, anew, anew], |side, connection| {
        renamed(side, connection);
        connection.proposals = "aes256gcm16-prfsha384-ecp384".into();
    });
    for side in [Side::One, Side::Two] {
        assert_eq!(pair.sas(side)[0].get("dh-group"), Some("ECP_384"), "{side:?}");
    }
    watch.saw_nothing();
}

#[test]
fn another_ike_sa() {
    anew(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn another_ike_sa_with_testudo() {
    anew(Kind::Testudo);
}

/// The peer has the old configuration still: so have its SAs, and nothing is lost.
fn refused(peer: Kind) {
    let mut pair = start("reload-no", peer);
    let watch = Watch::start(&pair.t);
    let before = both(&pair);
    under_traffic(&pair, || {
        load(&pair, Side::One, stronger);
        wait_until("the refusal", SETTLED, || {
            let told = pair.one.log()?.contains("the peer answered NO_PROPOSAL_CHOSEN; it stays for now");
            Ok(if told { Ok(()) } else { Err("no such line".to_owned()) })
        })
        .unwrap();
    });
    assert_eq!(both(&pair), before);
    pair.ping_both_ways();
    // With the old configuration all is as it was; the next asks for what both have.
    load(&pair, Side::Two, stronger);
    load(&pair, Side::One, |_, connection| connection.more_child = vec!["replay_window = 64".into()]);
    pair.await_log("connection lab changed: children lab replaced, six kept");
    under_traffic(&pair, || {
        load(&pair, Side::One, stronger);
        await_changed(&pair, &before, [false, true, false]);
    });
    assert_eq!(negotiated(&pair, "encr-keysize"), "256");
    watch.saw_nothing();
}

#[test]
fn a_change_that_the_peer_refuses_keeps_the_old_sa() {
    refused(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn a_change_that_the_peer_refuses_keeps_the_old_sa_with_testudo() {
    refused(Kind::Testudo);
}
