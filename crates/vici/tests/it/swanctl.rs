//! Debian's `swanctl`, the real one, against the server.

mod listing;

use crate::support::{TestServer, net_sa};
use std::process::{Command, Output};
use std::time::Duration;
use testudo_ike::config::{ChildMode, Connection, Identity, StartAction};
use testudo_vici::control::SetPolicy;

pub(crate) const CONFIG: &str = r#"
connections {
    gw {
        version = 2
        local_addrs = 192.0.2.1
        remote_addrs = 192.0.2.2, 198.51.100.0/24
        proposals = aes128gcm16-prfsha256-x25519, default
        rekey_time = 2h
        dpd_delay = 30s
        mobike = no
        local {
            auth = psk
            id = moon.example.org
        }
        remote {
            auth = psk
            id = 192.0.2.2
        }
        children {
            net {
                local_ts = 10.1.0.0/16
                remote_ts = 10.2.0.0/16, 10.3.0.1-10.3.0.9[tcp/80]
                esp_proposals = aes128gcm16-esn
                rekey_time = 0
                rekey_bytes = 2g
                start_action = trap
            }
            lan {
                mode = pass
                local_ts = 10.1.0.0/16
                remote_ts = 10.1.0.0/16
                start_action = trap
            }
        }
    }
}
secrets {
    ike-gw {
        id-moon = moon.example.org
        id-sun = 192.0.2.2
        secret = 0x0001feff
    }
    ike-text {
        id = sun@example.org
        secret = "with space and \"quotes\""
    }
    ike-base64 {
        secret = 0sAAECAw==
    }
}
"#;

pub(crate) fn server_with(config: &str) -> TestServer {
    let server = TestServer::start();
    configure(&server, config);
    std::fs::write(
        server.dir().join("strongswan.conf"),
        "swanctl { load = pem pkcs1 pkcs8 x509 pubkey openssl random }\n",
    )
    .unwrap();
    server
}

fn configure(server: &TestServer, config: &str) {
    std::fs::write(server.dir().join("swanctl.conf"), config).unwrap();
}

