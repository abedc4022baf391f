//! `testudo shut` and `testudo release` against a daemon that answers from a script.

use crate::support::{self, printed};
use std::process::{Command, Output};
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;
use testudo_vici::shut::{Cause, ClearFrom, Released, ShutPage, ShutPrefix};

fn shut(prefix: &str, cause: Cause, protected_by: &[&str]) -> ShutPrefix {
    ShutPrefix {
        prefix: prefix.to_owned(),
        own_side: false,
        cause,
        since: "2026-11-26T21:00:00Z".to_owned(),
        from: ClearFrom::Dropped,
        protected_by: protected_by.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The first page, and the one behind it.
fn page(behind: Option<&str>) -> ShutPage {
    let clustered = true;
    match behind {
        None => {
            let first = shut("10.2.0.0/16", Cause::ConnectionUnloaded("gw".into()), &[]);
            ShutPage { clustered, more: true, prefixes: vec![first] }
        }
        Some("10.2.0.0/16") => {
            let cause = Cause::ConnectionUnloaded("all".into());
            let own = ShutPrefix { own_side: true, ..shut("10.79.0.1/32", cause, &[]) };
            let last = shut("fd00::/8", Cause::EarlierRun, &["connection b"]);
            ShutPage { clustered, more: false, prefixes: vec![last, own] }
        }
        Some(other) => panic!("unexpected page behind {other}"),
    }
}

fn answer(packet: Packet) -> Message {
    let Packet::CmdRequest(name, arguments) = packet else { panic!("a command") };
    match (name.as_str(), arguments.text("prefix")) {
        ("testudo-shut", None) => page(arguments.text("behind")).to_message(),
        ("testudo-release", Some("10.9.0.0/16")) => {
            Message::new().with("success", "no").with("errmsg", "10.9.0.0/16 is not shut")
        }
        ("testudo-release", Some("10.2.0.0/16")) => {
            assert_eq!((arguments.text("by"), arguments.text("check")), (Some("alice"), None));
            Released { clustered: true, inside: 2 }.to_message()
        }
        other => panic!("unexpected command {other:?}"),
    }
}

fn testudo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo"));
    command.args(args).env("SUDO_USER", "alice");
    command
}

fn answered(args: &[&str]) -> Output {
    support::answered(&mut testudo(args), |packet| vec![Packet::CmdResponse(answer(packet))])
}

fn shown(args: &[&str]) -> String {
    printed(answered(args))
}

#[test]
fn people_get_a_table_of_all_pages() {
    assert_eq!(
        shown(&["shut"]),
        "\
Clear packets to these prefixes are dropped, although no loaded connection asks for it:

PREFIX       SINCE                 BECAUSE                          CLEAR FROM THERE  PROTECTED BY
10.2.0.0/16  2026-11-26T21:00:00Z  connection gw was unloaded       dropped           -
fd00::/8     2026-11-26T21:00:00Z  left by an earlier testudod run  dropped           connection b

Clear packets to our own addresses in these prefixes are dropped, because a former full tunnel had them on our side:

PREFIX        SINCE                 BECAUSE                      CLEAR FROM THERE  PROTECTED BY
10.79.0.1/32  2026-11-26T21:00:00Z  connection all was unloaded  dropped           -

`testudo release PREFIX` lets one pass that nothing protects.
This is what is shut on the node that was asked: each node of the cluster has its own.
"
    );
}

#[test]
fn programs_get_json() {
    let shown: serde_json::Value = serde_json::from_str(&shown(&["shut", "--json"])).unwrap();
    let at = |path: &str| shown.pointer(path).cloned().unwrap_or_default();
    assert_eq!(at("/clustered"), true);
    assert_eq!(at("/prefixes/0/prefix"), "10.2.0.0/16");
    assert_eq!(at("/prefixes/0/reason"), "connection-unloaded");
    assert_eq!(at("/prefixes/0/name"), "gw");
    assert_eq!(at("/prefixes/0/since"), "2026-11-26T21:00:00Z");
    assert_eq!(at("/prefixes/0/from"), "dropped");
    assert_eq!(at("/prefixes/1/reason"), "earlier-run");
    assert_eq!(at("/prefixes/1/name"), serde_json::Value::Null);
    assert_eq!(at("/prefixes/1/protected_by/0"), "connection b");
    assert_eq!([0, 1, 2].map(|n| at(&format!("/prefixes/{n}/own_side"))), [false, false, true]);
    assert_eq!(at("/prefixes/2/prefix"), "10.79.0.1/32");
    assert_eq!(at("/prefixes/3"), serde_json::Value::Null);
}

#[test]
fn a_release_tells_what_passes_and_what_does_not() {
    assert_eq!(
        shown(&["release", "10.2.0.0/16", "--yes"]),
        "\
Clear traffic of 10.2.0.0/16 passes, but for 2 prefixes inside it that stay shut.
On this node alone: `testudo shut` at the others tells where it is shut too.
"
    );
    let json: serde_json::Value =
        serde_json::from_str(&shown(&["release", "10.2.0.0/16", "--yes", "--json"])).unwrap();
    let expected = serde_json::json!({ "prefix": "10.2.0.0/16", "clustered": true, "inside": 2 });
    assert_eq!(json, expected);

    let refused = answered(&["release", "10.9.0.0/16", "--yes"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("10.9.0.0/16 is not shut"));
}

/// Without a terminal for a confirmation, and with an unclear argument, the daemon is not asked
/// either: there is none here.
#[test]
fn nothing_is_released_unasked() {
    for (args, complaint) in [
        (
            &["release", "10.2.0.0/16"][..],
            "standard input is no terminal, so it cannot be confirmed: use --yes",
        ),
        (&["release", "10.2.0.1/16", "--yes"], "expected 10.2.0.0/16"),
        (&["release", "10.2.0/16", "--yes"], "expected ADDRESS/LENGTH or ADDRESS"),
        (&["release", "--yes"], "PREFIX"),
    ] {
        let refused = testudo(args).arg("--socket").arg("/nowhere").output().unwrap();
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains(complaint), "{said}, expected {complaint}");
    }
}
