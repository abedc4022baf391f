//! The server without a socket: registrations, order of answers, jobs.

use crate::support::rig::{Rig, at, command, register, secret, unregister};
use crate::support::{TestServer, message, net_sa};
use std::time::Duration;
use testudo_ike::output::IkeSaId;
use testudo_vici::client::Client;
use testudo_vici::codec::Packet;
use testudo_vici::control::Control;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;
use testudo_vici::processors::Processors;
use testudo_vici::server::LogLine;
use testudo_vici::{CommandError, Error};

#[test]
fn registrations_are_confirmed() {
    let mut rig = Rig::new();
    assert_eq!(rig.exchange(&register("list-sa")), Packet::EventConfirm);
    assert_eq!(rig.exchange(&register("list-sa")), Packet::EventConfirm, "again is no error");
    assert_eq!(rig.exchange(&unregister("list-sa")), Packet::EventConfirm);
    assert_eq!(rig.exchange(&unregister("list-sa")), Packet::EventUnknown, "not registered");
    assert_eq!(rig.exchange(&register("no-such-event")), Packet::EventUnknown);
    assert_eq!(rig.exchange(&command("no-such-command", &[])), Packet::CmdUnknown);
}

#[test]
fn only_registered_clients_get_events() {
    let mut rig = Rig::new();
    let sa = net_sa(1);
    rig.server.ike_updown(true, &sa, at(5));
    assert!(rig.receive().is_empty());
    rig.exchange(&register("ike-updown"));
    rig.exchange(&register("child-updown"));
    rig.exchange(&register("log"));
    rig.server.ike_updown(true, &sa, at(5));
    rig.server.child_updown(false, &sa, &sa.children[0], at(5), &rig.gateway);
    rig.server.log(LogLine { level: 1, ike: Some(IkeSaId(1)), connection: Some("gw"), message: "hello" });
    rig.server.log(LogLine { level: 2, ike: None, connection: None, message: "a detail" });
    let packets = rig.receive();
    let [Packet::Event(up, ike), Packet::Event(down, child), Packet::Event(log, line)] = packets.as_slice()
    else {
        panic!("{packets:?}");
    };
    assert_eq!([up.as_str(), down, log], ["ike-updown", "child-updown", "log"]);
    assert_eq!(ike.text("up"), Some("yes"));
    assert_eq!(ike.section("gw").unwrap().text("established"), Some("5"));
    assert!(ike.section("gw").unwrap().section("child-sas").is_none());
    assert_eq!(child.text("up"), None);
    let children = child.section("gw").unwrap().section("child-sas").unwrap();
    assert_eq!(children.section("net-1").unwrap().text("bytes-out"), Some("1680"));
    assert_eq!(line.text("msg"), Some("hello"));
    assert_eq!(line.text("ikesa-uniqueid"), Some("1"));
}

#[test]
fn a_second_request_waits_for_the_answer_to_the_first() {
    let mut rig = Rig::new();
    rig.send(&command("initiate", &[("child", "net")])).unwrap();
    rig.send(&command("version", &[])).unwrap();
    assert!(rig.receive().is_empty());
    let (job, _) = rig.gateway.initiations[0];
    rig.server.finish_initiate(job, Ok(()));
    let packets = rig.receive();
    let [Packet::CmdResponse(first), Packet::CmdResponse(second)] = packets.as_slice() else {
        panic!("{packets:?}");
    };
    assert_eq!(first.text("success"), Some("yes"));
    assert_eq!(second.text("daemon"), Some("testudod"));
    rig.server.finish_initiate(job, Ok(()));
    assert!(rig.receive().is_empty(), "a job ends once");
}

