//! Impossible configurations are reported clearly: by the command, and in the log.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::net::{IpAddr, Ipv4Addr};
use testudo_lab::command::Finished;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side, WIRE_PORTS};

impl Pair {
    /// `swanctl --initiate` at that side, which must fail; all that it says.
    fn refused(&self, side: Side) -> String {
        let args = ["--initiate", "--child", "lab", "--timeout", "10"];
        failed(self.swanctl(side).cmd(args).run_any().unwrap())
    }
}

fn failed(done: Finished) -> String {
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(!done.status.success(), "{said}");
    said
}

/// Refusals of one kind, by one peer: how the configurations differ, and what we must say of it as
/// initiator (to swanctl and in the log) and as responder (in the log).
struct Case {
    name: &'static str,
    spoil: fn(&mut Connection),
    initiator: &'static str,
    responder: &'static str,
    /// Whether the IKE SA comes up although the Child SA does not.
    ike_stays: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "psk",
        spoil: |connection| connection.psk = "another key".into(),
        initiator: "the peer answered AUTHENTICATION_FAILED (is the shared key the same, and does the peer know our \
                    identity?)",
        responder: "gw2.lab.example does not hold our shared key",
        ike_stays: false,
    },
    Case {
        name: "ike",
        spoil: |connection| connection.proposals = "aes256gcm16-prfsha384-ecp256".into(),
        initiator: "NO_PROPOSAL_CHOSEN: the peer takes none of our proposals \
                    IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519",
        responder: "no common IKE proposal with 192.0.2.2:500: offered IKE:AES_GCM_16_256/PRF_HMAC_SHA2_384/ECP_256, \
                    configured for lab IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519",
        ike_stays: false,
    },
    Case {
        name: "esp",
        spoil: |connection| connection.esp_proposals = "aes256gcm16".into(),
        initiator: "the peer answered NO_PROPOSAL_CHOSEN (do esp_proposals agree with the peer's?)",
        responder: "no common ESP proposal: offered ESP:AES_GCM_16_256/NO_EXT_SEQ, configured for lab \
                    ESP:AES_GCM_16_128/NO_EXT_SEQ",
        ike_stays: true,
    },
    Case {
        name: "ts",
        spoil: |connection| {
            connection.local_ts = vec!["10.9.0.0/24".into()];
            connection.remote_ts = vec!["10.8.0.0/24".into()];
        },
        initiator: "the peer answered TS_UNACCEPTABLE (do local_ts and remote_ts agree with the peer's?)",
        responder: "no child carries 10.8.0.0/24 === 10.9.0.0/24",
        ike_stays: true,
    },
];

fn refusals(peer: Kind) {
    let pair = &mut Scenario::new("refusals", peer).impatient().start();
    let watch = Watch::start(&pair.t);
    for case in CASES {
        let mut spoilt = Connection::of(Side::Two, Family::V4);
        (case.spoil)(&mut spoilt);
        pair.swanctl(Side::Two).load(&spoilt.to_string()).unwrap();

        let said = pair.refused(Side::One);
        assert!(said.contains(case.initiator), "{}: {said}", case.name);
        pair.await_log(case.initiator);
        forget(pair, case.ike_stays);

        pair.refused(Side::Two);
        pair.await_log(case.responder);
        forget(pair, case.ike_stays);
    }
    // After all that, the right configuration works.
    pair.swanctl(Side::Two).load(&Connection::of(Side::Two, Family::V4).to_string()).unwrap();
    pair.up(Side::One);
    watch.saw_nothing();
}

/// Nothing of a failed attempt may be left to hinder the next one.
fn forget(pair: &Pair, ike_stays: bool) {
    for side in [Side::One, Side::Two] {
        let sas = pair.sas(side);
        assert!(sas.iter().all(|sa| sa.children.is_empty()), "{sas:?}");
        assert_eq!(!sas.is_empty(), ike_stays, "{sas:?}");
    }
    if ike_stays {
        pair.swanctl(Side::One).terminate("lab").unwrap();
    }
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 0, SOON);
    }
}

