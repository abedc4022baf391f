//! `testudo status`: asks the daemon over VICI, and shows tunnels and counters to people or as JSON.

mod sa;
mod snapshot;
mod text;

use crate::daemon::{self, DaemonArgs};
use snapshot::Snapshot;
use std::process::ExitCode;

/// Shows the status; failures go to standard error.
pub(crate) fn run(args: &DaemonArgs) -> ExitCode {
    daemon::show("status", args, |client, _| Snapshot::take(client), text::format)
}
