//! `testudo drain`: has a node of the cluster give its shards away, or lets it own some again.

use crate::cluster;
use crate::daemon::{self, DaemonArgs};
use serde::Serialize;
use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use testudo_terminal::progress::Progress;
use testudo_terminal::units::span;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::cluster::NodeState;
use testudo_vici::message::Message;

/// Interval between two questions about the node's progress.
const LOOK: Duration = Duration::from_millis(100);

/// The node, and what it should do.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// The node's number [default: the node that is asked]
    node: Option<u32>,
    /// Lets it own shards again.
    #[arg(long)]
    undo: bool,
    /// Waits up to this many seconds until it is done; 0: not at all.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The node's progress.
#[derive(Debug, Serialize)]
struct Drained {
    node: u64,
    drained: bool,
    /// Number of shards that it owns.
    #[serde(rename = "shares")]
    shards: u64,
    /// True if the order is carried out.
    done: bool,
}

/// Drains a node; failures go to standard error. A timeout is a failure too, because the next step
/// may be to stop the node.
pub(crate) fn run(args: &DrainArgs) -> ExitCode {
    let in_vain = Cell::new(false);
    let ask = |client: &mut Client, progress: &Progress| {
        let found = ask(client, args, progress)?;
        in_vain.set(args.wait > 0 && !found.done);
        Ok(found)
    };
    let shown = daemon::show("drain", &args.daemon, ask, format);
    if in_vain.get() { ExitCode::FAILURE } else { shown }
}

fn ask(client: &mut Client, args: &DrainArgs, progress: &Progress) -> Result<Drained, Error> {
    let mut request = Message::new().with("drained", if args.undo { "no" } else { "yes" });
    if let Some(node) = args.node {
        request.add_text("node", node);
    }
    client.command("testudo-drain", request)?;
    let until = Instant::now() + Duration::from_secs(args.wait);
    await_drain(client, args.node, args.undo, until, progress)
}

/// Drains that node before it is removed. A timeout is an error.
pub(crate) fn drain(
    client: &mut Client,
    node: u32,
    until: Instant,
    progress: &Progress,
) -> Result<(), Error> {
    client.command("testudo-drain", Message::new().with("node", node.to_string()))?;
    let found = await_drain(client, Some(node), false, until, progress)?;
    let why = || io::Error::new(io::ErrorKind::TimedOut, format(&found));
    if found.done { Ok(()) } else { Err(why().into()) }
}

fn await_drain(
    client: &mut Client,
    node: Option<u32>,
    undo: bool,
    until: Instant,
    progress: &Progress,
) -> Result<Drained, Error> {
    loop {
        let found = look(client, node, undo)?;
        if found.done || Instant::now() >= until {
            return Ok(found);
        }
        progress.doing(waiting(&found, until.saturating_duration_since(Instant::now())));
        thread::sleep(LOOK);
    }
}

/// The progress line: what is awaited, and for how long at most.
fn waiting(found: &Drained, left: Duration) -> String {
    let Drained { node, drained, shards, .. } = found;
    let left = span(left.as_secs());
    match drained {
        true => format!("node {node} still owns {shards} shards, waiting at most {left} more"),
        false => format!("node {node} owns {shards} shards, waiting at most {left} more for it to get some"),
    }
}

fn look(client: &mut Client, node: Option<u32>, undo: bool) -> Result<Drained, Error> {
    let report = cluster::ask(client)?.unwrap_or_default();
    let number = node.map_or(report.node, u64::from);
    let node = report.nodes.into_iter().find(|node| node.id == number).unwrap_or_default();
    let drained = node.state == NodeState::Drained;
    let done = if undo { !drained && node.shards > 0 } else { drained && node.shards == 0 };
    Ok(Drained { node: number, drained, shards: node.shards, done })
}

fn format(found: &Drained) -> String {
    let Drained { node, drained, shards, done } = found;
    match (drained, done) {
        (true, true) => format!("Node {node} is drained: it owns no shard, and may be stopped.\n"),
        (true, false) => {
            format!(
                "Node {node} is being drained: {shards} shards are still to go. `testudo cluster` says why.\n"
            )
        }
        (false, true) => format!("Node {node} owns shards again: {shards} by now.\n"),
        (false, false) => {
            format!("Node {node} has not taken its shards back yet. `testudo cluster` says why.\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_is_left() {
        let of = |drained, shards| Drained { node: 2, drained, shards, done: false };
        let left = Duration::from_secs(75);
        assert_eq!(waiting(&of(true, 43), left), "node 2 still owns 43 shards, waiting at most 1m 15s more");
        let undone = waiting(&of(false, 0), left);
        assert_eq!(undone, "node 2 owns 0 shards, waiting at most 1m 15s more for it to get some");
    }
}