#[test]
fn log_lines_go_to_who_waits_at_the_wanted_level() {
    let mut rig = Rig::new();
    rig.exchange(&register("control-log"));
    rig.send(&command("initiate", &[("ike", "gw"), ("loglevel", "0")])).unwrap();
    let (job, _) = rig.gateway.initiations[0];
    for level in [0, 1] {
        rig.server.control_log(job, LogLine { level, ike: None, connection: None, message: "line" });
    }
    let packets = rig.receive();
    let [Packet::Event(name, line)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(
        (name.as_str(), line.text("level"), line.text("group")),
        ("control-log", Some("0"), Some("IKE"))
    );
    rig.server.finish_initiate(job, Err(CommandError::new("refused")));
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(answer.text("errmsg"), Some("establishing IKE_SA 'gw' failed: refused"));
}

#[test]
fn timeouts_end_jobs() {
    let mut rig = Rig::new();
    rig.gateway.sas = vec![net_sa(1)];
    rig.now = at(10);
    rig.send(&command("terminate", &[("ike-id", "1"), ("timeout", "2000")])).unwrap();
    assert_eq!(rig.server.next_deadline(), Some(at(12)));
    rig.server.handle_deadline(at(11));
    assert!(rig.receive().is_empty());
    assert_eq!(rig.server.handle_deadline(at(12)), ["1 SA not terminated after 2000ms"]);
    assert_eq!(rig.server.next_deadline(), None);
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(answer.text("errmsg"), Some("terminating SA failed"));
    assert_eq!((answer.text("matches"), answer.text("terminated")), (Some("1"), Some("0")));

    let answer = rig.request("initiate", message(&[("child", "net"), ("timeout", "-1")]));
    assert_eq!(answer.text("success"), Some("yes"), "-1 does not wait");
    let answer = rig.request("terminate", message(&[("child", "net"), ("timeout", "-1")]));
    assert_eq!((answer.text("success"), answer.text("terminated")), (Some("yes"), Some("1")));
}

/// A failed command is an event of the gateway, whichever client asked for it.
#[test]
fn refused_commands_are_told_to_the_gateway() {
    let mut rig = Rig::new();
    let bad = Message::new().with_section("gw", Message::new().with("no_such_key", "x"));
    let answer = rig.request("load-conn", bad);
    let why = answer.text("errmsg").unwrap().to_owned();
    assert_eq!(rig.gateway.refusals, [format!("load-conn: {why}")]);
    let answer = rig.request("initiate", message(&[("child", "absent")]));
    let why = answer.text("errmsg").unwrap().to_owned();
    assert_eq!(rig.gateway.refusals[1..], [format!("initiate: {why}")]);
    rig.request("unload-conn", message(&[("name", "absent")]));
    rig.request("terminate", message(&[("child", "absent")]));
    assert_eq!(rig.gateway.refusals.len(), 2, "that nothing is there to go is no event");
    for (command, arguments) in [
        ("terminate", &[][..]),
        ("install", &[("child", "absent")]),
        ("uninstall", &[("child", "absent")]),
        ("unload-pool", &[("name", "busy")]),
    ] {
        let answer = rig.request(command, message(arguments));
        let why = answer.text("errmsg").unwrap();
        assert_eq!(rig.gateway.refusals.last(), Some(&format!("{command}: {why}")));
    }
    assert_eq!(rig.gateway.refusals.len(), 6);
}

/// No client waits for it any more, and the log reports its last state.
#[test]
fn an_initiation_whose_time_is_over_says_what_was_last_heard_of_it() {
    let mut rig = Rig::new();
    rig.send(&command("initiate", &[("child", "net"), ("timeout", "1000")])).unwrap();
    let (job, _) = rig.gateway.initiations[0];
    let line = |level, message| LogLine { level, ike: None, connection: None, message };
    rig.server.control_log(job, line(1, "no answer from 192.0.2.2:500 yet"));
    rig.server.control_log(job, line(2, "a detail"));
    rig.receive();
    let expected = "CHILD_SA 'net' not established after 1000ms: no answer from 192.0.2.2:500 yet";
    assert_eq!(rig.server.handle_deadline(at(1)), [expected]);
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(answer.text("errmsg"), Some(expected));
    assert!(rig.server.handle_deadline(at(2)).is_empty());
}

#[test]
fn a_job_outlives_its_client() {
    let mut rig = Rig::new();
    rig.send(&command("initiate", &[("child", "net"), ("timeout", "1000")])).unwrap();
    let (job, _) = rig.gateway.initiations[0];
    rig.server.disconnect(rig.client);
    assert_eq!(rig.server.next_deadline(), None);
    rig.server.control_log(job, LogLine { level: 0, ike: None, connection: None, message: "line" });
    rig.server.finish_initiate(job, Ok(()));
    assert_eq!(rig.server.clients().count(), 0);
    assert!(matches!(rig.server.receive(rig.client, b"", at(0), &mut rig.gateway), Err(Error::Closed)));
}

#[test]
fn arguments_are_decoded_strictly() {
    let mut rig = Rig::new();
    for (name, arguments, errmsg) in [
        ("initiate", &[("child", "net"), ("chld", "x")][..], "initiate.chld: unknown key"),
        (
            "initiate",
            &[("child", "net"), ("timeout", "soon")],
            "initiate.timeout: found \"soon\", expected a number",
        ),
        ("initiate", &[("child", "net"), ("child", "x")], "initiate.child: given more than once"),
        ("initiate", &[], "missing configuration name"),
        ("terminate", &[], "missing terminate selector"),
        (
            "terminate",
            &[("ike", "gw"), ("force", "maybe")],
            "terminate.force: found \"maybe\", expected yes or no",
        ),
        ("terminate", &[("ike", "gw")], "no matching SAs to terminate found"),
        ("unload-conn", &[], "unload-conn.name: missing, expected the name of a connection"),
        ("unload-conn", &[("name", "x")], "unload: connection 'x' not found"),
        ("unload-shared", &[], "unload-shared.id: missing, expected the identifier of a secret"),
        ("list-sas", &[("ike-id", "-1")], "list-sas.ike-id: found \"-1\", expected a decimal number"),
        ("version", &[("x", "y")], "version.x: unknown key"),
        ("load-cert", &[("type", "X509")], "load-cert.data: missing, expected the certificate"),
        (
            "load-cert",
            &[("type", "OCSP_RESPONSE"), ("data", "x")],
            "load-cert.type: found \"OCSP_RESPONSE\", but this type is not supported; expected X509, X509_CRL or PUBKEY",
        ),
        ("load-key", &[("type", "any")], "load-key.data: missing, expected the key"),
        (
            "load-key",
            &[("type", "bliss"), ("data", "x")],
            "load-key.type: found \"bliss\", but keys of this type are not supported; expected any, rsa, ecdsa or \
             ed25519",
        ),
        (
            "unload-key",
            &[("id", "0g")],
            "unload-key.id: found \"0g\", expected the identifier of a key, in hexadecimal digits",
        ),
        ("unload-key", &[("id", "00")], "key not found"),
        ("unload-authority", &[("name", "x")], "unload: authority 'x' not found"),
        ("load-pool", &[], "pools: missing, expected exactly one pool"),
        ("unload-pool", &[], "unload-pool.name: missing, expected the name of a pool"),
        (
            "unload-pool",
            &[("name", "busy")],
            "pool busy has 1 online leases, and cannot be replaced or unloaded",
        ),
    ] {
        assert_eq!(rig.errmsg(name, arguments), errmsg);
    }
    assert!(rig.gateway.initiations.is_empty());
}

#[test]
fn the_lists_that_swanctl_compares_are_there() {
    let mut rig = Rig::new();
    rig.gateway.load_secret(secret("ike-1")).unwrap();
    for (command, list, items) in [
        ("get-conns", "conns", vec![]),
        ("get-shared", "keys", vec!["ike-1"]),
        ("get-keys", "keys", vec![]),
        ("get-authorities", "authorities", vec![]),
    ] {
        let answer = rig.request(command, Message::new());
        assert!(answer.list(list).is_some(), "{command}");
        assert_eq!(answer.texts(list).collect::<Vec<_>>(), items, "{command}");
    }
    assert!(rig.request("get-pools", Message::new()).is_empty());
    assert_eq!(rig.request("unload-shared", message(&[("id", "ike-1")])).text("success"), Some("yes"));
    assert!(rig.gateway.secrets.is_empty());
}

#[test]
fn malformed_octets_end_the_connection() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b"\0\0\0\x01\x01", b"\0\0\0\x01\x07"] {
        let mut rig = Rig::new();
        let result = rig.server.receive(rig.client, bytes, at(0), &mut rig.gateway);
        assert!(result.is_err(), "{bytes:?}");
    }
}

