//! What swanctl would load into the gateway.

use super::{Host, Report};
use crate::config::Config;
use std::io::ErrorKind;
use std::path::Path;
use testudo_vici::conf::{Check, Finding, Severity};
use testudo_vici::schema::Policy;

/// Most warnings about connections that are passed on.
const MAX_WARNINGS: usize = 20;

pub(super) fn look(config: &Config, file: &Path, host: &dyn Host, report: &mut Report) {
    let name = file.display();
    match host.open(file) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            report.would(format!("begin without connections: {name} is not there"));
            return;
        }
        Err(error) => {
            report.warn(format!("{name}: {error}"));
            return;
        }
    }
    let policy = if config.legacy { Policy::Legacy } else { Policy::Modern };
    let found = Check { files: host.files(), policy, reads_files: true }.run(file);
    if !found.complete {
        report.warn(format!("{name} cannot be read to its end: testudo check names the place"));
        return;
    }
    if !found.loads() {
        report.warn(format!(
            "{name}: {} of {} connections would be refused, or something beside them: testudo check names what and where",
            found.refused,
            found.connections + found.refused
        ));
    }
    let warnings = found.findings.iter().filter(|finding| finding.severity == Severity::Warning);
    for Finding { file, line, text, .. } in warnings.clone().take(MAX_WARNINGS) {
        report.warn(format!("{}:{line}: {text}", file.display()));
    }
    if let more @ 1.. = warnings.count().saturating_sub(MAX_WARNINGS) {
        report.warn(format!("{name}: {more} warnings more: testudo check has them"));
    }
    for connection in config.spread.keys().filter(|name| !found.named.contains(name)) {
        report.warn(format!(
            "[[spread]] spreads the connection \"{connection}\", which {name} does not have: compare the names"
        ));
    }
    report.would(format!(
        "get {} connections when swanctl loads {name}, and initiate {} children",
        found.connections, found.starts
    ));
}
