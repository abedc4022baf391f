//! Every way to get `testudo.toml` wrong is answered with file, line, key, found and expected.

use super::*;
use testudo_alarms::{Kind, Severity};
use testudo_cluster::group::{Ingress, NoQuorum, QuorumRule};

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("t.toml"), text).map_err(|e| e.to_string())
}

const PORTS: &str = "[[port]]\ninterface = \"eth0\"\n";

#[test]
fn a_full_file_is_read() {
    let config = parse(
        "instance = \"gw1\"\nlegacy = true\n[vici]\nsocket = \"/tmp/v\"\n[log]\nlevel = \"debug\"\nformat = \"json\"\n\
         [[port]]\ninterface = \"outer0\"\n[[port]]\ninterface = \"inner0\"\nxdp = \"generic\"\n\
         source_check = false\nchecksum = \"trust\"\nclear_by_default = true\nmtu = 9000\n\
         [worker]\ncount = 2\ncpus = [1, 0]\ncipher = \"aws-lc\"\nframes = 8_192\nring = 512\npriority = 10\nbusy_poll = 200\nspread = \"hash\"\nspread_over = 4\n[tun]\nname = \"tun9\"\n\
         [ike]\nretransmit_timeout_ms = 500\nretransmit_tries = 3\ncookie_threshold = 7\nkeepalive_interval = 0\n\
         ike_sas_per_peer = 9\nworker_sas_per_child = 16\nrekeyed_linger_ms = 700\nhalf_open_per_source = 5\nhalf_open_per_network = 6\n",
    )
    .unwrap();
    assert_eq!(config.instance, "gw1");
    assert!(config.legacy);
    assert_eq!(config.vici_socket, Path::new("/tmp/v"));
    assert_eq!(config.log, LogSettings { level: tracing::Level::DEBUG, format: LogFormat::Json });
    assert_eq!(config.ports[1].interface, "inner0");
    assert_eq!(config.ports[1].mode, XdpMode::Generic);
    assert_eq!([0, 1].map(|n: usize| config.ports[n].source_check), [true, false]);
    assert_eq!([0, 1].map(|n: usize| config.ports[n].clear_by_default), [false, true]);
    let mtu = PortMtu { octets: 9000, place: "t.toml:16: port[1].mtu".to_owned() };
    assert_eq!([0, 1].map(|n: usize| config.ports[n].mtu.clone()), [None, Some(mtu)]);
    assert_eq!([0, 1].map(|n: usize| config.ports[n].checksum), [Checksum::Auto, Checksum::Trust]);
    assert_eq!(
        config.worker,
        WorkerSettings {
            count: Some(2),
            cpus: vec![1, 0],
            cipher: Cipher::AwsLc,
            frames: 8192,
            ring: 512,
            priority: 10,
            busy_poll: Duration::from_micros(200),
            sharing: Sharing::Hash { over: 4 },
        }
    );
    assert_eq!(config.tun, "tun9");
    assert_eq!(config.ike.retransmit_timeout, Duration::from_millis(500));
    assert_eq!((config.ike.retransmit_tries, config.ike.cookie_threshold), (3, 7));
    assert_eq!(config.ike.keepalive_interval, Duration::ZERO);
    assert_eq!(config.ike.ike_sas_per_peer, 9);
    assert_eq!(config.ike.worker_sas_per_child, 16);
    assert_eq!((config.ike.half_open_per_source, config.ike.half_open_per_network), (5, 6));
    assert_eq!(config.ike.rekeyed_linger, Duration::from_millis(700));
}

