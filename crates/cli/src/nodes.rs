//! `testudo cluster add` and `testudo cluster remove`: changes the nodes of the cluster while it
//! runs, says what is left to do, and sees to it that corosync has been told.

use crate::cluster;
use crate::daemon::{self, DaemonArgs};
use crate::drain;
use serde::Serialize;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use testudo_terminal::progress::Progress;
use testudo_terminal::units::span;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::cluster::{ClusterReport, NodeState};
use testudo_vici::message::Message;

/// Interval between two questions about the progress.
const LOOK: Duration = Duration::from_millis(100);

/// A change of the cluster's nodes.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Change {
    /// Adds a node to the running cluster, and says what is left to do.
    Add(AddArgs),
    /// Drains a node, takes it out of the running cluster, and says what is left to do. A node that
    /// is gone for good can be taken out too.
    Remove(RemoveArgs),
}

/// The new node.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Its number, 1 to 31, which no node has: its nodeid in corosync.conf.
    node: u32,
    /// Its own addresses: on the cluster link, then on each [[port]] in the order of testudo.toml.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', required = true)]
    addresses: Vec<IpAddr>,
    /// Its name, for the lines of corosync.conf [default: node and the number]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    waiting: WaitArgs,
}

/// The node to be removed.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Its number. The node that is asked cannot remove itself.
    node: u32,
    #[command(flatten)]
    waiting: WaitArgs,
}

/// How long to wait, and for whom.
#[derive(Debug, clap::Args)]
struct WaitArgs {
    /// Waits up to this many seconds until the node is drained, if it is one to be removed, and
    /// then until corosync has the new list of nodes everywhere; 0: not at all.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait: u64,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// How far a change has come.
#[derive(Debug, Serialize)]
struct Changed {
    node: u64,
    /// How often the nodes have been changed.
    roster: u64,
    nodes: Vec<u64>,
    /// Nodes whose corosync has other nodes.
    corosync_behind: Vec<u64>,
    /// Nothing is left to do for the nodes that are there.
    done: bool,
}

/// Makes the change; failures go to standard error. A timeout is a failure too.
pub(crate) fn run(change: &Change) -> ExitCode {
    let (name, waiting) = match change {
        Change::Add(args) => ("cluster add", &args.waiting),
        Change::Remove(args) => ("cluster remove", &args.waiting),
    };
    let in_vain = Cell::new(false);
    let ask = |client: &mut Client, progress: &Progress| {
        let found = make(client, change, waiting, progress)?;
        in_vain.set(waiting.wait > 0 && !found.done);
        Ok(found)
    };
    let shown = daemon::show(name, &waiting.daemon, ask, format);
    if in_vain.get() { ExitCode::FAILURE } else { shown }
}

fn make(
    client: &mut Client,
    change: &Change,
    waiting: &WaitArgs,
    progress: &Progress,
) -> Result<Changed, Error> {
    let until = Instant::now() + Duration::from_secs(waiting.wait);
    let before = cluster::ask(client)?.unwrap_or_default();
    match change {
        Change::Add(args) if has(&before, args) => {}
        Change::Add(args) => {
            let addresses = args.addresses.iter().map(IpAddr::to_string);
            let request =
                Message::new().with("node", args.node.to_string()).with_list("addresses", addresses);
            client.command("testudo-nodes", request)?;
            await_agreement(client, before.roster, progress)?;
        }
        Change::Remove(args) if !before.configured.is_empty() && !is_node(&before, args.node) => {}
        Change::Remove(args) => {
            remove(client, &before, args.node, until, progress)?;
            await_agreement(client, before.roster, progress)?;
        }
    }
    let report = cluster::ask(client)?.unwrap_or_default();
    if !waiting.daemon.json {
        // At once: the next steps are the operator's.
        io::stdout().lock().write_all(steps(change, &report).as_bytes())?;
    }
    await_corosync(client, change, until, progress)
}

/// True if that very node has been added already: then only corosync is looked at.
fn has(report: &ClusterReport, args: &AddArgs) -> bool {
    let addresses: Vec<String> = args.addresses.iter().map(IpAddr::to_string).collect();
    let found = report.nodes.iter().find(|node| node.id == u64::from(args.node));
    report.roster > 0 && is_node(report, args.node) && found.is_some_and(|node| node.addresses == addresses)
}

fn is_node(report: &ClusterReport, node: u32) -> bool {
    report.configured.contains(&node.into())
}

/// Drains the node if it is there, and asks for its removal.
fn remove(
    client: &mut Client,
    before: &ClusterReport,
    node: u32,
    until: Instant,
    progress: &Progress,
) -> Result<(), Error> {
    let is_there = |found: &&testudo_vici::cluster::NodeReport| {
        found.id == u64::from(node) && found.state != NodeState::Absent
    };
    let found = before.nodes.iter().find(is_there).filter(|found| found.id != before.node);
    if found.is_some() {
        drain::drain(client, node, until, progress)?;
    }
    let removed = client.command("testudo-nodes", Message::new().with("node", node.to_string()));
    if removed.is_err() && found.is_some_and(|found| found.state != NodeState::Drained) {
        // It was drained for nothing.
        client
            .command("testudo-drain", Message::new().with("node", node.to_string()).with("drained", "no"))?;
    }
    removed.map(drop)
}

/// Waits until all nodes have agreed on the change. That takes no longer than their disks do.
fn await_agreement(client: &mut Client, before: u64, progress: &Progress) -> Result<(), Error> {
    const LIMIT: Duration = Duration::from_secs(30);
    let until = Instant::now() + LIMIT;
    loop {
        let report = cluster::ask(client)?.unwrap_or_default();
        if report.roster > before && !report.changing {
            return Ok(());
        }
        if Instant::now() >= until {
            let why = "the nodes have not agreed on the change yet; `testudo cluster` shows whether they do";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why).into());
        }
        progress.doing("waiting until all nodes have agreed on the change".to_owned());
        thread::sleep(LOOK);
    }
}

