//! `testudo load`: `swanctl --load-all` with a check before it, and with a confirmation before
//! every connection is unloaded.
//!
//! swanctl unloads what the file does not name, and reports success: an include that matches no
//! file would unload every connection, in a cluster on all nodes.

use crate::check::{self, NOTHING, REFUSED};
use crate::daemon::{self, DaemonArgs};
use crate::{cluster, confirm, external};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{self, Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::conf::Report;
use testudo_vici::message::Message;

/// Most connections that the question names.
const MAX_NAMED: usize = 10;
/// Where Debian has swanctl, for a PATH without the directories of administrators.
const DEBIAN_SWANCTL: &str = "/usr/sbin/swanctl";

/// What to load.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 1 nothing was loaded, because some would be refused (see --partial) or testudod \
                        does not answer; 2 nothing was loaded, because it would unload every connection; otherwise \
                        that of swanctl, or 127 if there is no swanctl."
)]
pub(crate) struct LoadArgs {
    /// The file, with all that it includes.
    #[arg(value_name = "FILE", default_value = "/etc/swanctl/swanctl.conf")]
    file: PathBuf,
    /// Does not ask before every connection is unloaded.
    #[arg(long)]
    yes: bool,
    /// Loads the rest if some would be refused.
    #[arg(long)]
    partial: bool,
    /// Waits for a testudod that is still starting up to this many seconds longer than for another.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Allows weak algorithms in the check, as legacy = true in testudo.toml does.
    #[arg(long)]
    legacy: bool,
    /// The daemon's VICI socket.
    #[arg(long, value_name = "PATH", default_value = daemon::SOCKET)]
    socket: PathBuf,
}

/// What the daemon has loaded.
struct Loaded {
    connections: Vec<String>,
    /// True if a load here is one on all nodes of a cluster.
    on_all_nodes: bool,
}

/// Checks, asks, and becomes swanctl.
pub(crate) fn run(args: &LoadArgs) -> ExitCode {
    match prepare(args) {
        Ok(mut swanctl) => external::become_program("testudo load", &mut swanctl),
        Err(code) => code,
    }
}

fn prepare(args: &LoadArgs) -> Result<Command, ExitCode> {
    let report = checked(args)?;
    let Some(swanctl) = swanctl() else {
        let why = "there is no program swanctl in PATH; on Debian it is in the package strongswan-swanctl";
        return Err(stop(external::NOT_FOUND, why));
    };
    let daemon = DaemonArgs::of(&args.socket).waiting(Duration::from_secs(args.wait));
    let loaded = daemon::ask("load", &daemon, |client, _| ask(client))?;
    if let Some(loss) = loss(&loaded, &report)
        && !args.yes
    {
        confirmed(&format!("loading {} would {loss}", args.file.display()))?;
    }
    command(args, &swanctl).map_err(|error| stop(REFUSED, &format!("{}: {error}", args.file.display())))
}

/// Prints what `testudo check` prints. The report of a file that may be loaded.
fn checked(args: &LoadArgs) -> Result<Report, ExitCode> {
    let report = check::on_disk(args.legacy).run(&args.file);
    if !check::print(&args.file, &report) {
        return Err(stop(NOTHING, "nothing was loaded"));
    }
    if !report.loads() && !args.partial {
        return Err(stop(REFUSED, "nothing was loaded; --partial loads what would not be refused"));
    }
    Ok(report)
}

fn ask(client: &mut Client) -> Result<Loaded, Error> {
    let answer = client.request("get-conns", Message::new())?;
    // More names than fit into an answer are refused. swanctl then unloads nothing.
    let connections = answer.texts("conns").map(str::to_owned).collect();
    let on_all_nodes = cluster::ask(client)?.is_some_and(|report| report.replicate_config);
    Ok(Loaded { connections, on_all_nodes })
}

/// What must be confirmed: that every connection goes, or some do while a file could not be read
/// that may have them.
fn loss(loaded: &Loaded, report: &Report) -> Option<String> {
    let named: BTreeSet<&str> = report.named.iter().map(String::as_str).collect();
    let is_named = |name: &&str| named.contains(name);
    let (stay, go): (Vec<&str>, Vec<&str>) =
        loaded.connections.iter().map(String::as_str).partition(is_named);
    if go.is_empty() || !(stay.is_empty() || report.lacks_include) {
        return None;
    }
    let what = match stay.len() {
        0 => "every connection".to_owned(),
        stay => format!("{} of {} connections", go.len(), go.len() + stay),
    };
    let nodes = if loaded.on_all_nodes { " on all nodes" } else { "" };
    let more = if go.len() > MAX_NAMED { " and more" } else { "" };
    let names = go.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    Some(format!("unload {what}{nodes} ({names}{more})"))
}

fn confirmed(loss: &str) -> Result<(), ExitCode> {
    if !confirm::is_possible() {
        return Err(stop(NOTHING, &format!("{loss}; {}", confirm::IMPOSSIBLE)));
    }
    match confirm::ask(&format!("{loss}; go on? [y/N] ")) {
        Ok(true) => Ok(()),
        Ok(false) => Err(stop(NOTHING, "nothing was loaded")),
        Err(error) => Err(stop(NOTHING, &error.to_string())),
    }
}

fn swanctl() -> Option<PathBuf> {
    let debian = || Some(PathBuf::from(DEBIAN_SWANCTL)).filter(|path| path.exists());
    external::in_path(OsStr::new("swanctl")).or_else(debian)
}

/// The file is always named: `SWANCTL_DIR` would have swanctl load another one than was checked.
fn command(args: &LoadArgs, swanctl: &Path) -> std::io::Result<Command> {
    let mut uri = OsString::from("unix://");
    uri.push(path::absolute(&args.socket)?);
    let mut command = Command::new(swanctl);
    command.arg("--load-all").arg("--file").arg(path::absolute(&args.file)?).arg("--uri").arg(uri);
    if !confirm::is_possible() {
        // Or swanctl would wait for the passphrase of a key.
        command.arg("--noprompt");
    }
    Ok(command)
}

fn stop(code: u8, why: &str) -> ExitCode {
    eprintln!("testudo load: {why}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss_of(loaded: &[&str], on_all_nodes: bool, named: &[&str], lacks_include: bool) -> Option<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let report = Report { named: owned(named), lacks_include, ..Report::default() };
        loss(&Loaded { connections: owned(loaded), on_all_nodes }, &report)
    }

    #[test]
    fn only_a_load_that_leaves_nothing_needs_a_yes() {
        assert_eq!(loss_of(&[], true, &[], true), None, "nothing is there to go");
        assert_eq!(loss_of(&["a", "b"], false, &["b", "c"], false), None, "one stays");
        assert_eq!(loss_of(&["a"], false, &["a"], true), None, "all stay");
        let all = Some("unload every connection (a, b)".to_owned());
        assert_eq!(loss_of(&["a", "b"], false, &[], false), all);
        assert_eq!(loss_of(&["a", "b"], false, &["c"], false), all);
        let everywhere = Some("unload every connection on all nodes (a)".to_owned());
        assert_eq!(loss_of(&["a"], true, &[], false), everywhere);
    }

    #[test]
    fn an_include_that_cannot_be_read_may_have_had_what_goes() {
        let some = Some("unload 1 of 2 connections (a)".to_owned());
        assert_eq!(loss_of(&["a", "b"], false, &["b"], true), some);
    }

    #[test]
    fn a_question_stays_short() {
        let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let loss = loss_of(&names, false, &[], false).unwrap();
        assert!(loss.ends_with("c8, c9 and more)"), "{loss}");
    }
}
