//! `testudo cluster` against a daemon that answers from a script.

use crate::support::{self, printed};
use std::collections::BTreeSet;
use std::process::{Command, Output};
use testudo_vici::cluster::{ClusterReport, NodeReport, NodeState, Phase, ViewReport};
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;

fn report() -> ClusterReport {
    let node = |id, state| NodeReport { id, state, incarnation: id + 1, ..NodeReport::default() };
    let heard = |heard, threshold| NodeReport {
        heard: Some(heard),
        hears: Some(12),
        threshold: Some(threshold),
        links_down: vec![0, 1],
        load: 123,
        ..NodeReport::default()
    };
    ClusterReport {
        node: 1,
        phase: Phase::Running,
        view: Some(ViewReport { ring_node: 1, ring_seq: 28, quorate: true, members: vec![1, 2, 3] }),
        witness: None,
        synced: true,
        epoch: 3,
        delivered: 12_345,
        stable: 12_340,
        waiting: 2,
        held: 1,
        sender: Some(0x0802),
        fence: 240,
        default_host: true,
        packets: 171,
        ike: 86,
        provisional: 85,
        ike_sas: 1000,
        child_sas: 2000,
        unread_states: 7,
        protocol: 16,
        replicate_config: true,
        config_current: true,
        config_pieces: 12,
        roster: 2,
        changing: false,
        configured: vec![1, 2, 3, 4],
        engines_behind: Vec::new(),
        why: vec!["node 2 is suspect: nothing has been heard of it for 1031 ms".to_owned()],
        counters: vec![("suspicions".to_owned(), 1), ("forged".to_owned(), 0)],
        nodes: vec![
            NodeReport { shards: 86, provisional: 85, ..node(1, NodeState::Owner) },
            NodeReport {
                id: 2,
                state: NodeState::Suspect,
                shards: 85,
                acked: Some(12_340),
                incarnation: 3,
                ..heard(1031, 45)
            },
            NodeReport { id: 3, state: NodeState::Fresh, incarnation: 4, ..heard(7, 30) },
            node(4, NodeState::Absent),
        ],
    }
}

fn cluster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testudo"));
    command.arg("cluster").args(args);
    command
}

fn answered(answer: Message, args: &[&str]) -> Output {
    support::answered(&mut cluster(args), move |asked| {
        assert_eq!(asked, Packet::CmdRequest("testudo-cluster".to_owned(), Message::new()));
        vec![Packet::CmdResponse(answer.clone())]
    })
}

fn shown(report: Option<&ClusterReport>, args: &[&str]) -> String {
    printed(answered(ClusterReport::answer(report), args))
}

#[test]
fn people_get_a_table_of_the_nodes() {
    assert_eq!(
        shown(Some(&report()), &[]),
        "\
Node           1, running, holds the state, sender ID 0x0802
Nodes          1 2 3 4, changed 2 times
View           ring 1.1c, epoch 3, quorum, members 1 2 3
Replication    12 345 messages delivered, 12 340 stable, 2 own waiting; 1 IKE messages held back
Configuration  12 connections, pools and credentials, the same on all nodes; replication protocol 16
Shards         packets of 171, 85 of them provisionally; IKE of 86; default host
Packets        may leave; the fence shuts in 240 ms unless the others are heard again
Tunnels        1 000 IKE SAs, 2 000 Child SAs known; states of 7 not decoded yet

NODE  STATE    SHARDS  PROVISIONAL         HEARD  HEARS US  SUSPECT AFTER  LINKS DOWN    LOAD   ACKED  LAG  LEASE
1     owner        86           85     this node         -              -  -                -       -    -      2
2     suspect      85            0  1 031 ms ago     12 ms          45 ms  0 1         12.3 %  12 340    5      3
3     fresh         0            0      7 ms ago     12 ms          30 ms  0 1         12.3 %       -    -      4
4     absent        0            0             -         -              -  -            0.0 %       -    -      5

Diagnosis
  node 2 is suspect: nothing has been heard of it for 1031 ms

Since the start
  suspicions  1
"
    );
}

#[test]
fn whether_the_witness_votes_stands_beside_the_view() {
    for (witness, end) in [(true, "; the witness votes\n"), (false, "; the witness does not vote\n")] {
        let shown = shown(Some(&ClusterReport { witness: Some(witness), ..report() }), &[]);
        assert!(shown.contains(&format!("quorum, members 1 2 3{end}")), "{shown}");
    }
}

#[test]
fn shards_that_have_moved_to_their_packets_are_named() {
    let mut report = report();
    (report.nodes[0].followed, report.nodes[2].followed) = (7, 1);
    let shown = shown(Some(&report), &[]);
    let end = "; default host; moved to where their packets go: 7 to node 1, 1 to node 3\n";
    assert!(shown.contains(end), "{shown}");
}