#[test]
fn by_and_to_strongswan() {
    refusals(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn by_and_to_testudo() {
    refusals(Kind::Testudo);
}

#[test]
fn an_unreachable_peer_is_named() {
    let mut pair = Scenario::new("unreachable", Kind::Testudo).impatient().start();
    pair.t.wire.ip(&format!("link set {} down", WIRE_PORTS[1])).unwrap();
    let text = "no answer from 192.0.2.2:500 after 3 transmissions";
    let said = pair.refused(Side::One);
    assert!(said.contains("retransmit 2 of request with message ID 0"), "{said}");
    assert!(said.contains(&format!("establishing CHILD_SA 'lab' failed: {text}")), "{said}");
    pair.await_log(&format!("establishing CHILD_SA lab of lab failed: {text}"));
    assert_eq!(pair.sas(Side::One), []);
}

/// A local send error is not the peer's silence: swanctl reports it with every attempt, and at the
/// end.
#[test]
fn a_send_error_is_reported() {
    let mut pair = Scenario::new("unsent", Kind::Testudo).impatient().start();
    const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    let cases: [(fn(&mut Connection), _, _); 2] = [
        (
            |connection| connection.remote_addr = NOWHERE,
            "from 192.0.2.1:500 to 203.0.113.9:500: Network is unreachable (os error 101)",
            "203.0.113.9",
        ),
        (
            |connection| connection.local_addr = NOWHERE,
            "from 203.0.113.9:500 to 192.0.2.2:500: Network is unreachable (os error 101); this host has no address 203.0.113.9",
            "192.0.2.2",
        ),
    ];
    for (spoil, problem, remote) in cases {
        let mut connection = Connection::of(Side::One, Family::V4);
        spoil(&mut connection);
        pair.one.swanctl().load(&connection.to_string()).unwrap();
        let said = pair.refused(Side::One);
        assert_eq!(said.matches(&format!("cannot send {problem}")).count(), 3, "{said}");
        let error = problem.split_once(": ").unwrap().1;
        let text = format!(
            "no answer from {remote}:500 after 3 transmissions, the last of which could not be sent: {error}"
        );
        assert!(said.contains(&format!("establishing CHILD_SA 'lab' failed: {text}")), "{said}");
        pair.await_log(&text);
    }
}

/// `--timeout` ends the wait, not the attempt.
#[test]
fn a_timeout_of_swanctl_says_so() {
    let pair = Scenario::new("timeout", Kind::Testudo).start();
    pair.t.wire.ip(&format!("link set {} down", WIRE_PORTS[1])).unwrap();
    let args = ["--initiate", "--child", "lab", "--timeout", "1"];
    let said = failed(pair.one.swanctl().cmd(args).limit(SOON).run_any().unwrap());
    assert!(said.contains("CHILD_SA 'lab' not established after 1000ms"), "{said}");
    assert_eq!(pair.sas(Side::One)[0].state, "CONNECTING");
}

/// A connection with a mistake changes nothing; a peer's own mistake in the other role is its own
/// business.
#[test]
fn a_connection_is_refused_by_key_and_changes_nothing() {
    let pair = Scenario::new("config", Kind::Testudo).start();
    pair.up(Side::One);
    let good = Connection::of(Side::One, Family::V4);
    let with = |change: &dyn Fn(&mut Connection)| {
        let mut connection = good.clone();
        change(&mut connection);
        connection.to_string()
    };
    let cases = [
        (with(&|c| c.more = vec!["colour = blue".into()]), "connections.lab.colour: unknown key"),
        (
            with(&|c| c.more_child = vec!["interface = eth0".into()]),
            "connections.lab.children.lab.interface: found \"eth0\", but binding a policy to an interface is not supported",
        ),
        (
            with(&|c| c.esp_proposals = "aes128gcm16-aes128-sha256".into()),
            "connections.lab.children.lab.esp_proposals: found \"aes128gcm16-aes128-sha256\", but AEADs and other \
             ciphers cannot stand in one proposal; expected two proposals",
        ),
        (
            with(&|c| c.esp_proposals = "null".into()),
            "connections.lab.children.lab.esp_proposals: found \"null\", but AES-CBC and NULL need an integrity \
             algorithm; expected one such as sha256",
        ),
        (
            with(&|c| c.remote_ts = vec!["10.2.0.0/33".into()]),
            "connections.lab.children.lab.remote_ts: found \"10.2.0.0/33\", expected a subnet",
        ),
    ];
    for (text, expected) in cases {
        pair.one.swanctl().write_conf(&text).unwrap();
        let said = failed(pair.one.swanctl().cmd(["--load-all", "--noprompt"]).run_any().unwrap());
        assert!(said.contains(expected), "{said}");
        let shown = pair.one.swanctl().run(["--list-conns"]).unwrap().stdout;
        assert!(shown.contains("10.2.0.0/24"), "{shown}");
        pair.ping_from(Side::One, Family::V4, 56);
    }
    let said = pair.one.swanctl().cmd(["--initiate", "--child", "other"]).run_any().unwrap();
    let said = failed(said);
    assert!(said.contains("no child is named other"), "{said}");
    assert!(matches!(pair.two, Gateway::Testudo(_)));
}
