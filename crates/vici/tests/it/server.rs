//! The server without a socket: registrations, order of answers, jobs, bounds.

use crate::support::{Gateway, TestServer, message, net_sa};
use std::time::Duration;
use testudo_ike::config::Pool;
use testudo_ike::output::{IkeSaId, Time};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::codec::{Deframer, MAX_PACKET, MAX_READ, Packet};
use testudo_vici::control::Control;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;
use testudo_vici::server::{ClientId, LogLine, Server};
use testudo_vici::session::Session;

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

/// A server, a gateway and one client, without anything between them.
struct Rig {
    server: Server,
    gateway: Gateway,
    client: ClientId,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        let mut server = Server::new();
        let client = server.connect().unwrap();
        Self { server, gateway: Gateway::default(), client, now: at(0) }
    }

    fn send(&mut self, packet: &Packet) -> Result<(), Error> {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes).unwrap();
        bytes.chunks(MAX_READ).try_for_each(|chunk| {
            assert!(self.server.wants_input(self.client));
            self.server.receive(self.client, chunk, self.now, &mut self.gateway)
        })
    }

    /// All packets that wait for the client, who reads as much as there is.
    fn receive(&mut self) -> Vec<Packet> {
        let mut deframer = Deframer::default();
        let mut packets = Vec::new();
        loop {
            let output = self.server.poll_output(self.client, self.now, &mut self.gateway).unwrap();
            let len = output.len().min(MAX_READ);
            deframer.push(&output[..len]).unwrap();
            self.server.sent(self.client, len);
            if len == 0 && !self.server.is_busy(self.client) {
                return packets;
            }
            while let Some(bytes) = deframer.next_packet().unwrap() {
                packets.push(Packet::parse(&bytes).unwrap());
            }
        }
    }

    fn exchange(&mut self, packet: &Packet) -> Packet {
        self.send(packet).unwrap();
        let mut packets = self.receive();
        assert_eq!(packets.len(), 1, "{packets:?}");
        packets.remove(0)
    }

    fn request(&mut self, name: &str, arguments: Message) -> Message {
        match self.exchange(&Packet::CmdRequest(name.to_owned(), arguments)) {
            Packet::CmdResponse(message) => message,
            other => panic!("{other:?}"),
        }
    }

    fn errmsg(&mut self, name: &str, arguments: &[(&str, &str)]) -> String {
        let answer = self.request(name, message(arguments));
        assert_eq!(answer.text("success"), Some("no"), "{name}");
        answer.text("errmsg").unwrap().to_owned()
    }
}

fn register(event: &str) -> Packet {
    Packet::EventRegister(event.to_owned())
}

fn unregister(event: &str) -> Packet {
    Packet::EventUnregister(event.to_owned())
}

