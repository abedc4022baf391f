//! What `swanctl --list-...` prints.

use super::{CONFIG, code, server_with, stderr, stdout, swanctl};
use crate::support::net_sa;
use testudo_ike::endpoint::{AlgorithmName, IkeSaState};
use testudo_ipsec::sa::{Cipher, EspAlgorithm, Mac};

#[test]
fn list_conns_prints_the_connection() {
    let server = server_with(CONFIG);
    assert_eq!(code(&swanctl(&server, &["--load-all", "--noprompt"])), 0);
    let output = swanctl(&server, &["--list-conns"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "\
gw: IKEv2, no reauthentication, rekeying every 7200s, dpd delay 30s
  local:  192.0.2.1
  remote: 192.0.2.2
  remote: 198.51.100.0/24
  local pre-shared key authentication:
    id: moon.example.org
  remote pre-shared key authentication:
    id: 192.0.2.2
  net: TUNNEL, rekeying every 2147483648 bytes, dpd action is none
    local:  10.1.0.0/16
    remote: 10.2.0.0/16 10.3.0.1..10.3.0.9[tcp/80]
  lan: PASS, no rekeying, dpd action is none
    local:  10.1.0.0/16
    remote: 10.1.0.0/16
"
    );
}

#[test]
fn list_pols_prints_the_policies() {
    let server = server_with(CONFIG);
    assert_eq!(code(&swanctl(&server, &["--load-all", "--noprompt"])), 0);
    let output = swanctl(&server, &["--list-pols", "--trap", "--pass"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("gw/net, TUNNEL"), "{said}");
    assert!(said.contains("gw/lan, PASS"), "{said}");
}

#[test]
fn list_sas_prints_everything() {
    let server = server_with(CONFIG);
    server.gateway.lock().unwrap().sas = vec![net_sa(1)];
    let output = swanctl(&server, &["--list-sas"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(!said.contains("(null)"), "{said}");
    assert!(said.contains("s ago, rekeying in 1") && said.contains("s ago, rekeying in 3"), "{said}");
    assert!(said.contains(", expires in 3"), "{said}");
    let shown: Vec<_> = said.lines().map(without_ages).collect();
    assert_eq!(
        shown,
        [
            "gw: #1, ESTABLISHED, IKEv2, 0102030405060708_i* 1112131415161718_r",
            "  local  'moon.example.org' @ 192.0.2.1[4500]",
            "  remote '192.0.2.2' @ 192.0.2.2[4500]",
            "  AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519",
            "  established",
            "  net: #1, reqid 1, INSTALLED, TUNNEL-in-UDP, ESP:AES_GCM_16-128/CURVE_25519/ESN",
            "    installed",
            "    in  c0decafe,    840 bytes,    10 packets,     1s ago",
            "    out 0badf00d,   1680 bytes,    20 packets,     2s ago",
            "    local  10.1.0.0/16",
            "    remote 10.2.0.0/16 10.3.0.1..10.3.0.9",
        ]
    );
}

#[test]
fn list_sas_prints_cipher_and_mac() {
    let server = server_with(CONFIG);
    for (algorithm, expected) in [
        (
            EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha1_96),
            "ESP:AES_CBC-192/HMAC_SHA1_96/CURVE_25519/ESN",
        ),
        (
            EspAlgorithm::separate(Cipher::Null, Mac::HmacSha256_128),
            "ESP:NULL/HMAC_SHA2_256_128/CURVE_25519/ESN",
        ),
        (EspAlgorithm::Ah(Mac::HmacSha512_256), "AH:HMAC_SHA2_512_256/CURVE_25519/ESN"),
    ] {
        let mut sa = net_sa(1);
        sa.children[0].ah = algorithm.is_ah();
        sa.children[0].encryption = AlgorithmName::encryption(algorithm);
        sa.children[0].integrity = algorithm.integrity().map(AlgorithmName::from);
        server.gateway.lock().unwrap().sas = vec![sa];
        let output = swanctl(&server, &["--list-sas"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let said = stdout(&output);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn list_sas_prints_an_sa_under_way() {
    let server = server_with(CONFIG);
    let mut sa = net_sa(2);
    sa.state = IkeSaState::Connecting;
    sa.connection = None;
    (sa.local_id, sa.remote_id, sa.established) = (None, None, None);
    (sa.encryption, sa.prf, sa.ke, sa.additional_ke) = (None, None, None, [None; 7]);
    sa.initiator = false;
    sa.children.clear();
    server.gateway.lock().unwrap().sas = vec![sa];
    let output = swanctl(&server, &["--list-sas"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "\
(unnamed): #2, CONNECTING, IKEv2, 0102030405060708_i 1112131415161718_r*
  local  '%any' @ 192.0.2.1[4500]
  remote '%any' @ 192.0.2.2[4500]
"
    );
}

/// Ages of SAs depend on the clock.
fn without_ages(line: &str) -> &str {
    ["  established", "    installed"].into_iter().find(|start| line.starts_with(start)).unwrap_or(line)
}

#[test]
fn list_sas_filters_and_streams_thousands() {
    let server = server_with(CONFIG);
    server.gateway.lock().unwrap().sas = (1..=3000).map(net_sa).collect();
    let count = |args: &[&str]| {
        let output = swanctl(&server, args);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output).lines().filter(|line| line.starts_with("gw: #")).count()
    };
    assert_eq!(count(&["--list-sas"]), 3000);
    assert_eq!(count(&["--list-sas", "--ike-id", "17"]), 1);
    assert_eq!(count(&["--list-sas", "--ike", "gw"]), 3000);
    assert_eq!(count(&["--list-sas", "--ike", "other"]), 0);
}
