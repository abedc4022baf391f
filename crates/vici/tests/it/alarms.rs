//! `testudo-alarms`, and the event `testudo-alarm`.

use crate::support::rig::{Rig, register};
use crate::support::{TestServer, message};
use std::time::Duration;
use testudo_vici::alarms::{AlarmPage, AlarmReport};
use testudo_vici::client::Client;
use testudo_vici::codec::Packet;

#[test]
fn the_server_asks_for_the_alarms_above_a_number() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(60))).unwrap();
    for (pairs, last) in [(&[][..], 1), (&[("above", "41")], 42)] {
        let answer = client.request("testudo-alarms", message(pairs)).unwrap();
        assert_eq!(AlarmPage::from_message(&answer).unwrap().last, last);
    }
    for (key, value) in [("above", "-1"), ("all", "yes")] {
        let refused = client.request("testudo-alarms", message(&[(key, value)])).unwrap();
        assert_eq!(refused.text("success"), Some("no"));
        assert!(refused.text("errmsg").unwrap().contains(key), "{refused:?}");
    }
}

#[test]
fn a_client_that_asks_for_it_hears_of_each_alarm() {
    let mut rig = Rig::new();
    let alarm = AlarmReport { number: 7, kind: "spi-scan".into(), ..AlarmReport::default() };
    rig.server.alarm("raised", &alarm);
    rig.exchange(&register("testudo-alarm"));
    rig.server.alarm("ended", &alarm);
    let packets = rig.receive();
    let [Packet::Event(name, message)] = &packets[..] else { panic!("{packets:?}") };
    assert_eq!((name.as_str(), message.text("state")), ("testudo-alarm", Some("ended")));
    assert_eq!(message.section("7").unwrap().text("kind"), Some("spi-scan"));
}

#[test]
fn a_source_is_accepted_again_for_a_user() {
    let server = TestServer::start();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(60))).unwrap();
    for pairs in [&[("source", "192.0.2.7"), ("by", "ada")][..], &[("source", "2001:db8::1")]] {
        client.command("testudo-accept", message(pairs)).unwrap();
    }
    let accepted = server.gateway.lock().unwrap().accepted.clone();
    let (v4, v6) = ("192.0.2.7".parse().unwrap(), "2001:db8::1".parse().unwrap());
    assert_eq!(accepted, [(v4, Some("ada".to_owned())), (v6, None)]);
    for (pairs, why) in [
        (&[][..], "source"),
        (&[("source", "192.0.2.0/24")], "192.0.2.0/24"),
        (&[("source", "192.0.2.9")], "not dropped"),
        (&[("source", "192.0.2.7"), ("by", "a\nb")], "control characters"),
    ] {
        let refused = client.request("testudo-accept", message(pairs)).unwrap();
        assert_eq!(refused.text("success"), Some("no"));
        assert!(refused.text("errmsg").unwrap().contains(why), "{refused:?}");
    }
}
