//! Names that are not ASCII, and what else is said of connections that are loaded all the same.

use crate::support::net_sa;
use crate::swanctl::{CONFIG, code, server_with, stderr, stdout, swanctl};
use testudo_ike::config::Identity;

/// swanctl shows no value that is not printable ASCII; charon sends none.
#[test]
fn names_with_umlauts_are_shown() {
    let dn = "C=DE, O=Köln, CN=Tünnes";
    let server = server_with(&CONFIG.replacen("id = moon.example.org", &format!("id = \"{dn}\""), 1));
    assert_eq!(code(&swanctl(&server, &["--load-all", "--noprompt"])), 0);
    let mut sa = net_sa(1);
    sa.local_id = Some(Identity::Dn(dn.parse().unwrap()));
    sa.remote_id = Some(Identity::Email("jürg@example.org".to_owned()));
    server.gateway.lock().unwrap().sas.push(sa);
    let shown = stdout(&swanctl(&server, &["--list-sas"])) + &stdout(&swanctl(&server, &["--list-conns"]));
    assert!(!shown.contains("(null)") && shown.contains("j??rg@example.org"), "{shown}");
    let expected = "C=DE, O=K??ln, CN=T??nnes";
    assert_eq!(shown.matches(expected).count(), 2, "of the SA and of the connection: {shown}");
}

#[test]
fn keys_without_effect_are_accepted_with_a_warning() {
    let keys = "rekey_bytes = 2g\n policies_fwd_out = yes\n ipcomp = no";
    let server = server_with(&CONFIG.replacen("rekey_bytes = 2g", keys, 1));
    let output = swanctl(&server, &["--load-conns"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let warnings = server.gateway.lock().unwrap().warnings.clone();
    let text = "connections.gw.children.net.policies_fwd_out: yes has no effect: this gateway has no forward \
                policies";
    assert_eq!(warnings, [(Some("gw".to_owned()), text.to_owned())]);
    let output =
        swanctl(&server_with(&CONFIG.replacen("rekey_bytes = 2g", "ipcomp = perhaps", 1)), &["--load-conns"]);
    let why = "connections.gw.children.net.ipcomp: found \"perhaps\", expected yes or no";
    assert!(code(&output) != 0 && stderr(&output).contains(why), "{}", stderr(&output));
}
