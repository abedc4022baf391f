//! The server's bounds: long answers, slow readers, floods.

use crate::support::rig::{Rig, at, command, register, secret};
use crate::support::{message, net_sa};
use testudo_ike::config::Pool;
use testudo_vici::Error;
use testudo_vici::codec::{MAX_PACKET, MAX_READ, Packet};
use testudo_vici::message::Message;
use testudo_vici::server::{LogLine, Server};
use testudo_vici::session::Session;

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

/// A reader as fast as the answer is made must not keep the host from everything else until the end
/// of the answer.
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
    long_lines(&mut rig, Session::SOFT_MAX_BACKLOG);
    let mut written = |seconds, len| {
        let result = rig.server.poll_output(rig.client, at(seconds), &mut rig.gateway).map(<[u8]>::len);
        rig.server.sent(rig.client, len);
        result
    };
    assert!(written(100, 0).is_ok());
    assert!(written(109, 1).is_ok(), "it has time, and reads");
    assert!(written(110, 0).is_ok());
    assert!(written(119, 0).is_ok());
    assert!(matches!(written(120, 0), Err(Error::Backlog { most: Session::SOFT_MAX_BACKLOG, .. })));
}

#[test]
fn a_client_that_hardly_reads_does_not_fill_the_memory() {
    let mut rig = Rig::new();
    rig.exchange(&register("log"));
    long_lines(&mut rig, Session::HARD_MAX_BACKLOG);
    let result = rig.server.poll_output(rig.client, at(0), &mut rig.gateway);
    assert!(matches!(result, Err(Error::Backlog { most: Session::HARD_MAX_BACKLOG, .. })));
}

/// The gateway sends events about 20 000 deleted SAs before the client can read any of them.
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
