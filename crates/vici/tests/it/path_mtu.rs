//! `testudo-path-mtu`.

use crate::support::{TestServer, message};
use std::time::Duration;
use testudo_vici::client::Client;

#[test]
fn the_gateway_is_told_what_a_path_takes() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(60))).unwrap();
    for (remote, mtu) in [("192.0.2.2", "1400"), ("2001:db8::2", "576")] {
        client.command("testudo-path-mtu", message(&[("remote", remote), ("mtu", mtu)])).unwrap();
    }
    let expected = [("192.0.2.2".parse().unwrap(), 1400), ("2001:db8::2".parse().unwrap(), 576)];
    assert_eq!(server.gateway.lock().unwrap().path_mtus, expected);
    for (pairs, why) in [
        (&[("remote", "192.0.2.9"), ("mtu", "1400")][..], "no Child SA goes to 192.0.2.9"),
        (&[("remote", "192.0.2.2")], "mtu: missing, expected a number of octets"),
        (&[("mtu", "1400")], "remote: missing, expected the address of a peer"),
        (&[("remote", "gw"), ("mtu", "1400")], "remote: found \"gw\", expected an IP address"),
        (&[("remote", "192.0.2.2"), ("mtu", "575")], "expected a number of octets from 576 to 65535"),
        (&[("remote", "192.0.2.2"), ("mtu", "65536")], "expected a number of octets from 576 to 65535"),
        (&[("remote", "192.0.2.2"), ("mtu", "1400"), ("df", "1")], "df: unknown key"),
    ] {
        let refused = client.command("testudo-path-mtu", message(pairs)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
}
