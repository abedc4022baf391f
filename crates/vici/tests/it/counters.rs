//! Counters of exchanges as `swanctl --counters` shows them.

use crate::support::TestServer;
use crate::swanctl::{CONFIG, code, server_with, stderr, stdout, swanctl};
use testudo_ike::endpoint::ExchangeCounter;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

fn counting() -> TestServer {
    let server = server_with(CONFIG);
    let counted = [
        (None, ExchangeCounter::IkeInitInReq),
        (Some("gw"), ExchangeCounter::IkeAuthInReq),
        (Some("gw"), ExchangeCounter::IkeAuthInReq),
    ];
    for (connection, counter) in counted {
        server.gateway.lock().unwrap().exchanges.count(connection, counter);
    }
    server
}

fn shown(server: &TestServer, args: &[&str]) -> Vec<String> {
    let output = swanctl(server, &[&["--counters"], args].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    let counted = said.lines().filter(|line| !line.ends_with(" : 0"));
    counted.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn counters_of_the_daemon_one_and_every_connection() {
    let server = counting();
    assert_eq!(shown(&server, &[]), ["global:", "ike-init-in-req : 1", "ike-auth-in-req : 2"]);
    assert_eq!(shown(&server, &["--name", "gw"]), ["gw:", "ike-auth-in-req : 2"]);
    assert_eq!(shown(&server, &["--all"]), ["gw:", "ike-auth-in-req : 2"]);
    let output = swanctl(&server, &["--counters"]);
    assert_eq!(stdout(&output).lines().count(), 22, "each of charon's counters has its line");
}

#[test]
fn reset_apart() {
    let server = counting();
    assert_eq!(shown(&server, &["--reset"]), ["reset-counters completed successfully"]);
    assert_eq!(shown(&server, &[]), ["global:"]);
    assert_eq!(shown(&server, &["--name", "gw"]), ["gw:", "ike-auth-in-req : 2"]);
    shown(&server, &["--reset", "--all"]);
    let output = swanctl(&server, &["--counters", "--name", "gw"]);
    assert_ne!(code(&output), 0);
    assert_eq!(stderr(&output), "get-counters failed: no counters found for this connection\n");
}

#[test]
fn too_many_for_one_answer_are_refused() {
    let server = TestServer::start();
    for n in 0..3000 {
        let name = format!("connection-{n}");
        server.gateway.lock().unwrap().exchanges.count(Some(&name), ExchangeCounter::InfoInReq);
    }
    let mut client = Client::connect(&server.socket()).unwrap();
    let error = client.command("get-counters", Message::new().with("all", "yes")).unwrap_err();
    assert!(error.to_string().contains("VICI carries 524288 at most"), "{error}");
    client.command("get-counters", Message::new().with("name", "connection-7")).unwrap();
}
