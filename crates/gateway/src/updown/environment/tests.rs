use super::super::tests::{child, ike, ts};
use super::*;
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus, NatStatus};

fn runs_of(ike: &IkeSaStatus, child: &ChildSaStatus) -> Vec<Run> {
    runs(Risen { connection: "gw", ike, child, interface: Some("eth0") }, false)
}

fn value<'a>(run: &'a Run, name: &str) -> Option<&'a str> {
    run.variables.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_tunnel_between_networks() {
    let runs = runs_of(&ike(), &child(1));
    let [run] = runs.as_slice() else { panic!("one pair") };
    assert_eq!(run.verb, "client");
    let expected = [
        ("PLUTO_VERSION", "1.1"),
        ("PLUTO_CONNECTION", "net"),
        ("PLUTO_INTERFACE", "eth0"),
        ("PLUTO_REQID", "3"),
        ("PLUTO_PROTO", "esp"),
        ("PLUTO_UNIQUEID", "5"),
        ("PLUTO_ME", "192.0.2.1"),
        ("PLUTO_MY_ID", "moon.example.org"),
        ("PLUTO_MY_CLIENT", "10.1.0.0/16"),
        ("PLUTO_MY_PORT", "0"),
        ("PLUTO_MY_PROTOCOL", "0"),
        ("PLUTO_PEER", "192.0.2.2"),
        ("PLUTO_PEER_ID", "sun.example.org"),
        ("PLUTO_PEER_CLIENT", "10.2.0.0/16"),
        ("PLUTO_PEER_PORT", "0"),
        ("PLUTO_PEER_PROTOCOL", "0"),
    ];
    assert_eq!(run.variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn a_run_for_each_pair_that_a_packet_can_match() {
    let mut child = child(1);
    child.local_ts = vec![ts("192.0.2.1", "192.0.2.1"), ts("fd00::", "fd00::ffff")];
    child.remote_ts = vec![ts("10.2.0.1", "10.2.0.6"), ts("fd01::1", "fd01::1")];
    let runs = runs_of(&ike(), &child);
    let said: Vec<_> = runs
        .iter()
        .map(|run| (run.verb, value(run, "PLUTO_MY_CLIENT"), value(run, "PLUTO_PEER_CLIENT")))
        .collect();
    let v4 = ("host", Some("192.0.2.1/32"), Some("10.2.0.0/29"));
    assert_eq!(said, [v4, ("client-v6", Some("fd00::/112"), Some("fd01::1/128"))]);
    let of = |protocol, port_start, port_end| TrafficSelector {
        protocol,
        port_start,
        port_end,
        ..ts("10.1.0.0", "10.1.255.255")
    };
    child.local_ts = vec![of(6, 80, 80), of(17, 1000, 2000), of(1, 0x0801, 0x0801)];
    child.remote_ts = vec![TrafficSelector { protocol: 6, ..ts("10.2.0.0", "10.2.255.255") }];
    let runs = runs_of(&ike(), &child);
    let ports = |runs: &[Run]| -> Vec<(String, String)> {
        let port = |run, name| value(run, name).unwrap_or_default().to_owned();
        runs.iter().map(|run| (port(run, "PLUTO_MY_PORT"), port(run, "PLUTO_PEER_PORT"))).collect()
    };
    assert_eq!(ports(&runs), [("80".to_owned(), "0".to_owned())], "no packet has two protocols");
    child.remote_ts = vec![ts("10.2.0.0", "10.2.255.255")];
    let runs = runs_of(&ike(), &child);
    let expected = [("80", "0"), ("1000:2000", "0"), ("8", "1")];
    assert_eq!(ports(&runs), expected.map(|(mine, theirs)| (mine.to_owned(), theirs.to_owned())));
}

#[test]
fn what_not_every_tunnel_has() {
    let mut ike = ike();
    ike.local_vips = vec!["10.3.0.1".parse().unwrap(), "fd03::1".parse().unwrap()];
    ike.remote_vips = vec!["fd04::1".parse().unwrap()];
    ike.nat = NatStatus { remote: true, ..NatStatus::default() };
    ike.remote = "192.0.2.2:4500".parse().unwrap();
    let child = ChildSaStatus { ah: true, ..child(1) };
    let runs = runs(Risen { connection: "gw", ike: &ike, child: &child, interface: None }, true);
    for (name, expected) in [
        ("PLUTO_INTERFACE", Some("unknown")),
        ("PLUTO_PROTO", Some("ah")),
        ("PLUTO_MY_SOURCEIP", Some("10.3.0.1")),
        ("PLUTO_MY_SOURCEIP4_1", Some("10.3.0.1")),
        ("PLUTO_MY_SOURCEIP6_1", Some("fd03::1")),
        ("PLUTO_PEER_SOURCEIP", Some("fd04::1")),
        ("PLUTO_PEER_SOURCEIP4_1", None),
        ("PLUTO_PEER_SOURCEIP6_1", Some("fd04::1")),
        ("PLUTO_UDP_ENC", Some("4500")),
        ("PLUTO_HOST_ACCESS", Some("1")),
    ] {
        assert_eq!(value(&runs[0], name), expected, "{name}");
    }
}

/// Who authenticates chooses its identity.
#[test]
fn an_identity_is_harmless() {
    let mut ike = ike();
    ike.remote_id = Some(Identity::Fqdn("a\0b\nPLUTO_ME=c".into()));
    let runs = runs_of(&ike, &child(1));
    assert_eq!(value(&runs[0], "PLUTO_PEER_ID"), Some("a?b?PLUTO_ME=c"));
}