#[test]
fn the_watch_has_rules_for_each_kind() {
    let rules = |text: &str| parse(&format!("{PORTS}[alarms]\n{text}\n")).map(|config| config.alarms);
    assert_eq!(parse(PORTS).unwrap().alarms, Some(Rules::default()));
    assert_eq!(rules("enabled = false").unwrap(), None);
    let changed = rules(
        "run = \"/bin/true\"\n[alarms.replay-burst]\nseverity = \"off\"\n\
         [alarms.reordering]\nseverity = \"critical\"\nthreshold = 7\nrun = \"/bin/false\"\n\
         [alarms.spi-scan]\ndrop_source = 60",
    );
    let changed = changed.unwrap().unwrap();
    assert_eq!(changed.of(Kind::ReplayBurst).severity, None);
    let reordering = changed.of(Kind::Reordering);
    assert_eq!((reordering.severity, reordering.threshold), (Some(Severity::Critical), 7));
    assert_eq!(reordering.run.as_deref(), Some(Path::new("/bin/false")));
    assert_eq!(changed.of(Kind::ClearText).run.as_deref(), Some(Path::new("/bin/true")));
    assert_eq!(changed.of(Kind::SpiScan).drop_source, Some(Duration::from_secs(60)));
    assert_eq!(changed.of(Kind::ForgedPackets).drop_source, None);
    let spared = rules("never_drop = [\"192.0.2.0/24\", \"2001:db8::1\"]").unwrap().unwrap().never_drop;
    assert_eq!(spared, ["192.0.2.0/24".parse().unwrap(), "2001:db8::1/128".parse().unwrap()]);
    for (text, expected) in [
        (
            "[alarms.clear-text]\ndrop_source = 60",
            "t.toml:5: alarms.clear-text.drop_source: found 60, expected no such key: clear-text names no sources",
        ),
        ("[alarms.spi-scan]\ndrop_source = 86401", "t.toml:5: alarms.spi-scan.drop_source: found 86401"),
        ("never_drop = [\"everybody\"]", "t.toml:4: alarms.never_drop: found \"everybody\""),
        ("[alarms.replays]\n", "t.toml:4: alarms.replays"),
        ("[alarms.spi-scan]\nseverity = \"high\"", "t.toml:5: alarms.spi-scan.severity: found \"high\""),
        ("[alarms.spi-scan]\nthreshold = 0", "t.toml:5: alarms.spi-scan.threshold: found 0"),
        ("run = \"page\"", "t.toml:4: alarms.run: found \"page\", expected the absolute path of a program"),
    ] {
        let refused = rules(text).unwrap_err();
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn one_worker_or_several_keep_to_processors() {
    let workers = |text: &str| {
        let worker = parse(&format!("{PORTS}[worker]\n{text}\n")).unwrap().worker;
        (worker.count, worker.cpus)
    };
    assert_eq!(workers(""), (None, vec![]));
    assert_eq!(workers("count = 64"), (Some(64), vec![]));
    assert_eq!(workers("cpu = 3"), (Some(1), vec![3]));
    assert_eq!(workers("cpu = 3\ncount = 1"), (Some(1), vec![3]));
    assert_eq!(workers("cpus = [3, 0, 2]"), (Some(3), vec![3, 0, 2]));
    for (text, expected) in [
        ("count = 0", "worker.count: found 0, expected an integer from 1 to 64"),
        ("count = 65", "worker.count: found 65, expected an integer from 1 to 64"),
        ("cpus = 1", "worker.cpus: found 1, expected an array of integers from 0 to 1023"),
        ("cpus = [0, 1024]", "worker.cpus: found 1024, expected integers from 0 to 1023"),
        ("cpus = []", "worker.cpus: found [], expected 1 to 64 different processors, one for each worker"),
        ("cpus = [1, 1]", "worker.cpus: found [1, 1], expected 1 to 64 different processors"),
        ("cpus = [0, 1]\ncount = 3", "worker.cpus: found [0, 1], expected 3 different processors"),
        ("cpus = [0]\ncpu = 0", "worker.cpu: found 0, expected either cpu, for one worker, or cpus"),
        ("spread_over = 4", "worker.spread_over: found 4, expected spread = \"hash\" beside it"),
        ("spread = \"rr\"", "worker.spread: found \"rr\", expected \"steal\" or \"hash\""),
        ("cpu = 0\ncount = 2", "worker.cpu: found 0, expected cpus = [...], one for each of several workers"),
    ] {
        let error = parse(&format!("{PORTS}[worker]\n{text}\n")).unwrap_err();
        assert!(error.contains(&format!(": {expected}")), "{text}: {error}");
        assert!(error.starts_with("t.toml:4:") || error.starts_with("t.toml:5:"), "{error}");
    }
}

#[test]
fn defaults_need_only_a_port() {
    let config = parse(PORTS).unwrap();
    assert_eq!(config.instance, "default");
    assert!(!config.legacy);
    assert_eq!(config.log, LogSettings { level: tracing::Level::INFO, format: LogFormat::Text });
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
            "[[port]]\ninterface = \"a\"\nqueues = 9\n",
            "t.toml:3: port[0].queues: found an unknown key holding an integer, expected one of interface, xdp, source_check, checksum, clear_by_default, mtu",
        ),
        (
            "[[port]]\ninterface = \"a\"\nmtu = 1279\n",
            "t.toml:3: port[0].mtu: found 1279, expected an integer from 1280 to 15936",
        ),
        (
            "[[port]]\ninterface = \"a\"\nmtu = 15937\n",
            "t.toml:3: port[0].mtu: found 15937, expected an integer from 1280 to 15936",
        ),
        (
            "[[port]]\ninterface = \"a\"\nmtu = \"jumbo\"\n",
            "t.toml:3: port[0].mtu: found \"jumbo\", expected an integer from 1280 to 15936",
        ),
        (
            "[[port]]\ninterface = \"a\"\nsource_check = 0\n",
            "t.toml:3: port[0].source_check: found 0, expected true or false",
        ),
        (
            "[[port]]\ninterface = \"a\"\nchecksum = \"off\"\n",
            "t.toml:3: port[0].checksum: found \"off\", expected \"auto\", \"fill\" or \"trust\"",
        ),
        (
            "[[port]]\ninterface = \"a\"\nchecksum = false\n",
            "t.toml:3: port[0].checksum: found false, expected \"auto\", \"fill\" or \"trust\"",
        ),
        (
            "[[port]]\ninterface = \"a\"\nclear_by_default = \"yes\"\n",
            "t.toml:3: port[0].clear_by_default: found \"yes\", expected true or false",
        ),
        ("[worker]\ncpu = -1\n", "t.toml:2: worker.cpu: found -1, expected an integer from 0 to 1023"),
        ("[worker]\nring = 1000\n", "t.toml:2: worker.ring: found 1000, expected a power of two"),
        ("[worker]\nring = 128\n", "t.toml:2: worker.ring: found 128, expected an integer from 256 to 2048"),
        ("[log]\nlevel = \"loud\"\n", "t.toml:2: log.level: found \"loud\", expected \"error\", \"warn\""),
        ("[log]\nformat = \"xml\"\n", "t.toml:2: log.format: found \"xml\", expected \"text\" or \"json\""),
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
    let error = parse(&format!("{PORTS}[clutser]\nnodes = 3\n")).unwrap_err();
    assert!(error.starts_with("t.toml:3: clutser: found an unknown key"), "{error}");
}

const TWO_PORTS: &str = "[[port]]\ninterface = \"eth0\"\n[[port]]\ninterface = \"eth1\"\n";

const CLUSTER: &str = r#"
[cluster]
node = 2
key = "/etc/testudo/cluster.key"
vips = ["192.0.2.10", "2001:db8::10", "10.1.0.1"]
[[cluster.nodes]]
id = 2
addresses = ["10.255.0.2", "192.0.2.2", "10.1.0.12"]
[[cluster.nodes]]
id = 1
addresses = ["10.255.0.1", "192.0.2.1", "10.1.0.11"]
"#;

#[test]
fn a_cluster_is_read_with_its_defaults() {
    assert_eq!(parse(PORTS).unwrap().cluster, None);
    let cluster = parse(&format!("{TWO_PORTS}{CLUSTER}")).unwrap().cluster.unwrap();
    assert_eq!(cluster.node.get(), 2);
    assert_eq!(cluster.nodes.iter().map(|node| node.id.get()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(cluster.nodes[1].addresses[1], "192.0.2.2".parse::<std::net::IpAddr>().unwrap());
    assert_eq!((cluster.vips.len(), cluster.no_quorum), (3, NoQuorum::Forward));
    assert_eq!(cluster.quorum, QuorumRule::Majority);
    let timers = [
        cluster.timers.heartbeat,
        cluster.timers.fence,
        cluster.timers.suspicion_min,
        cluster.timers.suspicion_max,
    ];
    assert_eq!(timers, [10, 50, 25, 200].map(Duration::from_millis));
    assert_eq!(
        (cluster.group.as_str(), cluster.mac, cluster.heartbeat_port),
        ("testudo", ClusterMac::Group, 5406)
    );
    assert_eq!(cluster.state, Path::new("/var/lib/testudo"));
    assert!(!cluster.message_id_sync);
    let asks = CLUSTER.replace("node = 2\n", "node = 2\nmessage_id_sync = true\n");
    assert!(parse(&format!("{TWO_PORTS}{asks}")).unwrap().cluster.unwrap().message_id_sync);
    let last = CLUSTER.replace("node = 2\n", "node = 2\nquorum = \"last_man_standing\"\n");
    let last = parse(&format!("{TWO_PORTS}{last}")).unwrap().cluster.unwrap();
    assert_eq!(last.quorum, QuorumRule::LastManStanding);
}

#[test]
fn a_routed_cluster_is_read_and_every_mistake_is_named() {
    let with = |keys: &str, rest: &str| {
        let cluster = CLUSTER.replace("node = 2\n", &format!("node = 2\n{keys}"));
        parse(&format!("{TWO_PORTS}{cluster}{rest}")).map(|config| config.cluster.unwrap())
    };
    let flood = with("", "").unwrap();
    assert_eq!((flood.ingress, flood.announce_table), (Ingress::Flood, None));
    let routed = with("ingress = \"routed\"\n", "").unwrap();
    assert_eq!((routed.ingress, routed.announce_table), (Ingress::Routed, None));
    assert_eq!(routed.withdraw, Duration::from_millis(500));
    assert!(routed.follow_traffic);
    let told = "ingress = \"routed\"\nannounce_table = 5406\nwithdraw_ms = 1500\nfollow_traffic = false\n";
    let told = with(told, "").unwrap();
    assert_eq!((told.announce_table, told.withdraw), (Some(5406), Duration::from_millis(1500)));
    assert!(!told.follow_traffic);
    for (keys, rest, says) in [
        (
            "ingress = \"ecmp\"\n",
            "",
            "t.toml:8: cluster.ingress: found \"ecmp\", expected \"flood\" or \"routed\"",
        ),
        (
            "ingress = \"routed\"\nmac = \"group\"\n",
            "",
            "t.toml:9: cluster.mac: found \"group\", expected no such key with cluster.ingress = \"routed\"",
        ),
        (
            "announce_table = 5406\n",
            "",
            "t.toml:8: cluster.announce_table: found 5406, expected cluster.ingress = \"routed\" beside it",
        ),
        ("withdraw_ms = 1\n", "", "t.toml:8: cluster.withdraw_ms: found 1, expected cluster.ingress"),
        (
            "follow_traffic = true\n",
            "",
            "t.toml:8: cluster.follow_traffic: found true, expected cluster.ingress",
        ),
        (
            "ingress = \"routed\"\nannounce_table = 254\n",
            "",
            "t.toml:9: cluster.announce_table: found 254, expected a routing table that nothing else uses",
        ),
    ] {
        let said = with(keys, rest).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn every_mistake_in_a_cluster_is_named() {
    let cases = [
        (
            "node = 2",
            "node = 7",
            "t.toml:7: cluster.node: found 7, expected the id of one of [[cluster.nodes]]",
        ),
        ("node = 2", "node = 32", "t.toml:7: cluster.node: found 32, expected an integer from 1 to 31"),
        ("node = 2\n", "", "cluster.node: found nothing, expected the id of one"),
        (
            "node = 2\n",
            "node = 2\nquorum = \"last\"\n",
            "t.toml:8: cluster.quorum: found \"last\", expected \"majority\" or \"last_man_standing\"",
        ),
        (
            "key = \"/etc",
            "key = \"etc",
            "t.toml:8: cluster.key: found \"etc/testudo/cluster.key\", expected an absolute",
        ),
        (
            "id = 1\n",
            "id = 2\n",
            "t.toml:14: cluster.nodes[1].id: found 2, expected a number that no other node has",
        ),
        (
            "\"192.0.2.10\"",
            "\"192.0.2.1O\"",
            "t.toml:9: cluster.vips: found \"192.0.2.1O\", expected different addresses",
        ),
        ("\"192.0.2.10\"", "\"192.0.2.1\"", "t.toml:9: cluster.vips: found [\"192.0.2.1\", "),
        (
            "\"10.255.0.1\", ",
            "",
            "t.toml:15: cluster.nodes[1].addresses: found [\"192.0.2.1\", \"10.1.0.11\"], expected",
        ),
        (
            "\"10.255.0.1\"",
            "\"10.255.0.2\"",
            "t.toml:15: cluster.nodes[1].addresses: found [\"10.255.0.2\", ",
        ),
        (
            "[[cluster.nodes]]\n",
            "fence_ms = 19\n[[cluster.nodes]]\n",
            "t.toml:10: cluster.fence_ms: found 19, expected at least twice pulse_ms",
        ),
        (
            "[[cluster.nodes]]\n",
            "suspicion_max_ms = 20\n[[cluster.nodes]]\n",
            "t.toml:10: cluster.suspicion_max_ms: found 20, expected at least suspicion_min_ms",
        ),
        (
            "[[cluster.nodes]]\n",
            "mac = \"01:00:5e:00:00:01\"\n[[cluster.nodes]]\n",
            "t.toml:10: cluster.mac: found \"01:00:5e:00:00:01\", expected \"group\" or \"unicast\"",
        ),
        (
            "\"10.1.0.12\"]",
            "\"10.1.0.12\", \"10.2.0.12\"]",
            "t.toml:12: cluster.nodes[0].addresses: found [\"10.255.0.2\", ",
        ),
        (
            "vips",
            "vip",
            "t.toml:9: cluster.vip: found an unknown key holding an array, expected one of nodes, node",
        ),
    ];
    for (from, to, expected) in cases {
        let text = format!("{TWO_PORTS}{CLUSTER}").replacen(from, to, 1);
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{to:?} gave {error:?}, not {expected:?}");
    }
}

#[test]
fn the_clusters_ethernet_addresses_are_the_same_on_all_nodes_and_of_no_one_else() {
    let of = |text: &str| parse(&format!("{TWO_PORTS}{text}")).unwrap().cluster.unwrap();
    let here = of(CLUSTER);
    let there = of(&CLUSTER
        .replace("node = 2", "node = 1")
        .replace("\"192.0.2.10\", \"2001:db8::10\"", "\"2001:db8:0::10\", \"192.0.2.10\""));
    let other = of(&CLUSTER.replace("192.0.2.10", "192.0.2.11"));
    assert_eq!([0, 1].map(|port| here.mac_on(port)), [0, 1].map(|port| there.mac_on(port)));
    assert_ne!(here.mac_on(0), here.mac_on(1));
    assert_ne!(here.mac_on(0), other.mac_on(0));
    assert!(here.mac_on(0).is_group());
    let unicast = of(&CLUSTER.replace("node = 2", "node = 2\nmac = \"unicast\"")).mac_on(0);
    assert!(!unicast.is_group() && unicast.0[0] & 2 == 2, "{unicast}");
}

/// What a running gateway follows is `[ike]`; it names the rest.
#[test]
fn what_only_a_restart_changes_is_named() {
    let config = |text: &str| {
        let text = format!("{text}\n[[port]]\ninterface = \"outer0\"\n");
        Config::parse(Path::new("testudo.toml"), &text).unwrap()
    };
    let before = config("");
    assert_eq!(before.fixed_differences(&config("[ike]\nretransmit_tries = 3")), [""; 0]);
    let after = config("legacy = true\n[log]\nlevel = \"debug\"\n[worker]\ncount = 2");
    assert_eq!(before.fixed_differences(&after), ["legacy", "[log]", "[worker]"]);
    let mut settings = EndpointConfig::default();
    config("[ike]\nretransmit_tries = 3").ike.apply(&mut settings);
    assert_eq!(settings.retransmit.tries, 3);
}

/// The files of that name below a directory.
fn files_named(name: &str, dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files_named(name, &path),
        false if path.ends_with(name) => vec![path],
        false => Vec::new(),
    });
    found.collect()
}

#[test]
fn every_example_is_read() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = files_named("testudo.toml", &examples);
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let is_a_cluster = file.with_file_name("corosync.conf").exists();
        assert_eq!(config.cluster.is_some(), is_a_cluster, "{}", file.display());
    }
}

#[test]
fn spread_connections_are_read_and_every_mistake_is_named() {
    let spread = |text: &str| parse(&format!("{TWO_PORTS}{CLUSTER}{text}")).map(|config| config.spread);
    assert_eq!(spread("").unwrap(), BTreeMap::new());
    let two = "[[spread]]\nconnection = \"a\"\nscheme = \"session-hash\"\n\
               [[spread]]\nconnection = \"b\"\nscheme = \"packet-hash\"\n";
    let expected = [("a".to_owned(), Spread::SessionHash), ("b".to_owned(), Spread::PacketHash)];
    assert_eq!(spread(two).unwrap(), expected.clone().into());
    let window = |text: &str| parse(&format!("{TWO_PORTS}{CLUSTER}{text}")).unwrap().peer_window;
    let wide = two.replacen("scheme", "peer_window = 1024\nscheme", 1);
    assert_eq!((window(&wide), window(&format!("{wide}peer_window = 128\n"))), (32, 128));
    for by in Spread::ALL {
        let one = format!("[[spread]]\nconnection = \"a\"\nscheme = \"{}\"\n", by.name());
        assert_eq!(spread(&one).unwrap(), [("a".to_owned(), by)].into());
    }
    let routed = CLUSTER.replace("[cluster]\n", "[cluster]\ningress = \"routed\"\n");
    let config = parse(&format!("{TWO_PORTS}{routed}{two}")).unwrap();
    assert_eq!((config.spread, config.cluster.unwrap().ingress), (expected.into(), Ingress::Routed));
    for (text, says) in [
        ("[[spread]]\nscheme = \"packet-hash\"\n", "spread[0].connection: found nothing"),
        ("[[spread]]\nconnection = \"a\"\n", "spread[0].scheme: found nothing, expected \"session-hash\""),
        ("[[spread]]\nconnection = \"a\"\nscheme = \"hash\"\n", "spread[0].scheme: found \"hash\""),
        (
            "[[spread]]\nconnection = \"a\"\nscheme = \"packet-hash\"\npeer_window = 31\n",
            "spread[0].peer_window: found 31, expected an integer from 32 to",
        ),
        ("[[spread]]\nconnection = \"\"\nscheme = \"packet-hash\"\n", "spread[0].connection: found \"\""),
        (
            "[[spread]]\nconnection = \"a\"\nscheme = \"packet-hash\"\nby = 1\n",
            "spread[0].by: found an unknown key",
        ),
        (
            &format!("{two}[[spread]]\nconnection = \"a\"\nscheme = \"packet-hash\"\n"),
            "spread[2].connection: found \"a\"",
        ),
    ] {
        let said = spread(text).unwrap_err();
        assert!(said.contains(says), "{said}");
    }
    let alone = parse(&format!("{PORTS}{two}")).unwrap_err();
    assert!(alone.contains("spread[0].connection: found \"a\", expected a [cluster]"), "{alone}");
}