fn command(name: &str, arguments: &[(&str, &str)]) -> Packet {
    Packet::CmdRequest(name.to_owned(), message(arguments))
}

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
fn only_a_client_that_asks_gets_events() {
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
    rig.server.finish_initiate(job, Err("refused".to_owned()));
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
    rig.server.handle_deadline(at(12));
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
            "load-cert.type: found \"OCSP_RESPONSE\", but this type is not supported; expected X509 or X509_CRL",
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

fn secret(name: &str) -> testudo_ike::config::SharedSecret {
    testudo_ike::config::SharedSecret {
        name: name.to_owned(),
        kind: Default::default(),
        owners: Vec::new(),
        secret: b"key".to_vec(),
    }
}

#[test]
fn a_stream_waits_for_a_slow_reader() {
    let mut rig = Rig::new();
    rig.gateway.sas = (1..=5000).map(net_sa).collect();
    rig.exchange(&register("list-sa"));
    rig.send(&command("list-sas", &[])).unwrap();
    let waiting = rig.server.poll_output(rig.client, at(0), &mut rig.gateway).unwrap().len();
    assert!(waiting < MAX_PACKET, "{waiting} octets for a client that reads nothing");
    let packets = rig.receive();
    assert_eq!(packets.len(), 5001);
    assert_eq!(packets.last(), Some(&Packet::CmdResponse(Message::new())));
}

/// A reader as fast as the answer is made must not keep the host from everything else until the end of the answer.
#[test]
fn a_long_stream_is_made_in_small_parts_however_fast_its_reader() {
    for (events, arguments, most) in [
        (&["list-sa"][..], &[][..], 10_000),
        (&["list-sa"], &[("ike", "nobody")], 10_000),
        (&[], &[], 0),
        (&["list-sa"], &[("ike-id", "77")], 1),
    ] {
        let mut rig = Rig::new();
        rig.gateway.sas = (1..=10_000).map(net_sa).collect();
        events.iter().for_each(|event| assert_eq!(rig.exchange(&register(event)), Packet::EventConfirm));
        rig.send(&command("list-sas", arguments)).unwrap();
        let (mut looks, mut made) = (0, 0);
        loop {
            let len = rig.server.poll_output(rig.client, at(0), &mut rig.gateway).unwrap().len();
            let asked = rig.gateway.asked.take();
            assert!(asked <= 256, "{asked} SAs described at one look");
            (looks, made) = (looks + 1, made + asked);
            rig.server.sent(rig.client, len);
            if !rig.server.is_busy(rig.client) {
                break;
            }
        }
        assert_eq!(made, most, "{arguments:?}");
        assert!(looks > most / 256, "{looks}");
        assert_eq!(rig.request("version", Message::new()).text("daemon"), Some("testudod"));
    }
}

#[test]
fn an_ike_sa_with_many_children_comes_in_parts() {
    let mut rig = Rig::new();
    let mut sa = net_sa(1);
    let mut child = sa.children.remove(0);
    child.remote_ts = vec![child.remote_ts[0]; 255];
    for number in 0..400 {
        child.id = testudo_ike::output::ChildSaId(number);
        sa.children.push(child.clone());
    }
    rig.gateway.sas = vec![sa];
    rig.exchange(&register("list-sa"));
    rig.send(&command("list-sas", &[])).unwrap();
    let packets = rig.receive();
    assert!(packets.len() > 3, "{} packets", packets.len());
    let children = packets.iter().filter_map(|packet| match packet {
        Packet::Event(_, message) => Some(message.section("gw")?.section("child-sas")?.elements().len()),
        _ => None,
    });
    assert_eq!(children.sum::<usize>(), 400);
}

fn long_lines(rig: &mut Rig, octets: usize) {
    let text = "x".repeat(10_000);
    for _ in 0..=octets / text.len() {
        rig.server.log(LogLine { level: 0, ike: None, connection: None, message: &text });
    }
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let mut rig = Rig::new();
    rig.exchange(&register("log"));
    long_lines(&mut rig, Session::MAX_BACKLOG);
    let mut written = |seconds, len| {
        let result = rig.server.poll_output(rig.client, at(seconds), &mut rig.gateway).map(<[u8]>::len);
        rig.server.sent(rig.client, len);
        result
    };
    assert!(written(100, 0).is_ok());
    assert!(written(109, 1).is_ok(), "it has time, and reads");
    assert!(written(110, 0).is_ok());
    assert!(written(119, 0).is_ok());
    assert!(matches!(written(120, 0), Err(Error::Backlog { most: Session::MAX_BACKLOG, .. })));
}

#[test]
fn a_client_that_hardly_reads_does_not_fill_the_memory() {
    let mut rig = Rig::new();
    rig.exchange(&register("log"));
    long_lines(&mut rig, Session::MOST_BACKLOG);
    let result = rig.server.poll_output(rig.client, at(0), &mut rig.gateway);
    assert!(matches!(result, Err(Error::Backlog { most: Session::MOST_BACKLOG, .. })));
}

/// What the gateway says of 20 000 SAs that go comes before the client can read a word of it.
#[test]
fn a_client_that_ends_many_sas_hears_of_each() {
    const SAS: u64 = 20_000;
    let mut rig = Rig::new();
    rig.gateway.sas = (1..=SAS).map(net_sa).collect();
    for event in ["control-log", "log", "ike-updown", "child-updown"] {
        rig.exchange(&register(event));
    }
    rig.send(&command("terminate", &[("ike", "gw")])).unwrap();
    let (job, _) = rig.gateway.terminations[0];
    for sa in &rig.gateway.sas {
        let message = format!("IKE_SA gw[{}] closed: deleted by us", sa.id.0);
        let line = LogLine { level: 1, ike: Some(sa.id), connection: Some("gw"), message: &message };
        rig.server.control_log(job, line);
        rig.server.log(line);
        rig.server.child_updown(false, sa, &sa.children[0], at(5), &rig.gateway);
        rig.server.ike_updown(false, sa, at(5));
    }
    rig.server.finish_terminate(job, SAS as u32);
    let packets = rig.receive();
    assert_eq!(packets.len(), 4 * SAS as usize + 1);
    let Some(Packet::CmdResponse(answer)) = packets.last() else { panic!("{:?}", packets.last()) };
    assert_eq!((answer.text("success"), answer.text("terminated")), (Some("yes"), Some("20000")));
}

#[test]
fn a_client_that_does_not_wait_is_held_back() {
    let mut rig = Rig::new();
    rig.send(&command("initiate", &[("child", "net")])).unwrap();
    let mut bytes = Vec::new();
    command("version", &[]).encode(&mut bytes).unwrap();
    let burst = bytes.repeat(MAX_READ / bytes.len());
    let mut reads = 0;
    while rig.server.wants_input(rig.client) {
        rig.server.receive(rig.client, &burst, at(0), &mut rig.gateway).unwrap();
        reads += 1;
    }
    assert!((8..=10).contains(&reads), "{reads}");
    let result = rig.server.receive(rig.client, &vec![0; MAX_READ * 2], at(0), &mut rig.gateway);
    assert!(matches!(result, Err(Error::Flood { .. })));
}

#[test]
fn the_longest_packet_is_read_in_pieces() {
    let mut rig = Rig::new();
    let longest = |last: usize| {
        let mut arguments = Message::new();
        for len in [65_535; 7].into_iter().chain([last]) {
            arguments.add("k", vec![b'x'; len]);
        }
        Packet::CmdRequest("version".to_owned(), arguments)
    };
    // The packet's type and name take 9 octets, each key with its lengths 5.
    let last = MAX_PACKET - 9 - 7 * (65_535 + 5) - 5;
    assert!(longest(last + 1).encode(&mut Vec::new()).is_err());
    rig.send(&longest(last)).unwrap();
    let packets = rig.receive();
    let [Packet::CmdResponse(answer)] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!(answer.text("errmsg"), Some("version.k: given more than once"));
}

/// `--load-all` begins by asking for the names of all that is loaded.
#[test]
fn an_answer_that_fits_no_packet_is_a_refusal_and_the_session_goes_on() {
    let mut rig = Rig::new();
    for number in 0..40_000 {
        rig.gateway.secrets.push(secret(&format!("secret-{number}")));
    }
    let why = rig.errmsg("get-shared", &[]);
    assert_eq!(why, "the answer takes 588898 octets, and VICI carries 524288 at most");
    rig.gateway.secrets.truncate(30_000);
    assert_eq!(rig.request("get-shared", Message::new()).texts("keys").count(), 30_000);

    let pools = Message::new().with_section("road", Message::new().with("addrs", "10.3.0.0/24"));
    let pool = testudo_vici::schema::pool(&pools).unwrap();
    rig.gateway.pools = (0..40_000).map(|n| Pool { name: format!("road-{n}"), ..pool.clone() }).collect();
    for leases in [&[][..], &[("leases", "yes")]] {
        assert!(rig.errmsg("get-pools", leases).contains("VICI carries 524288 at most"));
    }
    let one = message(&[("leases", "yes"), ("name", "road-7")]);
    assert!(rig.request("get-pools", one).section("road-7").is_some());
}

#[test]
fn clients_are_bounded() {
    let mut server = Server::new();
    for _ in 0..Server::MAX_CLIENTS {
        server.connect().unwrap();
    }
    assert!(matches!(server.connect(), Err(Error::TooManyClients { .. })));
}

#[test]
fn what_is_no_vici_ends_the_connection() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b"\0\0\0\x01\x01", b"\0\0\0\x01\x07"] {
        let mut rig = Rig::new();
        let result = rig.server.receive(rig.client, bytes, at(0), &mut rig.gateway);
        assert!(result.is_err(), "{bytes:?}");
    }
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
    let counters = client.request("testudo-counters", Message::new()).unwrap();
    let counters = Counters::from_message(&counters).unwrap();
    assert_eq!(counters, server.gateway.lock().unwrap().counters());
}
