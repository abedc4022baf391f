//! `testudod --check`: what is wrong with `testudo.toml`, what of this host would keep the gateway
//! from its work, and what the gateway would do. Nothing is changed.

mod cluster;
mod connections;
mod cpu_list;
mod host;
mod kernel;
mod ports;
mod processors;
#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::{datapath, log, privileges};
use host::{Host, System};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    /// What keeps testudod from starting here.
    faults: Vec<String>,
    /// What testudod accepts, and the operator may not have meant.
    warnings: Vec<String>,
    /// What testudod would do, in order.
    plan: Vec<String>,
}

impl Report {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    fn would(&mut self, text: impl Into<String>) {
        self.plan.push(text.into());
    }
}

/// Looks at this host; `connections` is the swanctl.conf that is loaded. Faults and warnings go to
/// standard error, what testudod would do to standard output.
pub(crate) fn run(config: &Config, connections: &Path) -> ExitCode {
    let report = look(config, connections, &System);
    for fault in &report.faults {
        log::say(&format!("testudod: {fault}\n"));
    }
    for warning in &report.warnings {
        log::say(&format!("testudod: warning: {warning}\n"));
    }
    // A reader that has closed standard output is no error.
    let _ = show(&report, &mut io::stdout().lock());
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let begin = match report.faults.as_slice() {
        [] => "testudod would",
        _ => "testudod would not start; with that mended it would",
    };
    writeln!(out, "{begin}:")?;
    report.plan.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

fn look(config: &Config, connections: &Path, host: &dyn Host) -> Report {
    let mut report = Report::default();
    rights(host, &mut report);
    kernel::look(config, host, &mut report);
    let found = ports::look(config, host, &mut report);
    ports::warn_of_queues(config, &found, &mut report);
    processors::look(config, &found, host, &mut report);
    match datapath::library(config.worker.cipher) {
        Ok(library) => report.would(format!("protect packets with {}", library.name())),
        Err(why) => report.fault(format!("worker.cipher: {why}")),
    }
    cluster::look(config, host, &mut report);
    report.would(format!("answer swanctl and testudo at {}", config.vici_socket.display()));
    connections::look(config, connections, host, &mut report);
    report
}

/// The rights that the user who runs the check lacks. The user who starts testudod may have them.
fn rights(host: &dyn Host, report: &mut Report) {
    let Some(status) = host.read("/proc/self/status") else { return };
    for missing in privileges::missing_in(&status).unwrap_or_default() {
        report.warn(format!("{missing}; the user who runs this check does not have it"));
    }
}
