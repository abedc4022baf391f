//! `testudo status` against a daemon that answers from a script.

use crate::support::{self, printed};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use testudo_vici::children::{ChildError, ChildReport, ChildState};
use testudo_vici::codec::Packet;
use testudo_vici::counters::{Counters, PortCounters, PortStatus, WorkerCounters};
use testudo_vici::message::Message;

fn message(pairs: &[(&str, &str)]) -> Message {
    let mut message = Message::new();
    for (key, value) in pairs {
        message.add(key, *value);
    }
    message
}

fn list_sa() -> Message {
    let child = message(&[
        ("name", "net"),
        ("uniqueid", "3"),
        ("state", "INSTALLED"),
        ("encap", "yes"),
        ("spi-in", "c0decafe"),
        ("spi-out", "0badf00d"),
        ("encr-alg", "AES_CBC"),
        ("encr-keysize", "128"),
        ("integ-alg", "HMAC_SHA2_256_128"),
        ("esn", "1"),
        ("bytes-in", "1234567"),
        ("packets-in", "1000"),
        ("use-in", "2"),
        ("bytes-out", "0"),
        ("packets-out", "0"),
        ("install-time", "603"),
    ])
    .with_list("local-ts", ["10.1.0.0/16"])
    .with_list("remote-ts", ["10.2.0.0/16", "10.3.0.0/16"]);
    let sa = message(&[
        ("uniqueid", "1"),
        ("state", "ESTABLISHED"),
        ("local-host", "2001:db8::1"),
        ("local-port", "4500"),
        ("local-id", "moon"),
        ("remote-host", "192.0.2.2"),
        ("remote-port", "4500"),
        ("remote-id", "sun"),
        ("initiator", "yes"),
        ("encr-alg", "AES_GCM_16"),
        ("encr-keysize", "128"),
        ("prf-alg", "PRF_HMAC_SHA2_256"),
        ("dh-group", "CURVE_25519"),
        ("ake1", "ML_KEM_768"),
        ("established", "604"),
    ]);
    let children = Message::new().with_section("net-3", child);
    Message::new().with_section("gw", sa.with_section("child-sas", children))
}

fn counters() -> Counters {
    let named = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    Counters {
        totals: named(&[("opened", 1000), ("protected", 0)]),
        drops: named(&[("no_sa", 12), ("replay", 0)]),
        ike: named(&[("received", 4)]),
        ports: vec![
            PortCounters {
                name: "eth0".to_owned(),
                kind: "xdp".to_owned(),
                rx_packets: 1_000_000,
                rx_bytes: 1_500_000_000,
                tx_packets: 7,
                tx_bytes: 900,
                drops: named(&[("ring_full", 3)]),
                status: PortStatus {
                    state: "up".to_owned(),
                    seconds: 604,
                    why: None,
                    ifindex: Some(2),
                    mtu: Some(1500),
                    speed: Some(10_000),
                    queues: 1,
                    routes: 2,
                    filter: Some("native".to_owned()),
                },
            },
            PortCounters {
                name: "eth1".to_owned(),
                kind: "xdp".to_owned(),
                status: PortStatus {
                    state: "waiting".to_owned(),
                    seconds: 12,
                    why: Some("one queue".to_owned()),
                    ..PortStatus::default()
                },
                ..PortCounters::default()
            },
        ],
        workers: vec![WorkerCounters {
            index: 0,
            cpu: Some(1),
            cipher: "intel-ipsec-mb".to_owned(),
            bursts: 40_000,
            packets: 1_000_000,
            drops: named(&[]),
        }],
        alarms: vec![("replay-burst".to_owned(), 2)],
        inherited: vec!["10.9.0.0/16".to_owned()],
    }
}

/// A child that should be up and is not is in the middle.
fn children() -> Vec<ChildReport> {
    let child = |name: &str, state, expected, sas| ChildReport {
        connection: "gw".to_owned(),
        name: name.to_owned(),
        state,
        expected,
        since: Some(603),
        sas,
        ..ChildReport::default()
    };
    vec![
        ChildReport { silent: Some(2), ..child("net", ChildState::Up, true, 1) },
        ChildReport {
            last_error: Some(ChildError {
                reason: "no answer from 192.0.2.2:500 after 6 transmissions".to_owned(),
                ago: 12,
            }),
            next_try: Some(18),
            ..child("lost", ChildState::Waiting, true, 0)
        },
        child("road", ChildState::Passive, false, 0),
    ]
}

