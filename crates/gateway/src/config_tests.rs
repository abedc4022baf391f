//! Every way to get `testudo.toml` wrong is answered with file, line, key, found and expected.

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("t.toml"), text).map_err(|e| e.to_string())
}

const PORTS: &str = "[[port]]\ninterface = \"eth0\"\n";

#[test]
fn a_full_file_is_read() {
    let config = parse(
        "instance = \"gw1\"\nlegacy = true\n[vici]\nsocket = \"/tmp/v\"\n[log]\nlevel = \"debug\"\n\
         [[port]]\ninterface = \"outer0\"\n[[port]]\ninterface = \"inner0\"\nxdp = \"generic\"\n\
         source_check = false\n\
         [worker]\ncpu = 1\ncipher = \"aws-lc\"\nframes = 8_192\n[tun]\nname = \"tun9\"\n\
         [ike]\nretransmit_timeout_ms = 500\nretransmit_tries = 3\ncookie_threshold = 7\nkeepalive_interval = 0\n\
         ike_sas_per_peer = 9\n",
    )
    .unwrap();
    assert_eq!(config.instance, "gw1");
    assert!(config.legacy);
    assert_eq!(config.vici_socket, Path::new("/tmp/v"));
    assert_eq!(config.log_level, tracing::Level::DEBUG);
    assert_eq!(config.ports[1].interface, "inner0");
    assert_eq!(config.ports[1].mode, XdpMode::Generic);
    assert_eq!([0, 1].map(|n: usize| config.ports[n].source_check), [true, false]);
    assert_eq!(config.worker, WorkerSettings { cpu: Some(1), cipher: Cipher::AwsLc, frames: 8192 });
    assert_eq!(config.tun, "tun9");
    assert_eq!(config.ike.retransmit_timeout, Duration::from_millis(500));
    assert_eq!((config.ike.retransmit_tries, config.ike.cookie_threshold), (3, 7));
    assert_eq!(config.ike.keepalive_interval, Duration::ZERO);
    assert_eq!(config.ike.ike_sas_per_peer, 9);
}

#[test]
fn defaults_need_only_a_port() {
    let config = parse(PORTS).unwrap();
    assert_eq!(config.instance, "default");
    assert!(!config.legacy);
    assert_eq!(config.tun, "testudo0");
    assert_eq!(config.worker.cipher, Cipher::Auto);
}

#[test]
fn complaints_name_file_line_key_found_and_expected() {
    let cases = [
        ("", "t.toml:1: port: found nothing, expected at least one [[port]]"),
        ("\n[[port]]\n", "t.toml:2: port[0].interface: found nothing, expected the name of"),
        (
            "[[port]]\ninterfase = \"a\"\n",
            "t.toml:2: port[0].interfase: found an unknown key holding a string, expected one of interface, xdp",
        ),
        (
            "[[ports]]\ninterface = \"a\"\n",
            "t.toml:1: ports: found an unknown key holding an array, expected one of",
        ),
        ("[[port]]\ninterface = 3\n", "t.toml:2: port[0].interface: found 3, expected the name of"),
        (
            "[[port]]\ninterface = \"a\"\n[[port]]\ninterface = \"a\"\n",
            "t.toml:4: port[1].interface: found \"a\", expected the name of a network interface that no other",
        ),
        (
            "[[port]]\ninterface = \"a\"\nmtu = 9\n",
            "t.toml:3: port[0].mtu: found an unknown key holding an integer, expected one of interface, xdp, source_check",
        ),
        (
            "[[port]]\ninterface = \"a\"\nsource_check = 0\n",
            "t.toml:3: port[0].source_check: found 0, expected true or false",
        ),
        ("[worker]\ncpu = -1\n", "t.toml:2: worker.cpu: found -1, expected an integer from 0 to 1023"),
        ("[log]\nlevel = \"loud\"\n", "t.toml:2: log.level: found \"loud\", expected \"error\", \"warn\""),
        ("port = 5\n", "t.toml:1: port: found 5, expected an array of tables, [[port]]"),
        ("\nvici = \"x\"\n", "t.toml:2: vici: found \"x\", expected a table, [vici]"),
        ("instance = \"a b\"\n", "t.toml:1: instance: found \"a b\", expected a name of 1 to 12"),
        ("\n\nfoo = [\n", "(syntax): found `foo = [`, expected valid TOML"),
    ];
    for (text, expected) in cases {
        // Ports come late in the file, so that line numbers of the case stay as written.
        let needs_port = !text.contains("port") && !text.is_empty() && !text.contains("foo");
        let text = if needs_port { format!("{text}{PORTS}") } else { text.to_owned() };
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text:?} gave {error:?}, not {expected:?}");
    }
}

#[test]
fn an_unknown_section_is_refused_by_name() {
    let error = parse(&format!("{PORTS}[cluster]\nnodes = 3\n")).unwrap_err();
    assert!(error.starts_with("t.toml:3: cluster: found an unknown key"), "{error}");
}