pub(crate) fn swanctl(server: &TestServer, args: &[&str]) -> Output {
    Command::new("swanctl")
        .args(args)
        .arg("--uri")
        .arg(format!("unix://{}", server.socket().display()))
        .env("SWANCTL_DIR", server.dir())
        .env("STRONGSWAN_CONF", server.dir().join("strongswan.conf"))
        .output()
        .expect("swanctl, from the package strongswan-swanctl")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

#[test]
fn load_all_loads_connections_and_secrets() {
    let server = server_with(CONFIG);
    let output = swanctl(&server, &["--load-all", "--noprompt"]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let said = stdout(&output);
    for line in [
        "loaded ike secret 'ike-gw'",
        "loaded ike secret 'ike-text'",
        "loaded ike secret 'ike-base64'",
        "loaded connection 'gw'",
        "successfully loaded 1 connections, 0 unloaded",
    ] {
        assert!(said.contains(line), "{line:?} not in {said}");
    }
    let gateway = server.gateway.lock().unwrap();
    let conn = &gateway.connections[0];
    assert_eq!(conn.local.id, Some(Identity::Fqdn("moon.example.org".to_owned())));
    assert_eq!(conn.remote.id, Some(Identity::Addr("192.0.2.2".parse().unwrap())));
    assert_eq!(conn.dpd_delay, Duration::from_secs(30));
    assert_eq!(conn.proposals.len(), 3);
    assert_eq!(conn.remote_addrs.len(), 2);
    let [net, lan] = conn.children.as_slice() else { panic!("two children") };
    assert_eq!((net.mode, net.start_action), (ChildMode::Tunnel, StartAction::Trap));
    assert_eq!(net.proposals[0].esn, [true]);
    assert_eq!((lan.mode, lan.proposals.len()), (ChildMode::Pass, 0));
    let keys: Vec<_> = gateway.secrets.iter().map(|secret| secret.secret.as_slice()).collect();
    assert_eq!(keys, [&[0, 1, 0xfe, 0xff][..], b"with space and \"quotes\"", &[0, 1, 2, 3]]);
    assert_eq!(gateway.secrets[0].owners.len(), 2);
    assert!(gateway.secrets[2].owners.is_empty(), "a secret without id is everybody's");
}

#[test]
fn a_second_load_unloads_what_is_gone() {
    let server = server_with(CONFIG);
    assert_eq!(code(&swanctl(&server, &["--load-all", "--noprompt"])), 0);
    std::fs::write(server.dir().join("swanctl.conf"), "connections {\n}\nsecrets {\n}\n").unwrap();
    let output = swanctl(&server, &["--load-all", "--noprompt"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("no connections found, 1 unloaded"), "{}", stdout(&output));
    let gateway = server.gateway.lock().unwrap();
    assert!(gateway.connections.is_empty());
    assert!(gateway.secrets.is_empty());
}

#[test]
fn load_creds_clear_and_load_conns_work_alone() {
    let server = server_with(CONFIG);
    assert_eq!(code(&swanctl(&server, &["--load-creds", "--clear", "--noprompt"])), 0);
    assert_eq!(server.gateway.lock().unwrap().secrets.len(), 3);
    assert_eq!(code(&swanctl(&server, &["--load-conns"])), 0);
    assert_eq!(server.gateway.lock().unwrap().connections.len(), 1);
    for args in [["--load-pools"], ["--load-authorities"]] {
        let output = swanctl(&server, &args);
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn pools_are_loaded_listed_with_their_leases_and_unloaded() {
    let pools = "pools {\n road {\n addrs = 10.3.0.0/24\n dns = 10.1.0.53, fd00:1::53\n subnet = 10.1.0.0/16\n }\n}\n";
    let server = server_with(&format!("{CONFIG}{pools}"));
    assert_eq!(code(&swanctl(&server, &["--load-pools"])), 0);
    let pool = server.gateway.lock().unwrap().pools[0].clone();
    assert_eq!(pool.base.to_string(), "10.3.0.0");
    assert_eq!(
        (pool.addrs.start().to_string(), pool.addrs.end().to_string()),
        ("10.3.0.1".into(), "10.3.0.254".into())
    );
    assert_eq!(pool.dns.len(), 2);
    assert_eq!(pool.subnets, [("10.1.0.0".parse().unwrap(), 16)]);
    let listed = stdout(&swanctl(&server, &["--list-pools", "--leases"]));
    for part in
        ["road", "10.3.0.0", "1 / 1 / 254", "10.3.0.1", "online", "'carol'", "10.3.0.2", "offline", "'dave'"]
    {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
    assert!(!stdout(&swanctl(&server, &["--list-pools"])).contains("carol"));
    for (key, expected) in [
        ("nbns = 10.1.0.9", "pools.road.nbns: found \"10.1.0.9\", but a WINS server is not supported"),
        (
            "split_exclude = 10.9.0.0/16",
            "pools.road.split_exclude: found \"10.9.0.0/16\", but an excluded subnet is not",
        ),
        ("28673 = 1", "pools.road.28673: unknown key"),
        ("dns = here", "pools.road.dns: found \"here\", expected an address"),
        ("subnet = 10.1.0.1-10.1.0.9", "pools.road.subnet: found \"10.1.0.1-10.1.0.9\", expected a subnet"),
    ] {
        configure(&server, &format!("pools {{\n road {{\n addrs = 10.3.0.0/24\n {key}\n }}\n}}\n"));
        let output = swanctl(&server, &["--load-pools"]);
        assert!(code(&output) != 0 && stderr(&output).contains(expected), "{key}: {}", stderr(&output));
    }
    configure(&server, CONFIG);
    assert_eq!(code(&swanctl(&server, &["--load-pools"])), 0);
    assert!(server.gateway.lock().unwrap().pools.is_empty());
}

/// The names of what is loaded do not fit into an answer: what is in the file is loaded all the
/// same.
#[test]
fn load_all_works_beside_very_many_connections_and_secrets() {
    let server = server_with(CONFIG);
    let output = swanctl(&server, &["--load-all", "--noprompt"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    {
        let mut gateway = server.gateway.lock().unwrap();
        let (connection, secret) = (gateway.connections.remove(0), gateway.secrets.remove(0));
        let numbers = 0..40_000;
        gateway.connections = numbers
            .clone()
            .map(|n| Connection { name: format!("connection-{n}"), ..connection.clone() })
            .collect();
        let named = |n| {
            let mut secret = secret.clone();
            secret.name = format!("secret-{n}");
            secret
        };
        gateway.secrets = numbers.map(named).collect();
    }
    let output = swanctl(&server, &["--load-all", "--noprompt"]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let gateway = server.gateway.lock().unwrap();
    assert!(gateway.connections.iter().any(|connection| connection.name == "gw"));
    assert_eq!((gateway.connections.len(), gateway.secrets.len()), (40_001, 40_003));
}

#[test]
fn an_unknown_key_is_refused_by_its_path() {
    for (config, message) in [
        (
            CONFIG.replace("esp_proposals =", "esp_proposal ="),
            "connections.gw.children.net.esp_proposal: unknown key",
        ),
        (CONFIG.replace("mobike = no", "mobile = no"), "connections.gw.mobile: unknown key"),
        (CONFIG.replace("id = moon", "name = moon"), "connections.gw.local.name: unknown key"),
        (
            CONFIG.replace("mobike = no", "mobike = yes"),
            "connections.gw.mobike: found \"yes\", but MOBIKE is not supported; expected no",
        ),
        (
            CONFIG.replace("192.0.2.2, 198.51.100.0/24", "192.0.2"),
            "connections.gw.remote_addrs: found \"192.0.2\", expected an address, a subnet, a range, a DNS name or \
             %any",
        ),
    ] {
        let server = server_with(&config);
        let output = swanctl(&server, &["--load-conns"]);
        assert_ne!(code(&output), 0);
        let said = stderr(&output);
        let line = format!("loading connection 'gw' failed: {message}");
        assert!(said.contains(&line), "{line:?} not in {said}");
        assert!(server.gateway.lock().unwrap().connections.is_empty());
    }
}

#[test]
fn initiate_shows_the_log_and_the_result() {
    let server = server_with(CONFIG);
    let output = swanctl(&server, &["--initiate", "--child", "net"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "[IKE] initiating IKE_SA gw[1] to 192.0.2.2\n[IKE] CHILD_SA net{1} established\n\
         initiate completed successfully\n"
    );
    let output = swanctl(&server, &["--initiate", "--child", "net", "--loglevel", "2"]);
    assert!(stdout(&output).contains("[IKE] a detail\n"));
}

#[test]
fn initiate_tells_why_it_failed() {
    let server = server_with(CONFIG);
    for (child, why) in [
        ("dead", "establishing CHILD_SA 'dead' failed: no answer from 192.0.2.2:500 after 6 transmissions"),
        ("absent", "establishing CHILD_SA 'absent' failed: no connection has a child of that name"),
    ] {
        let output = swanctl(&server, &["--initiate", "--child", child]);
        assert_eq!(code(&output), 1);
        assert_eq!(stderr(&output), format!("initiate failed: {why}\n"));
    }
}

#[test]
fn initiate_gives_up_when_its_time_is_over() {
    let server = server_with(CONFIG);
    let output = swanctl(&server, &["--initiate", "--child", "slow", "--timeout", "1"]);
    assert_eq!(code(&output), 1);
    assert_eq!(
        stderr(&output),
        "initiate failed: CHILD_SA 'slow' not established after 1000ms: initiating IKE_SA gw[1] to 192.0.2.2\n"
    );
}

#[test]
fn terminate_reports_what_matched() {
    let server = server_with(CONFIG);
    server.gateway.lock().unwrap().sas = vec![net_sa(1)];
    let output = swanctl(&server, &["--terminate", "--ike", "gw"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(stdout(&output), "[IKE] deleting IKE_SA gw[1]\nterminate completed successfully\n");
    let output = swanctl(&server, &["--terminate", "--ike", "gw"]);
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "terminate failed: no matching SAs to terminate found\n");
}

#[test]
fn terminate_of_very_many_shows_each() {
    let server = server_with(CONFIG);
    server.gateway.lock().unwrap().sas = (1..=20_000).map(net_sa).collect();
    let output = swanctl(&server, &["--terminate", "--ike", "gw"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert_eq!(said.lines().filter(|line| line.starts_with("[IKE] deleting IKE_SA gw[")).count(), 20_000);
    assert!(said.ends_with("terminate completed successfully\n"));
}

#[test]
fn version_and_stats_are_complete() {
    let server = server_with(CONFIG);
    let output = swanctl(&server, &["--version", "--daemon"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stdout(&output).contains("strongSwan 0.1.0 testudod (Linux, 6.18.5, x86_64)"),
        "{}",
        stdout(&output)
    );
    let output = swanctl(&server, &["--stats"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "\
uptime: 10 minutes, since Nov 21 20:35:00 UTC 2026
worker threads: 4 total, 3 idle, working: 1/0/0/0
job queues: 0/0/0/0
jobs scheduled: 7
IKE_SAs: 2 total, 1 half-open
loaded plugins: intel-ipsec-mb xdp
"
    );
}

#[test]
fn other_commands_answer_instead_of_hanging() {
    let server = server_with(CONFIG);
    for (args, code_expected, text) in [
        (vec!["--list-certs"], 0, ""),
        (vec!["--list-authorities"], 0, ""),
        (vec!["--list-pools"], 0, ""),
        (vec!["--list-algs"], 0, "AES_GCM_16"),
        (vec!["--list-algs"], 0, "dh:\n  CURVE_25519[testudo]"),
        (vec!["--list-algs"], 0, "HASH_SHA2_384"),
        (vec!["--flush-certs"], 0, ""),
        (vec!["--rekey", "--ike", "gw"], 1, "no matching SAs to rekey found"),
        (vec!["--rekey", "--ike", "gw", "--reauth"], 1, "no matching SAs to rekey found"),
        (vec!["--install", "--child", "net"], 0, "install completed successfully"),
        (vec!["--uninstall", "--child", "net", "--ike", "gw"], 0, "uninstall completed successfully"),
        (vec!["--install", "--child", "absent"], 1, "no connection has a child of that name"),
        (vec!["--counters", "--name", "gw"], 1, "no counters found for this connection"),
        (vec!["--redirect", "--ike", "gw", "--gateway", "192.0.2.9"], 1, "redirecting is not supported yet"),
        (vec!["--reload-settings"], 0, ""),
    ] {
        let output = swanctl(&server, &args);
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(code(&output) != 0, code_expected != 0, "{args:?}: {said}");
        assert!(said.contains(text), "{args:?}: {said}");
    }
    let gateway = server.gateway.lock().unwrap();
    let asked = |ike: Option<&str>, install| SetPolicy {
        child: "net".to_owned(),
        ike: ike.map(str::to_owned),
        install,
    };
    assert_eq!(gateway.policies, [asked(None, true), asked(Some("gw"), false)]);
    assert_eq!(gateway.reloads, 1);
}
