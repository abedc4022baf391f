//! `testudo check`: checks a `swanctl.conf` as the gateway would, without a gateway.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use testudo_vici::conf::{Check, Disk, Report, Severity};
use testudo_vici::schema::Policy;

/// A connection, secret, pool or authority would be refused.
pub(crate) const REFUSED: u8 = 1;
/// Loading it would unload every connection: it is incomplete, or has none.
pub(crate) const NOTHING: u8 = 2;

/// The files to check.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 all of it would be loaded; 1 some would be refused; 2 loading it would unload every \
                        connection, because a file cannot be read to its end or names none."
)]
pub(crate) struct CheckArgs {
    /// The files, each with all that it includes; relative names are relative to the file.
    #[arg(value_name = "FILE", default_value = "/etc/swanctl/swanctl.conf")]
    files: Vec<PathBuf>,
    /// Allows weak algorithms, as legacy = true in testudo.toml does.
    #[arg(long)]
    legacy: bool,
    /// Does not read certificates and scripts, for a machine that has none.
    #[arg(long)]
    no_certificates: bool,
    /// Accepts a configuration without connections.
    #[arg(long)]
    empty: bool,
    /// Does not print what would be loaded.
    #[arg(long, short)]
    quiet: bool,
}

/// Prints the errors and changes nothing.
pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    let check = Check { reads_files: !args.no_certificates, ..on_disk(args.legacy) };
    let reports: Vec<Report> = args.files.iter().map(|file| check.run(file)).collect();
    let mut code = 0;
    for (file, report) in args.files.iter().zip(&reports) {
        code = code.max(judge(file, report, args));
    }
    if let [_, _, ..] = reports.as_slice()
        && !args.quiet
    {
        let load = reports.iter().filter(|report| report.loads()).count();
        println!("{load} of {} files would load.", reports.len());
    }
    ExitCode::from(code)
}

/// The check of this machine's files.
pub(crate) fn on_disk(legacy: bool) -> Check<'static> {
    let policy = if legacy { Policy::Legacy } else { Policy::Modern };
    Check { files: &Disk, policy, reads_files: true }
}

/// Prints what was found in a file. Returns false if the file cannot be read to its end.
pub(crate) fn print(file: &Path, report: &Report) -> bool {
    for finding in &report.findings {
        let severity = if finding.severity == Severity::Warning { "warning: " } else { "" };
        eprintln!("{}:{}: {severity}{}", finding.file.display(), finding.line, finding.text);
    }
    if !report.complete {
        eprintln!("{}: cannot be read to its end: loading it would unload what is missing", file.display());
    }
    report.complete
}

/// Prints one report and returns its exit code.
fn judge(file: &Path, report: &Report, args: &CheckArgs) -> u8 {
    if !print(file, report) {
        return NOTHING;
    }
    let file = file.display();
    let named = report.connections + report.refused;
    if named == 0 && !args.empty {
        eprintln!(
            "{file}: names no connection: loading it would unload all (--empty says that this is wanted)"
        );
        return NOTHING;
    }
    if !args.quiet {
        println!("{file}: {} of {named} connections would load.", report.connections);
    }
    if report.loads() { 0 } else { REFUSED }
}