/// Text in another encoding than UTF-8, as an editor may have written it. The client goes on with
/// what else it has to load.
#[test]
fn a_name_that_is_not_utf_8_is_refused_and_the_session_goes_on() {
    let mut rig = Rig::new();
    for (message, command) in [(&b"\x01\x03J\xfcr\x02"[..], "load-conn"), (b"\x03\x03k\xe9y\0\0", "version")]
    {
        let mut packet = vec![0, u8::try_from(command.len()).unwrap()];
        packet.extend([command.as_bytes(), message].concat());
        let len = u32::try_from(packet.len()).unwrap().to_be_bytes();
        let octets = [&len[..], &packet].concat();
        rig.server.receive(rig.client, &octets, at(0), &mut rig.gateway).unwrap();
    }
    let packets = rig.receive();
    let [Packet::CmdResponse(load), Packet::CmdResponse(version)] = packets.as_slice() else {
        panic!("{packets:?}");
    };
    let why = "load-conn: found the name \"J\\xfcr\", expected UTF-8";
    assert_eq!((load.text("success"), load.text("errmsg")), (Some("no"), Some(why)));
    assert_eq!(version.text("success"), Some("no"));
    assert_eq!(rig.gateway.refusals, [format!("load-conn: {why}")], "the log has it");
    assert_eq!(rig.request("version", Message::new()).text("daemon"), Some("testudod"));
    // The name of a command is none of an operator's.
    let result = rig.server.receive(rig.client, b"\0\0\0\x03\0\x01\xfc", at(0), &mut rig.gateway);
    assert!(matches!(result, Err(Error::NameEncoding { .. })), "{result:?}");
}

