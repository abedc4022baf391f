//! `testudo configured`: whether a node that has started already has its configuration from the
//! cluster. Asked before files are loaded at the start, it prevents a node with old files from
//! loading them into the whole cluster.

use crate::cluster;
use crate::daemon::{self, DaemonArgs};
use serde::Serialize;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use testudo_terminal::progress::Progress;
use testudo_terminal::units::span;
use testudo_vici::Error;
use testudo_vici::client::Client;

/// Interval between two questions.
const LOOK: Duration = Duration::from_millis(100);

/// How long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfiguredArgs {
    /// Waits up to this many seconds until the node knows the others' configuration.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The daemon's answer.
#[derive(Debug, Serialize)]
struct Configured {
    node: u64,
    pieces: u64,
}

/// Succeeds if nothing is left to load; otherwise standard error says what is missing.
pub(crate) fn run(args: &ConfiguredArgs) -> ExitCode {
    let daemon = args.daemon.waiting(Duration::from_secs(args.wait));
    daemon::show("configured", &daemon, |client, progress| ask(client, args, progress), format)
}

fn ask(client: &mut Client, args: &ConfiguredArgs, progress: &Progress) -> Result<Configured, Error> {
    let until = Instant::now() + Duration::from_secs(args.wait);
    let refused = |why: &str| Err(Error::Refused(why.to_owned()));
    loop {
        let Some(report) = cluster::ask(client)? else {
            return refused("it stands alone, and has what is loaded into it");
        };
        match (report.config_current, report.config_pieces) {
            _ if !report.replicate_config => {
                return refused("replicate_config is off: it has what is loaded into it");
            }
            (true, 0) => return refused("the cluster has no configuration yet"),
            (true, pieces) => return Ok(Configured { node: report.node, pieces }),
            (false, _) if Instant::now() >= until => {
                return refused("it has not heard what the other nodes are configured with");
            }
            (false, _) => {
                let left = until.saturating_duration_since(Instant::now()).as_secs();
                progress.doing(format!(
                    "waiting for the other nodes' configuration, at most {} more",
                    span(left)
                ));
                thread::sleep(LOOK);
            }
        }
    }
}

fn format(Configured { node, pieces }: &Configured) -> String {
    format!(
        "Node {node} has the configuration of the cluster: {pieces} connections, pools and credentials.\n"
    )
}