#[test]
fn a_node_without_view_and_proof_says_so() {
    let shown = shown(Some(&ClusterReport { node: 2, ..ClusterReport::default() }), &[]);
    for line in [
        "Node           2, down, does not hold the state, no sender ID\n",
        "View           none\n",
        "Packets        may not leave: too few other nodes have been heard, or they go on without this one\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn programs_get_json() {
    let json: serde_json::Value = serde_json::from_str(&shown(Some(&report()), &["--json"])).unwrap();
    let at = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {json}")).clone();
    assert_eq!(at("/phase"), "running");
    assert_eq!(at("/view/members/2"), 3);
    assert_eq!(at("/nodes/1/state"), "suspect");
    assert_eq!(at("/nodes/1/heard"), 1031);
    assert_eq!(at("/nodes/3/heard"), serde_json::Value::Null);
    assert_eq!(at("/counters/suspicions"), 1);
}

/// Names of keys, of the parts too; counters have a page of their own.
fn keys(value: &serde_json::Value, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(parts) => parts.iter().for_each(|(name, part)| {
            found.insert(name.clone());
            if name != "counters" {
                keys(part, found);
            }
        }),
        serde_json::Value::Array(elements) => elements.iter().for_each(|element| keys(element, found)),
        _ => {}
    }
}

#[test]
fn the_keys_of_the_json_are_documented() {
    let json: serde_json::Value = serde_json::from_str(&shown(Some(&report()), &["--json"])).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cluster-status.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, chapter) = page.split_once("\n## JSON\n").expect("a chapter about JSON");
    let mut found = BTreeSet::new();
    keys(&json, &mut found);
    let missing: Vec<_> = found.iter().filter(|key| !chapter.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "not in docs/reference/cluster-status.md: {missing:?}");
}

#[test]
fn the_nodes_that_count_are_told() {
    for (report, line) in [
        (ClusterReport { roster: 0, ..report() }, "Nodes          1 2 3 4, as in testudo.toml\n"),
        (
            ClusterReport { changing: true, ..report() },
            "Nodes          1 2 3 4, changed 2 times; another change is under way\n",
        ),
    ] {
        let shown = shown(Some(&report), &[]);
        assert!(shown.contains(line), "{shown}");
    }
}

/// A daemon that agrees to a change, whose corosync has been told of it, or not.
fn changed(args: &[&str], engines_behind: Vec<u64>) -> (Output, Vec<(String, Message)>) {
    let (asked, seen) = std::sync::mpsc::channel();
    let mut roster = 0;
    let mut configured = vec![1, 2, 3, 4];
    let output = support::answered(&mut cluster(args), move |packet| {
        let Packet::CmdRequest(name, message) = packet else { panic!("{packet:?}") };
        asked.send((name.clone(), message.clone())).unwrap();
        let answer = match name.as_str() {
            "testudo-nodes" => {
                roster = 1;
                match message.texts("addresses").next().is_some() {
                    true => configured.push(5),
                    false => configured.retain(|node| *node != 4),
                }
                Message::new().with("success", "yes").with("roster", "1")
            }
            _ => ClusterReport::answer(Some(&ClusterReport {
                roster,
                configured: configured.clone(),
                engines_behind: engines_behind.clone(),
                ..report()
            })),
        };
        vec![Packet::CmdResponse(answer)]
    });
    (output, seen.iter().collect())
}

#[test]
fn a_node_is_added_and_the_next_steps_are_told() {
    let args = ["add", "5", "--addresses", "10.99.0.5,192.0.2.105"];
    let (output, asked) = changed(&args, Vec::new());
    let text = printed(output);
    assert!(text.starts_with("Node 5 is added: the cluster's nodes are 1, 2, 3, 4, 5."), "{text}");
    assert!(text.ends_with("Done: corosync has the nodes 1, 2, 3, 4, 5 everywhere.\n"), "{text}");
    let (_, request) = asked.iter().find(|(name, _)| name == "testudo-nodes").unwrap();
    assert_eq!(request.text("node"), Some("5"));
    assert_eq!(request.texts("addresses").collect::<Vec<_>>(), ["10.99.0.5", "192.0.2.105"]);
}

#[test]
fn a_change_is_not_done_before_corosync_knows_of_it() {
    let args = ["add", "5", "--addresses", "10.99.0.5", "--wait", "1", "--json"];
    let (output, _) = changed(&args, vec![2, 3]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["done"], &json["corosync_behind"]), (&false.into(), &serde_json::json!([2, 3])));
}

/// Node 4 is absent: there is nothing to drain.
#[test]
fn a_dead_node_is_removed() {
    let (output, asked) = changed(&["remove", "4"], Vec::new());
    let text = printed(output);
    assert!(text.starts_with("Node 4 is removed: the cluster's nodes are 1, 2, 3."), "{text}");
    assert!(!asked.iter().any(|(name, _)| name == "testudo-drain"), "{asked:?}");
    let (_, request) = asked.iter().find(|(name, _)| name == "testudo-nodes").unwrap();
    assert_eq!((request.text("node"), request.texts("addresses").count()), (Some("4"), 0));
}

#[test]
fn a_gateway_that_stands_alone_says_so() {
    let text = shown(None, &[]);
    assert_eq!(text, "This gateway stands alone: there is no [cluster] in its testudo.toml.\n");
    assert_eq!(shown(None, &["--json"]), "null\n");
}

#[test]
fn a_malformed_answer_is_an_error() {
    let output = answered(Message::new().with("clustered", "perhaps"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("testudo cluster: testudod at ") && said.contains("yes or no"), "{said}");
}

#[test]
fn an_unreachable_daemon_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vici.sock");
    let output = cluster(&[]).arg("--socket").arg(&socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let start = format!("testudo cluster: cannot connect to testudod at {}: ", socket.display());
    assert!(said.starts_with(&start) && said.contains("Is testudod running?"), "{said}");
}