#[test]
fn the_client_speaks_to_the_server() {
    let server = TestServer::start();
    server.gateway.lock().unwrap().sas = (1..=700).map(net_sa).collect();
    let mut client = Client::connect(&server.socket()).unwrap();
    client.set_timeout(Some(Duration::from_secs(20))).unwrap();
    let sas = client.stream("list-sas", "list-sa", Message::new()).unwrap();
    assert_eq!(sas.len(), 700);
    assert!(matches!(client.request("none", Message::new()), Err(Error::UnknownCommand(_))));
    assert!(matches!(client.register("none"), Err(Error::UnknownEvent(_))));
    client.register("control-log").unwrap();
    let why = client.command("initiate", message(&[("child", "dead")])).unwrap_err();
    assert!(why.to_string().contains("no answer from 192.0.2.2:500"), "{why}");
    let (name, line) = client.next_event().unwrap();
    assert_eq!(
        (name.as_str(), line.text("msg")),
        ("control-log", Some("initiating IKE_SA gw[1] to 192.0.2.2"))
    );
    client.command("initiate", message(&[("child", "net")])).unwrap();
    let processors = client.request("testudo-processors", Message::new()).unwrap();
    let expected = Processors { count: 2, busy: Duration::from_millis(70) };
    assert_eq!(Processors::from_message(&processors).unwrap(), expected);
    let counters = client.request("testudo-counters", Message::new()).unwrap();
    let counters = Counters::from_message(&counters).unwrap();
    assert_eq!(counters, server.gateway.lock().unwrap().counters());
}