/// Waits until corosync has the new nodes at all members.
fn await_corosync(
    client: &mut Client,
    change: &Change,
    until: Instant,
    progress: &Progress,
) -> Result<Changed, Error> {
    let node = match change {
        Change::Add(args) => args.node,
        Change::Remove(args) => args.node,
    };
    loop {
        let report = cluster::ask(client)?.unwrap_or_default();
        let done = report.engines_behind.is_empty() && report.view.as_ref().is_some_and(|view| view.quorate);
        if done || Instant::now() >= until {
            return Ok(Changed {
                node: node.into(),
                roster: report.roster,
                nodes: report.configured,
                corosync_behind: report.engines_behind,
                done,
            });
        }
        let left = span(until.saturating_duration_since(Instant::now()).as_secs());
        let behind = numbers(&report.engines_behind);
        progress.doing(format!("corosync of nodes {behind} has other nodes, waiting at most {left} more"));
        thread::sleep(LOOK);
    }
}

fn numbers(nodes: &[u64]) -> String {
    nodes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

/// What has happened, and what the operator has to do.
fn steps(change: &Change, report: &ClusterReport) -> String {
    let nodes = numbers(&report.configured);
    let count = report.configured.len();
    let quorum = format!("A quorum needs {} of {count} nodes.", count / 2 + 1);
    let mut out = String::new();
    let _infallible = match change {
        Change::Add(args) => {
            let AddArgs { node, addresses, name, .. } = args;
            let name = name.clone().unwrap_or_else(|| format!("node{node}"));
            let ring = addresses.first().map(IpAddr::to_string).unwrap_or_default();
            let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
            let quoted = quoted.join(", ");
            let others: Vec<u64> =
                report.configured.iter().copied().filter(|other| *other != u64::from(*node)).collect();
            let others = numbers(&others);
            write!(
                out,
                "Node {node} is added: the cluster's nodes are {nodes}. {quorum}\n\
                 \n\
                 Left to do:\n\
                 1. On each of the nodes {others}, add to the nodelist of /etc/corosync/corosync.conf (with ring1_addr, if the\n   \
                 other nodes have one):\n\
                 \n    node {{\n        nodeid: {node}\n        name: {name}\n        ring0_addr: {ring}\n    }}\n\
                 \n   and to testudo.toml:\n\
                 \n    [[cluster.nodes]]\n    id = {node}\n    addresses = [{quoted}]\n\
                 \n2. On one of them: corosync-cfgtool -R\n\
                 3. Copy corosync.conf, corosync's key (/etc/corosync/authkey), testudo.toml and the file of cluster.key to node\n   \
                 {node}, set node = {node} in testudo.toml there, and start corosync and testudod.\n\n"
            )
        }
        Change::Remove(args) => {
            let node = args.node;
            write!(
                out,
                "Node {node} is removed: the cluster's nodes are {nodes}. {quorum}\n\
                 \n\
                 Left to do:\n\
                 1. On node {node}, if it runs: systemctl disable --now testudod corosync\n\
                 2. On each of the nodes {nodes}, take its entry out of the nodelist of /etc/corosync/corosync.conf, and its\n   \
                 [[cluster.nodes]] out of testudo.toml.\n\
                 3. On one of them: corosync-cfgtool -R\n\n"
            )
        }
    };
    out
}

fn format(found: &Changed) -> String {
    let Changed { nodes, corosync_behind, done, .. } = found;
    match done {
        true => format!("Done: corosync has the nodes {} everywhere.\n", numbers(nodes)),
        false => format!(
            "Corosync of nodes {} has other nodes than the cluster yet. The same command again looks once more.\n",
            numbers(corosync_behind)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(addresses: &[&str]) -> AddArgs {
        AddArgs {
            node: 4,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            name: Some("gw4".into()),
            waiting: WaitArgs { wait: 0, daemon: DaemonArgs::of("/nonexistent") },
        }
    }

    fn report() -> ClusterReport {
        let node = testudo_vici::cluster::NodeReport {
            id: 4,
            addresses: vec!["10.99.0.4".into(), "192.0.2.104".into()],
            ..Default::default()
        };
        ClusterReport { roster: 1, configured: vec![1, 2, 3, 4], nodes: vec![node], ..Default::default() }
    }

    #[test]
    fn the_lines_for_both_files_are_told() {
        let told = steps(&Change::Add(add(&["10.99.0.4", "192.0.2.104"])), &report());
        for part in [
            "Node 4 is added: the cluster's nodes are 1, 2, 3, 4. A quorum needs 3 of 4 nodes.",
            "On each of the nodes 1, 2, 3, add",
            "        nodeid: 4\n        name: gw4\n        ring0_addr: 10.99.0.4\n",
            "    [[cluster.nodes]]\n    id = 4\n    addresses = [\"10.99.0.4\", \"192.0.2.104\"]\n",
            "corosync-cfgtool -R",
            "set node = 4",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn a_node_that_has_been_added_is_not_added_again() {
        assert!(has(&report(), &add(&["10.99.0.4", "192.0.2.104"])));
        assert!(!has(&report(), &add(&["10.99.0.4", "192.0.2.105"])), "the daemon refuses that");
        assert!(!has(&ClusterReport { roster: 0, ..report() }, &add(&["10.99.0.4", "192.0.2.104"])));
    }

    #[test]
    fn where_corosync_is_behind_is_named() {
        let of = |corosync_behind: Vec<u64>| {
            let done = corosync_behind.is_empty();
            format(&Changed { node: 4, roster: 1, nodes: vec![1, 2], corosync_behind, done })
        };
        assert!(of(vec![2, 3]).starts_with("Corosync of nodes 2, 3 has other nodes"), "{}", of(vec![2, 3]));
        assert_eq!(of(vec![]), "Done: corosync has the nodes 1, 2 everywhere.\n");
    }
}
