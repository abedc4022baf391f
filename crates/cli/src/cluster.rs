//! `testudo cluster`: the cluster as the asked node sees it, for people or as JSON.

use crate::daemon::{self, DaemonArgs};
use crate::nodes::{self, Change};
use std::process::ExitCode;
use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;
use testudo_terminal::units::grouped;
use testudo_vici::client::Client;
use testudo_vici::cluster::{ClusterReport, NodeReport};
use testudo_vici::message::Message;
use testudo_vici::{Error, counters::Named};

const ALONE: &str = "This gateway stands alone: there is no [cluster] in its testudo.toml.\n";

/// What to do with the cluster: nothing but showing it, as a rule.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Shows the cluster, or changes its nodes; failures go to standard error. A lone gateway has no
/// cluster: `null` in JSON.
pub(crate) fn run(args: &ClusterArgs) -> ExitCode {
    if let Some(change) = &args.change {
        return nodes::run(change);
    }
    let ask = |client: &mut Client, _: &_| ask(client);
    daemon::show("cluster", &args.daemon, ask, |report| {
        report.as_ref().map_or_else(|| ALONE.to_owned(), format)
    })
}

/// The daemon's report on its cluster; `None` for a lone gateway.
pub(crate) fn ask(client: &mut Client) -> Result<Option<ClusterReport>, Error> {
    ClusterReport::from_message(&client.request("testudo-cluster", Message::new())?)
}

fn format(report: &ClusterReport) -> String {
    let mut out = String::new();
    let mut table = Table::new(&[("", Left), ("", Left)]);
    for (name, value) in [
        ("Node", node(report)),
        ("Nodes", configured(report)),
        ("View", view(report)),
        ("Replication", replication(report)),
        ("Configuration", configuration(report)),
        ("Shards", shards(report)),
        ("Packets", packets(report)),
        ("Tunnels", tunnels(report)),
    ] {
        table.row(vec![name.to_owned(), value]);
    }
    table.write(&mut out, "");
    out.push('\n');
    nodes(report, &mut out);
    if !report.why.is_empty() {
        out.push_str("\nDiagnosis\n");
        report.why.iter().for_each(|why| out.push_str(&format!("  {why}\n")));
    }
    counters(&report.counters, &mut out);
    out
}

fn node(report: &ClusterReport) -> String {
    let state = if report.synced { "holds the state" } else { "does not hold the state" };
    let lease = report.sender.map_or_else(|| "no sender ID".to_owned(), |id| format!("sender ID {id:#06x}"));
    format!("{}, {}, {state}, {lease}", report.node, report.phase.name())
}

/// The nodes that count, whether they are there or not.
fn configured(report: &ClusterReport) -> String {
    let nodes: Vec<_> = report.configured.iter().map(u64::to_string).collect();
    let source = match report.roster {
        0 => "as in testudo.toml".to_owned(),
        changes => format!("changed {changes} times"),
    };
    let changing = if report.changing { "; another change is under way" } else { "" };
    format!("{}, {source}{changing}", nodes.join(" "))
}

/// The ring's name as `corosync-quorumtool` writes it.
fn view(report: &ClusterReport) -> String {
    let Some(view) = &report.view else { return "none".to_owned() };
    let quorum = if view.quorate { "quorum" } else { "no quorum" };
    let members: Vec<_> = view.members.iter().map(u64::to_string).collect();
    let witness = match report.witness {
        None => "",
        Some(true) => "; the witness votes",
        Some(false) => "; the witness does not vote",
    };
    format!(
        "ring {}.{:x}, epoch {}, {quorum}, members {}{witness}",
        view.ring_node,
        view.ring_seq,
        report.epoch,
        members.join(" ")
    )
}

fn replication(report: &ClusterReport) -> String {
    format!(
        "{} messages delivered, {} stable, {} own waiting; {} IKE messages held back",
        grouped(report.delivered),
        grouped(report.stable),
        grouped(report.waiting),
        grouped(report.held)
    )
}

fn configuration(report: &ClusterReport) -> String {
    let pieces = format!("{} connections, pools and credentials", grouped(report.config_pieces));
    let whose = match (report.replicate_config, report.config_current) {
        (false, _) => "loaded on this node alone",
        (true, false) => "the cluster's is not known here yet",
        (true, true) => "the same on all nodes",
    };
    format!("{pieces}, {whose}; replication protocol {}", report.protocol)
}

fn shards(report: &ClusterReport) -> String {
    let host = if report.default_host { "; default host" } else { "" };
    let moved = report.nodes.iter().filter(|node| node.followed > 0);
    let moved: Vec<String> = moved.map(|node| format!("{} to node {}", node.followed, node.id)).collect();
    let moved = match moved.is_empty() {
        true => String::new(),
        false => format!("; moved to where their packets go: {}", moved.join(", ")),
    };
    format!(
        "packets of {}, {} of them provisionally; IKE of {}{host}{moved}",
        report.packets, report.provisional, report.ike
    )
}

fn packets(report: &ClusterReport) -> String {
    match report.fence {
        0 => "may not leave: too few other nodes have been heard, or they go on without this one".to_owned(),
        fence => {
            format!("may leave; the fence shuts in {} ms unless the others are heard again", grouped(fence))
        }
    }
}

fn tunnels(report: &ClusterReport) -> String {
    let unread = match report.unread_states {
        0 => String::new(),
        states => format!("; states of {} not decoded yet", grouped(states)),
    };
    format!("{} IKE SAs, {} Child SAs known{unread}", grouped(report.ike_sas), grouped(report.child_sas))
}

fn nodes(report: &ClusterReport, out: &mut String) {
    let mut table = Table::new(&[
        ("NODE", Left),
        ("STATE", Left),
        ("SHARDS", Right),
        ("PROVISIONAL", Right),
        ("HEARD", Right),
        ("HEARS US", Right),
        ("SUSPECT AFTER", Right),
        ("LINKS DOWN", Left),
        ("LOAD", Right),
        ("ACKED", Right),
        ("LAG", Right),
        ("LEASE", Right),
    ]);
    for node in &report.nodes {
        table.row(row(node, report));
    }
    table.write(out, "");
}

fn row(node: &NodeReport, report: &ClusterReport) -> Vec<String> {
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let links: Vec<_> = node.links_down.iter().map(u64::to_string).collect();
    let this = node.id == report.node;
    let ms = |time: Option<u64>| or_none(time.map(|ms| format!("{} ms", grouped(ms))));
    let heard = node.heard.map(|ms| format!("{} ms ago", grouped(ms)));
    vec![
        node.id.to_string(),
        node.state.name().to_owned(),
        node.shards.to_string(),
        node.provisional.to_string(),
        if this { "this node".to_owned() } else { or_none(heard) },
        ms(node.hears),
        ms(node.threshold),
        or_none((!links.is_empty()).then(|| links.join(" "))),
        or_none((!this).then(|| format!("{}.{} %", node.load / 10, node.load % 10))),
        or_none(node.acked.map(grouped)),
        or_none(node.acked.map(|acked| grouped(report.delivered.saturating_sub(acked)))),
        node.incarnation.to_string(),
    ]
}

fn counters(counters: &Named, out: &mut String) {
    let mut table = Table::new(&[("", Left), ("", Right)]);
    let happened: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
    if happened.is_empty() {
        return;
    }
    for (name, count) in happened {
        table.row(vec![name.clone(), grouped(*count)]);
    }
    out.push_str("\nSince the start\n");
    table.write(out, "  ");
}
