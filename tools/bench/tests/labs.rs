//! Tests of `testudo bench` as a user runs it.

use serde_json::Value;
use std::process::{Command, Output};
use testudo_crypto::Library;

fn testudo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo-bench"));
    // The figures do not matter: other labs may run at the same time.
    command.env("TESTUDO_LAB_PLACES", "2").args(args).output().expect("the binary starts")
}

/// Runs a bench and returns its JSON report.
fn bench(args: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.json");
    let path = file.to_str().expect("a printable path");
    let output = testudo(&[args, &["--json", path]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read(&file).expect("the report is written");
    serde_json::from_slice(&text).expect("the report is JSON")
}

fn bench_esp(args: &[&str]) -> Value {
    bench(&[&["esp", "--seconds", "0.02", "--rounds", "2"], args].concat())
}

#[test]
fn both_directions_of_every_case_are_measured() {
    for library in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
        let ciphers = "aes128gcm16,aes256gcm16,aes128-sha1,null-sha512";
        let report = bench_esp(&["--library", library.name(), "--sizes", "64,1420", "--ciphers", ciphers]);
        assert_eq!(report["bench"], "esp");
        assert_eq!(report["machine"]["library"], library.name());
        let rows = report["rows"].as_array().expect("rows");
        let cases: Vec<_> = rows
            .iter()
            .map(|row| (row["cipher"].as_str(), row["size"].as_u64(), row["direction"].as_str()))
            .collect();
        let mut expected = Vec::new();
        for cipher in ciphers.split(',') {
            for size in [64, 1420] {
                expected.extend(["out", "in"].map(|way| (Some(cipher), Some(size), Some(way))));
            }
        }
        assert_eq!(cases, expected);
        for row in rows {
            for key in ["ns", "cipher_ns", "mpps", "gbps", "packets"] {
                assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
            }
        }
    }
}

#[test]
fn jumbo_frames_and_mixtures_are_measured_and_drawn() {
    let picture = std::env::temp_dir().join(format!("testudo-bench-esp-{}.svg", std::process::id()));
    let path = picture.to_str().expect("a printable path");
    let report = bench_esp(&["--sizes", "4096,8900,imix", "--svg", path]);
    let rows = report["rows"].as_array().expect("rows");
    let traffic: Vec<_> = rows.iter().map(|row| (row["traffic"].as_str(), row["size"].as_u64())).collect();
    let expected =
        [("4096", 4096), ("8900", 8900), ("imix", 346)].map(|(name, size)| (Some(name), Some(size)));
    assert_eq!(traffic.chunks(2).map(|pair| pair[0]).collect::<Vec<_>>(), expected);
    let svg = std::fs::read_to_string(&picture).expect("the picture is written");
    assert!(svg.starts_with("<svg") && svg.contains("imix"), "{svg}");
    let _gone = std::fs::remove_file(picture);
}

#[test]
fn one_sa_is_measured_on_several_workers_beside_several() {
    let picture = std::env::temp_dir().join(format!("testudo-bench-cores-{}.svg", std::process::id()));
    let path = picture.to_str().expect("a printable path");
    let quick = ["--seconds", "0.1", "--rounds", "2", "--sizes", "1420"];
    let report = bench(&[&["cores", "--workers", "1,2,3", "--svg", path], &quick[..]].concat());
    assert_eq!(report["bench"], "cores");
    let rows = report["rows"].as_array().expect("rows");
    let processors = rows.first().and_then(|row| row["processors"].as_u64()).expect("processors");
    let case = |row: &Value| {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        (text("direction"), row["workers"].as_u64(), row["sas"].as_u64(), text("by"))
    };
    let cases = |way: &str| -> Vec<_> {
        let all = [
            (1, 1, "-"),
            (2, 1, "steal"),
            (2, 1, "hash"),
            (2, 2, "-"),
            (3, 1, "steal"),
            (3, 1, "hash"),
            (3, 3, "-"),
        ];
        all.into_iter()
            .filter(|(workers, _, by)| *by != "hash" || *workers <= processors)
            .map(|(workers, sas, by)| (Some(way.to_owned()), Some(workers), Some(sas), Some(by.to_owned())))
            .collect()
    };
    assert_eq!(rows.iter().map(case).collect::<Vec<_>>(), [cases("out"), cases("in")].concat());
    for row in rows {
        let is_crowded = row["workers"].as_u64() > row["processors"].as_u64();
        for key in ["cpu_ns", "of_one_worker"] {
            assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
        }
        for key in ["mpps", "gbps"] {
            assert!(row[key].as_f64().is_none_or(|value| value > 0.0), "{key} of {row}");
            assert_eq!(row[key].is_null(), is_crowded, "{key} of {row}");
        }
        assert_eq!(row["cycles"].as_f64().is_some(), cfg!(target_arch = "x86_64"), "{row}");
        assert_eq!(row["of_many"].is_null(), is_crowded || row["workers"] == row["sas"], "{row}");
    }
    let svg = std::fs::read_to_string(&picture).expect("the picture is written");
    assert!(svg.starts_with("<svg") && svg.contains("an SA each"), "{svg}");
    let _gone = std::fs::remove_file(picture);
}

#[test]
fn an_attack_is_timed_until_its_alarm() {
    let report = bench(&["detect", "--repeats", "1", "--attacks", "forge,reorder"]);
    assert_eq!(report["bench"], "detect");
    let rows = report["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| (row["attack"].as_str(), row["alarm"].as_str())).collect();
    let expected = [("forge", "forged-packets"), ("reorder", "reordering")];
    assert_eq!(names, expected.map(|(attack, alarm)| (Some(attack), Some(alarm))));
    // How long it takes depends on the machine.
    for row in rows {
        assert_eq!(row["seconds"].as_array().map(Vec::len), Some(1), "{row}");
        assert_eq!(row["aim"], 1.0);
    }
}

#[test]
fn many_sas_are_measured_with_packets_of_each_size() {
    let report = bench(&["tunnels", "--seconds", "0.02", "--sas", "1,300", "--sizes", "1420,64"]);
    assert_eq!(report["bench"], "tunnels");
    let rows = report["rows"].as_array().expect("rows");
    let cases: Vec<_> = rows
        .iter()
        .map(|row| (row["size"].as_u64(), row["sas"].as_u64(), row["direction"].as_str()))
        .collect();
    let mut expected = Vec::new();
    for (size, sas) in [(1420, 1), (1420, 300), (64, 1), (64, 300)] {
        expected.extend(["out", "in"].map(|way| (Some(size), Some(sas), Some(way))));
    }
    assert_eq!(cases, expected);
    for row in rows {
        for key in ["ns", "mpps", "gbps", "ns_of_one", "percent_of_one"] {
            assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
        }
    }
}

/// `script` of util-linux provides a terminal.
#[test]
fn on_a_terminal_a_line_tells_how_far_the_bench_is_and_elsewhere_none() {
    let args = ["esp", "--seconds", "0.3", "--rounds", "2", "--sizes", "64"];
    let output = testudo(&args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let command = format!("{} {}", env!("CARGO_BIN_EXE_testudo-bench"), args.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let output = script.env("TERM", "xterm").output().expect("script starts");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for said in ["esp, aes128gcm16, 64 octets, 0 of 3", "2 of 3", "left"] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
}

#[test]
fn impossible_measurements_are_refused() {
    for (args, expected) in [
        (["--library", "openssl"], "expected \"ipsec-mb\" or \"aws-lc\""),
        (["--sizes", "9000"], "expected 28 to 8946 octets, or imix"),
        (["--seconds", "0"], "expected seconds"),
        (["--cpu", "1000"], "CPU 1000 is not available"),
        (["--json", "/proc/no/such/file"], "cannot write /proc/no/such/file"),
    ] {
        let quick = ["esp", "--rounds", "1"];
        let short: &[&str] = if args[0] == "--seconds" { &[] } else { &["--seconds", "0.001"] };
        let output = testudo(&[&quick[..], short, &args[..]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?} was accepted");
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}

/// With a real testudod: as root, and after it has been built.
#[test]
fn a_swarm_sets_up_its_tunnels_and_every_figure_is_there() {
    let report = bench(&[
        "setup",
        "--tunnels",
        "60",
        "--connections",
        "1",
        "--rounds",
        "3",
        "--width",
        "8",
        "--forward",
        "1",
    ]);
    assert_eq!(report["bench"], "setup");
    let row = &report["rows"][0];
    assert_eq!(row["tunnels"], 60);
    for key in ["setups_per_s", "responder_cpu_ms", "limit_cpu_ms", "bytes_per_tunnel"] {
        assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
    }
    let single = &report["rows"][1];
    assert_eq!((single["tunnels"].as_u64(), single["connections"].as_u64()), (Some(1), Some(2)), "{single}");
    assert_eq!(single["growth"], 1.0, "{single}");
    assert!(single["setups_per_s"].as_f64() > Some(0.0), "{single}");
    let [responder, limit] = ["responder_cpu_ms", "limit_cpu_ms"].map(|key| row[key].as_f64());
    assert!(responder > limit, "less than the cryptography alone: {row}");
    for key in ["quiet_gbps", "storm_gbps", "ratio", "setups_per_s", "quiet_worker_ms", "storm_worker_ms"] {
        assert!(row["storm"][key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
    }
    let batches = row["batches"].as_array().expect("batches");
    let tunnels: Vec<_> = batches.iter().map(|batch| batch["tunnels"].as_u64()).collect();
    assert_eq!(tunnels, [Some(20), Some(40), Some(60)]);
    assert!(batches.iter().all(|batch| batch["threads_ms"]["testudod"].as_f64() > Some(0.0)), "{row}");
}

/// With three real nodes and corosync, each part once: as root, and after testudod has been built.
#[test]
fn the_death_of_a_node_is_measured_and_drawn() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let report = failover("outage", plots.path());
    for what in ["tunnels lost: node killed", "tunnels lost: all links cut"] {
        assert_eq!(row(&report, what)["reached"], true, "{}", row(&report, what));
    }
    assert!(row(&report, "outage: node killed")["figures"]["median"].as_f64().is_some(), "{report}");
    assert!(plots.path().join("failover-outage-1.svg").is_file());
}

#[test]
#[ignore = "make test-all: a long failover"]
fn a_cluster_is_measured_part_by_part() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let report = failover("storm,many,idle,owner,rate,load", plots.path());
    // Times and rates depend on the machine; that nothing is lost or duplicated does not.
    for what in ["tunnels lost, node killed while", "tunnels with new keys"] {
        assert_eq!(row(&report, what)["reached"], true, "{}", row(&report, what));
    }
    for what in ["owner against alone", "CPU of a setup: owner", "idle: corosync"] {
        assert!(row(&report, what)["figures"]["median"].as_f64().is_some(), "{}", row(&report, what));
    }
    assert!(row(&report, "CPG messages of a setup")["figures"]["median"].as_f64() > Some(0.0));
}

/// As root: the filter is loaded.
#[test]
fn the_speed_up_of_one_sa_is_computed_from_measured_costs_and_drawn() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let path = plots.path().to_str().expect("a printable path");
    let quick = ["--seconds", "0.05", "--rounds", "2", "--samples", "1", "--nodes", "1,6", "--plots", path];
    let report = bench(&[&["spread", "--only", "cost,balance"], &quick[..]].concat());
    assert_eq!(report["bench"], "spread");
    let median = |what: &str| row(&report, what)["figures"]["median"].as_f64().expect("a median");
    for scheme in ["none", "session-hash", "packet-hash"] {
        for way in ["out", "in"] {
            let [own, dropped] = ["R", "Q"].map(|cost| median(&format!("{cost} {way}, {scheme}")));
            assert!(0.0 < dropped && dropped < own, "{scheme}, {way}: {dropped} of {own} ns");
        }
    }
    assert_eq!(median("1 nodes, out, packet-hash, lanes by the shard table"), 1.0);
    let [table, even] = ["lanes by the shard table", "the same number of lanes each"]
        .map(|lanes| median(&format!("6 nodes, out, packet-hash, {lanes}")));
    assert!(1.0 < table && table <= even && even < 6.0, "{table}, {even}");
    assert_eq!(median("one TCP stream, out by session-hash, 6 nodes"), 1.0);
    assert!(median("18 229 sessions as in [FLAT], out by packet-hash, 6 nodes") > 1.0);
    let svg =
        std::fs::read_to_string(plots.path().join("spread-speed-up.svg")).expect("the picture is written");
    assert!(svg.starts_with("<svg") && svg.contains("[FLAT]"), "{svg}");
}

/// As root: the filter is loaded.
#[test]
fn nodes_behind_routers_are_measured_and_the_busiest_one_limits_them() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let path = plots.path().to_str().expect("a printable path");
    let quick = ["--seconds", "0.05", "--rounds", "2", "--samples", "1", "--nodes", "1,6", "--plots", path];
    let report = bench(&[&["spread", "--only", "routed"], &quick[..]].concat());
    let median = |what: &str| row(&report, what)["figures"]["median"].as_f64().expect("a median");
    for cost in ["R out", "R in", "F in", "C in"] {
        assert!(median(cost) > 0.0, "{}", row(&report, cost));
    }
    let many = "6 nodes, out, 100 000 equal sessions";
    assert_eq!(row(&report, many)["reached"], true, "{}", row(&report, many));
    let one = median("6 nodes, out, one TCP stream");
    assert!((one - 1.0).abs() < 1e-9, "a session takes one node: {one}");
    // One node relays nothing; of six, all packets reach one, which relays most of them.
    let [alone, six] = ["1 nodes, in, one SA", "6 nodes, in, one SA"].map(median);
    assert_eq!(alone, 1.0);
    assert!(six > 0.0 && six < 6.0, "{six}");
    let svg = std::fs::read_to_string(plots.path().join("spread-routed-1.svg"));
    assert!(svg.expect("the picture is written").starts_with("<svg"));
}

/// With three real nodes and corosync: as root, and after testudod has been built.
#[test]
#[ignore = "make test-all: a long failover"]
fn the_order_of_packets_and_the_death_of_a_node_are_measured_for_a_spread_tunnel() {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let path = plots.path().to_str().expect("a printable path");
    let report =
        bench(&["spread", "--only", "order,takeover", "--seconds", "1", "--repeats", "1", "--plots", path]);
    for scheme in ["none", "session-hash", "packet-hash"] {
        for way in ["out", "in"] {
            let refused =
                if way == "out" { "refused by the peer's window" } else { "refused by the nodes' windows" };
            for what in ["reordered", "largest extent", refused, "TCP, 16 streams"] {
                let row = row(&report, &format!("{scheme}, {way}: {what}"));
                assert!(row["figures"]["median"].as_f64().is_some(), "{row}");
            }
        }
    }
    // Times depend on the machine; that nothing is lost for good, sent or accepted twice does not.
    for what in ["tunnels lost", "numbers sent twice", "(key, IV) pairs repeated", "replays accepted"] {
        assert_eq!(row(&report, what)["reached"], true, "{report:#}");
    }
    assert!(row(&report, "replays refused")["figures"]["median"].as_f64() > Some(0.0), "{report:#}");
    assert!(row(&report, "out: lost until then")["figures"]["median"].as_f64().is_some(), "{report:#}");
    assert!(plots.path().join("spread-order-1.svg").is_file());
}

#[test]
fn impossible_clusters_are_refused() {
    for (args, expected) in [
        (["--nodes", "0"], "0 is not in 1..=31"),
        (["--nodes", "32"], "32 is not in 1..=31"),
        (["--size", "1447"], "1447 is not in 128..=1446"),
        (["--window", "16"], "16 is not in 32..=8192"),
        (["--repeats", "0"], "0 is not in 1..=10000"),
        (["--seconds", "0"], "expected seconds"),
        (["--only", "speed"], "possible values: cost, balance, routed, order, takeover"),
        (["--cpu", "1000"], "CPU 1000 is not available"),
    ] {
        let output = testudo(&[&["spread"], &args[..]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?} was accepted");
        assert!(message.contains(expected), "{args:?}: {message}");
    }
}

/// Parts of the cluster benchmark, as short as possible.
fn failover(parts: &str, plots: &std::path::Path) -> Value {
    let plots = plots.to_str().expect("a printable path");
    let short =
        ["--repeats", "1", "--setups", "12", "--tunnels", "60", "--minutes", "0.05", "--plots", plots];
    let report = bench(&[&["failover", "--only", parts], &short[..]].concat());
    assert_eq!(report["bench"], "failover");
    report
}

/// The row whose name begins with that text.
fn row<'a>(report: &'a Value, begins: &str) -> &'a Value {
    let rows = report["rows"].as_array().expect("rows");
    let found = rows.iter().find(|row| row["what"].as_str().is_some_and(|what| what.starts_with(begins)));
    found.unwrap_or_else(|| panic!("no row {begins} in {report}"))
}

/// Migrations by these ways, once there and back.
fn migrations(ways: &str, mtus: &str, segments: &str) {
    let plots = tempfile::tempdir().expect("a temporary directory");
    let directory = plots.path().to_str().expect("a printable path");
    let few = ["--repeats", "1", "--memory", "256", "--pings", "10", "--plots", directory];
    let what = ["migrate", "--ways", ways, "--mtus", mtus, "--segments", segments];
    let report = bench(&[&what[..], &few].concat());
    let rows = report["rows"].as_array().expect("rows");
    let links = mtus.split(',').count() + segments.split(',').filter(|octets| *octets != "0").count();
    assert_eq!(rows.len(), ways.split(',').count() * links);
    for row in rows {
        for key in ["seconds", "packets", "peak_cpu"] {
            for direction in 0..2 {
                assert_eq!(row[key][direction].as_array().map(Vec::len), Some(1), "{key} of {row}");
            }
        }
        for stage in 0..4 {
            assert_eq!(row["stage_seconds"][stage].as_array().map(Vec::len), Some(2), "{row}");
        }
        let suite = (row["way"] == "tls").then_some("TLS_AES_128_GCM_SHA256");
        assert_eq!(row["suite"].as_str(), suite, "{row}");
        // What is filled crosses the wire, whatever protects it.
        assert!(row["megabytes"][0].as_f64() > Some(64.0), "{row}");
    }
    let boxes = ways.split(',').map(|way| format!("packets-by-mtu-{way}"));
    let others = ["time-by-mtu", "packets-by-mtu", "peak-cpu"].map(str::to_owned);
    for picture in boxes.chain(others) {
        let svg = std::fs::read_to_string(plots.path().join(format!("migrate-{picture}.svg")));
        assert!(svg.is_ok_and(|svg| svg.contains("</svg>")), "{picture}");
    }
}

#[test]
fn a_virtual_machine_moves_through_testudo_there_and_back_and_is_timed() {
    migrations("esp", "9000", "0");
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn every_way_of_a_migration_is_timed_over_links_of_several_kinds() {
    migrations("none,esp,ah-esp,tls,ssh", "1500,9000", "1460");
}

#[test]
#[ignore = "make test-all: soak"]
fn after_a_soak_every_packet_is_accounted_for() {
    let report = bench(&["soak", "--minutes", "0.1", "--tunnels", "8"]);
    assert_eq!(report["bench"], "soak");
    let rows = report["rows"].as_array().expect("rows");
    let of = |begins: &str| {
        let found =
            rows.iter().filter(|row| row["what"].as_str().is_some_and(|what| what.starts_with(begins)));
        found.collect::<Vec<_>>()
    };
    for (what, count) in [
        ("not accounted for within", 2),
        ("not accounted for between", 2),
        ("SAs left", 1),
        // Nobody attacks.
        ("alarms", 1),
    ] {
        let found = of(what);
        assert_eq!(found.len(), count, "{report:#}");
        assert!(found.iter().all(|row| row["reached"] == true), "{report:#}");
    }
    for what in ["from the hosts", "out of the gateways", "SAs renewed", "carried to the hosts, median"] {
        assert!(of(what)[0]["value"].as_f64() > Some(0.0), "{report:#}");
    }
    // More was sent than could be carried, so that there are losses to account for.
    assert!(of("dropped: rx_ring_full")[0]["value"].as_f64() > Some(0.0), "{report:#}");
}
