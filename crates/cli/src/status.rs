//! `testudo status`: asks the daemon over VICI, and shows children, tunnels and counters, for
//! people or as JSON.

mod children;
mod ports;
mod sa;
mod snapshot;
mod text;

use crate::daemon::{self, DaemonArgs};
use snapshot::Snapshot;
use std::cell::Cell;
use std::process::ExitCode;
use testudo_vici::children::ChildReport;
use testudo_vici::client::Client;

/// A child should be up and is not.
const MISSED: u8 = 2;

/// The daemon to ask, and what is expected of its answer.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the status is shown; 1 there is no answer; 2 with --expect-up: a child that should \
                        be up is not."
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Ends with exit code 2 if a child that should be up by its start_action is not.
    #[arg(long)]
    expect_up: bool,
}

/// Shows the status; failures go to standard error.
pub(crate) fn run(args: &StatusArgs) -> ExitCode {
    let missed = Cell::new(false);
    let ask = |client: &mut Client, _: &_| {
        let snapshot = Snapshot::take(client)?;
        missed.set(snapshot.children.iter().any(ChildReport::is_missed));
        Ok(snapshot)
    };
    let shown = daemon::show("status", &args.daemon, ask, text::format);
    if args.expect_up && missed.get() { ExitCode::from(MISSED) } else { shown }
}
