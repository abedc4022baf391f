//! testudo: shows the state of `testudod`, and passes an operator's orders to it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its terminal")]
// Operators and the daemon's answers reach all of this: a panic would hide what went wrong.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod alarms;
mod answer;
mod check;
mod cluster;
mod configured;
mod confirm;
mod daemon;
mod drain;
mod external;
mod load;
mod migrate;
mod nodes;
mod release;
mod shut;
mod status;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The words of `testudo cluster`; `docs/glossary.md` has all words.
const CLUSTER_WORDS: &str = "Words:
  shard      one of 256 parts of all tunnels
  owner      the node that speaks IKE for a shard and carries its packets
  standby    the node that takes a shard over if its owner fails
  view       the nodes that are in the cluster together, as all of them agree
  epoch      the number of a view that has a majority
  stable     held by every other node of the view
  lease      the right to the sender ID that makes a node's IVs its own
All words: docs/glossary.md, where Testudo's documents are.";

/// Manages a Testudo IPsec gateway.
#[derive(Debug, Parser)]
#[command(
    name = "testudo",
    version,
    arg_required_else_help = true,
    after_help = "Any other command NAME runs the program testudo-NAME, from the directory of testudo or from PATH: \
                  `testudo bench` is the package testudo-bench, where that is installed."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows which children are up and which are not, tunnels, ports, workers and why packets were
    /// dropped.
    Status(status::StatusArgs),
    /// Shows the nodes of the cluster, and which shards and state this one has; or adds a node, or
    /// removes one.
    #[command(after_help = CLUSTER_WORDS)]
    Cluster(cluster::ClusterArgs),
    /// Has a node of the cluster give its shards to the others, so that it can be stopped without a
    /// lost packet.
    Drain(drain::DrainArgs),
    /// Lists the alarms: what looks like an attack or a fault in what the gateway refuses.
    Alarms(alarms::AlarmsArgs),
    /// Lists the prefixes whose clear traffic is dropped although no loaded connection protects
    /// them.
    Shut(daemon::DaemonArgs),
    /// Lets the clear traffic of one of these prefixes pass, after a confirmation.
    Release(release::ReleaseArgs),
    /// Tells whether a node has its configuration from the cluster, so that its own files need not
    /// be loaded.
    Configured(configured::ConfiguredArgs),
    /// Lists what the gateway would refuse of a swanctl.conf, by file and line, and changes
    /// nothing.
    Check(check::CheckArgs),
    /// Has swanctl load a swanctl.conf, after a check, and after a confirmation if that would
    /// unload every connection.
    Load(load::LoadArgs),
    /// Moves a running QEMU virtual machine to another host through a Child SA, so that it runs at
    /// exactly one of the two.
    Migrate(Box<migrate::MigrateArgs>),
    /// A separate program.
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Status(args) => status::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Alarms(args) => alarms::run(&args),
        Command::Shut(args) => shut::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Configured(args) => configured::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::External(words) => external::run(&words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md"));

    #[test]
    fn every_command_and_option_is_documented() {
        let missing = testudo_manual::missing(&Cli::command(), "testudo", PAGE);
        assert_eq!(missing, Vec::<String>::new());
    }
}
