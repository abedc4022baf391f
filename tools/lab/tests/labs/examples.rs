//! corosync accepts the configurations in `examples/`, and their nodes are those of `testudo.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use testudo_lab::command::Cmd;

const CLUSTERS: [&str; 2] = ["cluster-of-three", "two-nodes-and-a-witness"];

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// The values of a key, one a line, after `separator`.
fn values(file: &Path, key: &str, separator: char) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).collect()
}

#[test]
fn corosync_takes_the_examples() {
    for name in CLUSTERS {
        let config = example(name).join("corosync.conf");
        // `-t` checks the file and exits.
        Cmd::new("corosync").arg("-t").env("COROSYNC_MAIN_CONFIG_FILE", config).run().unwrap();
    }
}

#[test]
fn both_files_of_a_cluster_name_the_same_nodes() {
    for name in CLUSTERS {
        let ids = values(&example(name).join("corosync.conf"), "nodeid", ':');
        assert_eq!(ids, values(&example(name).join("testudo.toml"), "id", '='), "{name}");
        let own = values(&example(name).join("corosync.conf"), "ring0_addr", ':');
        let addresses = values(&example(name).join("testudo.toml"), "addresses", '=');
        assert_eq!(own.len(), addresses.len(), "{name}");
        for (own, all) in own.iter().zip(&addresses) {
            assert!(all.starts_with(&format!("[\"{own}\"")), "{name}: {own} is not the first of {all}");
        }
    }
}
