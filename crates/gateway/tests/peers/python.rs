//! strongSwan's Python client, from PyPI: what automation and monitoring use in the place of
//! swanctl.

use crate::common::Scenario;
use std::path::Path;
use std::time::Duration;
use testudo_lab::Lab;
use testudo_lab::command::Cmd;
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const CLIENT: &str = "vici==6.0.3";

/// Fetches the client. The namespaces of the lab have no way to PyPI, so this happens outside.
fn client(lab: &Lab) -> std::path::PathBuf {
    let dir = lab.subdir("python").unwrap();
    let pip =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"];
    Cmd::new("/usr/bin/python3")
        .args(pip)
        .arg("--target")
        .arg(&dir)
        .arg(CLIENT)
        .limit(Duration::from_secs(180))
        .run()
        .unwrap();
    dir
}

#[test]
fn the_python_client_drives_the_gateway() {
    let pair = Scenario::new("python", Kind::Testudo).start_empty();
    let peer = Connection::of(Side::Two, Family::V4);
    pair.swanctl(Side::Two).load(&peer.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/python_vici.py");
    let networks = [Side::One, Side::Two].map(|side| side.network(Family::V4));
    let done = pair
        .t
        .gw1
        .cmd("/usr/bin/python3")
        .env("PYTHONPATH", client(pair.t.gw1.lab()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(&script)
        .arg(pair.one.socket())
        .args([peer.remote_addr.to_string(), peer.local_addr.to_string()])
        .args(&networks)
        .limit(Duration::from_secs(120))
        .run()
        .unwrap();
    assert_eq!(done.stdout.trim(), "everything answered");
}
