//! `testudo status` for a child that should be up: why it is not, when the next attempt is, and
//! what monitoring gets.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::binary;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// The first child that is shown: one that is to be up and is not comes first.
fn first(pair: &Pair) -> serde_json::Value {
    pair.status(Side::One)["children"][0].clone()
}

/// Waits until that child stands like this, with this in what failed last.
fn await_child(pair: &Pair, state: &str, error: &str) -> serde_json::Value {
    wait_until(&format!("a child that is {state} with {error:?}"), SOON, || {
        let child = first(pair);
        let reason = child["last_error"]["reason"].as_str().unwrap_or_default();
        let fits = child["name"] == "lab" && child["state"] == state && reason.contains(error);
        Ok(if fits { Ok(child) } else { Err(child.to_string()) })
    })
    .unwrap()
}

/// The exit code and the text of `testudo status --expect-up`.
fn expect_up(pair: &Pair) -> (Option<i32>, String) {
    let status = pair.t.gw1.cmd(binary("testudo").unwrap()).args(["status", "--expect-up", "--socket"]);
    let done = status.arg(pair.one.socket()).run_any().unwrap();
    (done.status.code(), done.stdout)
}

fn load(pair: &Pair, side: Side, adjust: impl Fn(&mut Connection)) {
    let mut connection = Connection::of(side, Family::V4);
    adjust(&mut connection);
    pair.swanctl(side).load(&connection.to_string()).unwrap();
}

#[test]
fn a_child_that_is_not_up_tells_why() {
    let pair = Scenario::new("children", Kind::Strongswan).impatient().start_empty();
    load(&pair, Side::One, |connection| {
        connection.more_child.push("start_action = start".into());
        let waits = ["local_ts = 10.77.0.0/16", "remote_ts = 10.78.0.0/16", "esp_proposals = aes128gcm16"];
        connection.children.push(("a-passive-one".into(), waits.map(str::to_owned).to_vec()));
    });
    // charon knows no connection.
    let child = await_child(&pair, "waiting", "NO_PROPOSAL_CHOSEN");
    assert!(
        child["expected"] == true && child["next_try"].as_u64().is_some_and(|next| next <= 30),
        "{child}"
    );
    let (code, text) = expect_up(&pair);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("2 children: 1 should be up and is not; 1 "), "{text}");

    // The next try may be of the operator.
    load(&pair, Side::Two, |connection| connection.psk = "another key".into());
    pair.swanctl(Side::One).initiate("lab", UP_LIMIT).unwrap_err();
    await_child(&pair, "waiting", "AUTHENTICATION_FAILED");

    load(&pair, Side::Two, |_| {});
    pair.swanctl(Side::One).initiate("lab", UP_LIMIT).unwrap();
    let children = pair.status(Side::One)["children"].clone();
    let child = &children.as_array().unwrap().iter().find(|child| child["name"] == "lab").unwrap();
    assert!(child["state"] == "up" && child["sas"] == 1 && child["next_try"].is_null(), "{child}");
    assert!(child["silent"].is_u64() && child["since"].is_u64() && child["node"].is_null(), "{child}");
    let (code, text) = expect_up(&pair);
    assert_eq!(code, Some(0), "{text}");

    pair.swanctl(Side::One).terminate("lab").unwrap();
    await_child(&pair, "down", "terminated by request");
    assert_eq!(expect_up(&pair).0, Some(2));
}