fn answer(packet: Packet) -> Vec<Packet> {
    let Packet::CmdRequest(name, _) = packet else { return vec![Packet::EventConfirm] };
    match name.as_str() {
        "version" => vec![Packet::CmdResponse(message(&[("daemon", "testudod"), ("version", "0.1.0")]))],
        "stats" => vec![Packet::CmdResponse(
            Message::new()
                .with_section(
                    "uptime",
                    message(&[("running", "10 minutes"), ("since", "Nov 21 20:35:00 UTC 2026")]),
                )
                .with_section("ikesas", message(&[("total", "1"), ("half-open", "0")])),
        )],
        "list-sas" => {
            vec![Packet::Event("list-sa".to_owned(), list_sa()), Packet::CmdResponse(Message::new())]
        }
        "testudo-children" => {
            let events = ChildReport::events("gw", &children()).into_iter();
            let events = events.map(|event| Packet::Event("testudo-child".to_owned(), event));
            events.chain([Packet::CmdResponse(Message::new())]).collect()
        }
        "testudo-counters" => vec![Packet::CmdResponse(counters().to_message())],
        other => panic!("unexpected command {other}"),
    }
}

fn testudo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo"));
    command.arg("status").args(args);
    command
}

fn status_at(socket: &Path) -> Output {
    testudo(&[]).arg("--socket").arg(socket).output().unwrap()
}

fn status_of_the_script(args: &[&str]) -> String {
    printed(output_of_the_script(args))
}

fn output_of_the_script(args: &[&str]) -> Output {
    support::answered(&mut testudo(args), answer)
}

#[test]
fn people_get_aligned_text() {
    assert_eq!(
        status_of_the_script(&[]),
        "\
testudod 0.1.0, up 10 minutes (since Nov 21 20:35:00 UTC 2026), 1 IKE SA, 0 half-open

3 children: 1 should be up and is not; 1 up, 1 waiting, 1 passive
CHILD    STATE    EXPECTED   SINCE  SAS  SILENT  NEXT TRY  LAST ERROR
gw/lost  waiting  up        10m 3s    -       -    in 18s  no answer from 192.0.2.2:500 after 6 transmissions (12s ago)
gw/net   up       up        10m 3s    1      2s         -  -
gw/road  passive  -         10m 3s    -       -         -  -

gw #1  ESTABLISHED 10m 4s  initiator  AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519/KE1_ML_KEM_768
  [2001:db8::1]:4500 (moon) === 192.0.2.2:4500 (sun)
  net #3  INSTALLED 10m 3s  ESP AES_CBC-128/HMAC_SHA2_256_128 ESN in UDP
    10.1.0.0/16 === 10.2.0.0/16 10.3.0.0/16
    in   c0decafe  1 000 packets  1.2 MB  last 2s ago
    out  0badf00d      0 packets     0 B  unused

PORT  STATE    FOR     LINK                   QUEUES  ROUTES  FILTER
eth0  up       10m 4s  MTU 1500, 10 000 Mb/s       1       2  native
eth1  waiting  12s     -                           0       0  none
eth1 cannot be used: one queue

PORT  KIND  RX PACKETS  RX BYTES  TX PACKETS  TX BYTES  DROPS
eth0  xdp    1 000 000    1.5 GB           7     900 B  ring_full 3
eth1  xdp            0       0 B           0       0 B  none

WORKER  CPU  CIPHER          BURSTS    PACKETS  PER BURST  DROPS
0         1  intel-ipsec-mb  40 000  1 000 000       25.0  none

Data plane
  opened  1 000

Key exchange
  received  4

Dropped
  no_sa  12

Left by an earlier process or an unloaded connection, dropped until a connection claims them (`testudo shut`):
  10.9.0.0/16
"
    );
}

