//! `testudo-path-mtu`.

use crate::support::{TestServer, message};
use std::time::Duration;
use testudo_vici::client::Client;

#[test]
fn a_holder_says_what_a_path_takes_until_it_gives_that_back() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(60))).unwrap();
    let held = || server.gateway.lock().unwrap().path_mtus.clone();
    for (remote, mtu, holder) in
        [("192.0.2.2", "1400", "web1"), ("2001:db8::2", "576", "web1"), ("192.0.2.2", "1300", "db")]
    {
        let pairs = [("remote", remote), ("mtu", mtu), ("holder", holder)];
        client.command("testudo-path-mtu", message(&pairs)).unwrap();
    }
    let of = |remote: &str, mtu, holder: &str| (remote.parse().unwrap(), mtu, holder.to_owned());
    let other = of("192.0.2.2", 1300, "db");
    assert_eq!(held(), [of("192.0.2.2", 1400, "web1"), of("2001:db8::2", 576, "web1"), other.clone()]);

    let long = "h".repeat(256);
    for (pairs, why) in [
        (&[("remote", "192.0.2.9"), ("mtu", "1400")][..], "no Child SA goes to 192.0.2.9"),
        (&[("remote", "192.0.2.2")], "mtu: missing, expected a number of octets"),
        (&[("mtu", "1400")], "remote: missing, expected the address of a peer"),
        (&[("remote", "gw"), ("mtu", "1400")], "remote: found \"gw\", expected an IP address"),
        (&[("remote", "192.0.2.2"), ("mtu", "575")], "expected a number of octets from 576 to 65535"),
        (&[("remote", "192.0.2.2"), ("mtu", "65536")], "expected a number of octets from 576 to 65535"),
        (&[("remote", "192.0.2.2"), ("mtu", "1400"), ("df", "1")], "df: unknown key"),
    ] {
        let pairs = [&[("holder", "web1")], pairs].concat();
        let refused = client.command("testudo-path-mtu", message(&pairs)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    for (pairs, why) in [
        (&[][..], "holder: missing, expected a name of up to 255 octets"),
        (&[("remote", "192.0.2.2"), ("mtu", "1400")], "holder: missing"),
        (&[("holder", "")], "holder: found \"\", expected a name of up to 255 octets"),
        (&[("holder", &long)], "expected a name of up to 255 octets"),
    ] {
        let refused = client.command("testudo-path-mtu", message(pairs)).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(held().len(), 3, "what is refused changes nothing");

    client.command("testudo-path-mtu", message(&[("holder", "web1")])).unwrap();
    assert_eq!(held(), [other]);
}