#[test]
fn programs_get_json() {
    let json: serde_json::Value = serde_json::from_str(&status_of_the_script(&["--json"])).unwrap();
    let at = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {json}")).clone();
    assert_eq!(at("/daemon/version"), "0.1.0");
    assert_eq!((at("/version"), at("/children/0/name")), (1.into(), "lost".into()));
    assert_eq!((at("/children/0/next_try"), at("/children/0/last_error/ago")), (18.into(), 12.into()));
    assert_eq!(at("/children/1/silent"), 2);
    assert_eq!(at("/ike_sas/0/connection"), "gw");
    assert_eq!(at("/ike_sas/0/children/0/inbound/bytes"), 1_234_567);
    assert_eq!(at("/ike_sas/0/children/0/outbound/idle"), serde_json::Value::Null);
    assert_eq!(at("/counters/ports/0/rx_packets"), 1_000_000);
    assert_eq!(at("/counters/ports/0/state"), "up");
    assert_eq!(at("/counters/ports/0/routes"), 2);
    assert_eq!(at("/counters/ports/0/filter"), "native");
    assert_eq!(at("/counters/ports/1/filter"), serde_json::Value::Null);
    assert_eq!(at("/counters/ports/1/why"), "one queue");
    assert_eq!(at("/counters/drops/no_sa"), 12);
    assert_eq!(at("/counters/workers/0/cpu"), 1);
    assert_eq!(at("/counters/inherited/0"), "10.9.0.0/16");
}

#[test]
fn a_child_that_should_be_up_and_is_not_sets_the_exit_code() {
    let output = output_of_the_script(&["--expect-up"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("gw/lost"), "it is shown all the same");
}

/// The keys in the table of docs/reference/status.md.
fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/status.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, json) = text.split_once("\n## JSON\n").expect("a chapter about JSON");
    let rows = json.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let keys = cells.flat_map(|cell| cell.split('`').step_by(2));
    keys.filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Adds the keys of a value to those that were seen, as the table writes them.
fn collect(value: &serde_json::Value, key: &str, documented: &BTreeSet<String>, seen: &mut BTreeSet<String>) {
    let any = format!("{key}.*");
    let has_parts = documented.iter().any(|other| other.starts_with(&format!("{key}.")));
    match value {
        serde_json::Value::Object(_) if documented.contains(&any) => {
            seen.insert(any);
        }
        serde_json::Value::Object(parts) => {
            for (name, part) in parts {
                let inner = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(part, &inner, documented, seen);
            }
        }
        serde_json::Value::Array(elements) => {
            let inner = format!("{key}[]");
            elements.iter().for_each(|element| collect(element, &inner, documented, seen));
        }
        // An object that is not there.
        serde_json::Value::Null if has_parts => {}
        _ => {
            seen.insert(key.to_owned());
        }
    }
}

#[test]
fn the_keys_of_the_json_are_documented() {
    let json: serde_json::Value = serde_json::from_str(&status_of_the_script(&["--json"])).unwrap();
    let documented = documented();
    let mut seen = BTreeSet::new();
    collect(&json, "", &documented, &mut seen);
    let missing: Vec<_> = seen.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&seen).collect();
    assert!(missing.is_empty(), "not in docs/reference/status.md: {missing:?}");
    assert!(gone.is_empty(), "only in docs/reference/status.md: {gone:?}");
}

#[test]
fn an_unreachable_daemon_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vici.sock");
    for (errno, advice) in [("os error 2", "Is testudod running?"), ("os error 111", "nobody listens")] {
        let output = status_at(&socket);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let start = format!("testudo status: cannot connect to testudod at {}: ", socket.display());
        assert!(said.starts_with(&start), "{said}");
        assert!(said.contains(errno) && said.contains(advice), "{said}");
        // A socket without a listener.
        drop(UnixListener::bind(&socket));
    }
}

#[test]
fn a_daemon_that_speaks_something_else_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vici.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 hello\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let output = status_at(&socket);
    daemon.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("packet of 842149920 octets announced, expected 1 to 524288"), "{said}");
}
