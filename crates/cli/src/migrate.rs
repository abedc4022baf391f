//! `testudo migrate`: moves a running QEMU virtual machine to another host through a Child SA, and
//! makes sure that it runs at exactly one of the two.
//!
//! It examines four requirements before anything changes ([`examine`]), lets the two QEMUs do the
//! migration ([`transfer`]), and at the end, whatever has happened, looks at both ([`settle`]).
//! Between the begin and the end QEMU goes on alone: a command that is killed does no harm, and
//! `testudo migrate --verify` does what it would have done at its end.

mod audit;
mod caller;
mod channel;
mod clear;
mod examine;
mod identity;
mod load;
mod meter;
mod multifd;
mod path;
mod policy;
mod probe;
mod report;
mod requirement;
#[cfg(test)]
mod scripted;
mod settle;
mod transfer;
mod vm;
mod watch;

use channel::ChildSa;
use load::Loads;
use meter::Meter;
use multifd::Multifd;
use path::Path;
use path::hold::{self, Hold};
use policy::{Action, Policy};
use report::Report;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testudo_terminal::progress::Progress;
use transfer::{End, Transfer, Wishes};
use vm::{Phase, Side, State, Vm};
use watch::{CancelOn, Watch};

/// What QEMU takes at most, in milliseconds.
const MAX_DOWNTIME_MS: u64 = 2_000_000;

/// What to migrate, and how.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the virtual machine runs at the destination alone, or with --verify at one of the two \
                  alone; 1 it does not, or the migration was refused."
)]
pub(crate) struct MigrateArgs {
    /// The monitor (QMP) of the QEMU that runs the virtual machine.
    #[arg(long, value_name = "PATH")]
    source_qmp: PathBuf,
    /// The monitor of the QEMU that waits for it (-incoming defer).
    #[arg(long, value_name = "PATH")]
    destination_qmp: PathBuf,
    /// The destination's address.
    #[arg(long, value_name = "ADDRESS", required_unless_present = "verify")]
    to: Option<IpAddr>,
    /// The TCP port of the migration.
    #[arg(long, default_value_t = 49152)]
    port: u16,
    /// The VICI socket of the source's testudod.
    #[arg(long, value_name = "PATH", default_value = "/run/testudo/vici.sock")]
    source_vici: PathBuf,
    /// The VICI socket of the destination's testudod.
    #[arg(long, value_name = "PATH", default_value = "/run/testudo/destination-vici.sock")]
    destination_vici: PathBuf,
    /// Who may migrate what.
    #[arg(long, value_name = "FILE", default_value = "/etc/testudo/migration.toml")]
    policy: PathBuf,
    /// Sends memory by this number of further connections, by none (off), or by as many as workers
    /// and processors of both hosts allow (auto).
    #[arg(long, value_name = "N", default_value = "auto")]
    multifd: Multifd,
    /// The most octets a second.
    #[arg(long, value_name = "OCTETS", default_value_t = 12_500_000_000)]
    max_bandwidth: u64,
    /// The longest pause of the virtual machine at the switch that is allowed.
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=MAX_DOWNTIME_MS))]
    downtime: u64,
    /// Cancels a migration that makes no progress for that long.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    stall: u64,
    /// The alarms that cancel the migration.
    #[arg(long, value_name = "SEVERITY", default_value = "critical")]
    cancel_on: CancelOn,
    /// Begins nothing: waits for the end of a migration, and makes sure that exactly one runs.
    #[arg(long)]
    verify: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

impl MigrateArgs {
    /// The VICI sockets of both testudods.
    fn daemons(&self) -> [(Side, &std::path::Path); 2] {
        [(Side::Source, &self.source_vici), (Side::Destination, &self.destination_vici)]
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum MigrateError {
    #[error("QEMU at the {side}: {error}")]
    Qemu { side: Side, error: testudo_qmp::Error },
    #[error("the virtual machine at the source is {0}, expected running")]
    NotRunning(State),
    #[error(
        "the virtual machine at the destination is {0}, expected waiting for a migration: start QEMU with -incoming defer"
    )]
    NotWaiting(State),
    #[error(
        "{source_name:?} at the source and {destination_name:?} at the destination are not one virtual machine: start both QEMUs with the same -name and -uuid"
    )]
    Strangers { source_name: String, destination_name: String },
    #[error("{0}")]
    Unauthorised(String),
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Migrates, or verifies; failures go to standard error.
pub(crate) fn run(args: &MigrateArgs) -> ExitCode {
    let done = match args.to.filter(|_| !args.verify) {
        Some(to) => migrate(args, SocketAddr::new(to, args.port)),
        None => verify(args),
    };
    match done.and_then(|(report, good)| print(args, &report).map(|()| good)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // There may be no room for this either.
            let _ = writeln!(io::stderr(), "testudo migrate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: &MigrateArgs, report: &Report) -> Result<(), MigrateError> {
    let shown = if args.json { serde_json::to_string_pretty(report)? + "\n" } else { report.text() };
    Ok(io::stdout().lock().write_all(shown.as_bytes())?)
}

/// The whole migration, and whether the virtual machine runs at the destination alone.
fn migrate(args: &MigrateArgs, to: SocketAddr) -> Result<(Report, bool), MigrateError> {
    let (mut source, mut destination) = both(args);
    let (vm, uuid) = ready(&mut source, &mut destination)?;
    let mut report = Report { vm, ..Report::default() };
    let mut examined = examine::requirements(args, &report.vm, to);
    if !args.json {
        let lines: String = examined.requirements.iter().map(|one| one.line() + "\n").collect();
        // The report says it again, and the decision is made: no full disk may end it here.
        let _ = io::stdout().lock().write_all(lines.as_bytes());
    }
    let met = examined.is_met();
    report.requirements = examined.requirements;
    if !met {
        report.result = Some("refused");
        report.reason = Some("a requirement is not met; nothing was changed".to_owned());
        return Ok((report, false));
    }
    let interrupted = interruptions()?;
    let mut hold = None;
    if let Some(meter) = &examined.meter {
        let (path, held) = fit(args, &meter.sa, to.ip(), hold::holder(&report.vm, &uuid));
        (report.path, hold) = (Some(path), held);
    }
    let multifd = multifd::choose(args, &mut source, &mut destination);
    let wishes =
        Wishes { multifd: multifd.channels, max_bandwidth: args.max_bandwidth, downtime_ms: args.downtime };
    report.multifd = Some(multifd);
    // Without a new begin it counts from the probe on.
    let _uncounted = examined.meter.as_mut().map(Meter::begin);
    if interrupted.load(Ordering::Relaxed) {
        report.result = Some("cancelled");
        report.reason = Some("interrupted before it began; both QEMUs are as they were".to_owned());
    } else if let Err(error) = transfer::set_up(&mut source, &mut destination, &wishes) {
        report.end(&End::Failed(error.to_string()));
        report.settle(settle::settle(&mut source, &mut destination, false));
    } else if let Err(failed) = transfer::begin(&mut source, &mut destination, to) {
        report.end(&End::Failed(failed.1.to_string()));
        let fenced = transfer::withdraw(&mut source, &mut destination, &failed);
        report.settle(settle::settle(&mut source, &mut destination, fenced));
        report.actions.splice(0..0, fenced.then(|| settle::FENCED.to_owned()));
    } else {
        let mut meter = examined.meter;
        let beside = Beside { watch: examined.watch, hold: hold.as_mut() };
        conclude(args, (source, destination), beside, &interrupted, &mut report);
        report.packets = meter.as_mut().and_then(|meter| meter.read().ok());
    }
    if let (Some(hold), Some(path)) = (hold, &mut report.path) {
        path.restored = hold.end();
    }
    let good = report.runs_at == Some(Side::Destination);
    Ok((report, good))
}

/// Searches the MTU of the path, and tells both testudods if it is less than what is sent.
fn fit<'a>(args: &'a MigrateArgs, sa: &ChildSa, to: IpAddr, holder: String) -> (Path, Option<Hold<'a>>) {
    let mut path = Path::search(to);
    let Some(mtu) = path.mtu.filter(|_| path.is_narrow()) else { return (path, None) };
    let mut hold = Hold::begin(holder, mtu);
    for (side, socket) in args.daemons() {
        let remote = match side {
            Side::Source => sa.remote.address,
            Side::Destination => sa.local.address,
        };
        if let Err(error) = hold.tell(side, socket, remote) {
            complain(side, &error);
        }
    }
    path.told = hold.told().to_vec();
    (path, Some(hold))
}

fn complain(side: Side, error: &testudo_vici::Error) {
    let _ = writeln!(io::stderr(), "testudo migrate: testudod of the {side}: {error}");
}

/// Waits for the end of a migration that may be under way, and whether exactly one runs.
fn verify(args: &MigrateArgs) -> Result<(Report, bool), MigrateError> {
    let (mut source, mut destination) = both(args);
    // One of the two may be gone.
    let named = identity_of(&mut source).or_else(|error| identity_of(&mut destination).map_err(|_| error));
    let (vm, uuid) = named?;
    examine::authorised(args, &Policy::read(&args.policy), &vm, Action::Terminate)
        .map_err(|refusal| MigrateError::Unauthorised(format!("{}; {}", refusal.found, refusal.remedy)))?;
    if let (Ok(_), Ok(_)) = (source.name(), destination.name()) {
        same(&mut source, &mut destination)?;
    }
    let holder = hold::holder(&vm, &uuid);
    let mut report = Report { vm, ..Report::default() };
    let interrupted = interruptions()?;
    match source.phase() {
        Phase::Active => {
            conclude(args, (source, destination), Beside::default(), &interrupted, &mut report);
        }
        _ => report.settle(settle::settle(&mut source, &mut destination, false)),
    }
    // A command that was killed may have left it.
    for (side, socket) in args.daemons() {
        if let Err(error) = hold::release(socket, &holder) {
            complain(side, &error);
        }
    }
    let good = report.runs_at.is_some();
    Ok((report, good))
}

/// What goes on beside a migration.
#[derive(Default)]
struct Beside<'a, 'b> {
    /// None: nobody watches.
    watch: Option<Watch>,
    /// None: the testudods have not been told what the path takes.
    hold: Option<&'a mut Hold<'b>>,
}

/// Follows a migration to its end, and makes sure that exactly one runs.
fn conclude(
    args: &MigrateArgs,
    (mut source, mut destination): (Vm, Vm),
    mut beside: Beside<'_, '_>,
    interrupted: &AtomicBool,
    report: &mut Report,
) {
    let mut loads = Loads::begin(args.daemons());
    let mut transfer = Transfer {
        source: &mut source,
        destination: &mut destination,
        watch: beside.watch.as_mut(),
        hold: beside.hold.as_deref_mut(),
        loads: &mut loads,
        interrupted,
        stall: Duration::from_secs(args.stall),
        pause: Duration::from_millis(args.downtime),
        fenced: false,
    };
    let progress = Progress::new();
    let end = transfer.follow(&progress);
    let fenced = transfer.fenced;
    report.end(&end);
    report.loads = loads.end();
    progress.begin("making sure that exactly one runs", 0);
    report.settle(settle::settle(&mut source, &mut destination, fenced));
}

fn both(args: &MigrateArgs) -> (Vm, Vm) {
    let of = |side, socket: &PathBuf| Vm::new(side, socket.clone());
    (of(Side::Source, &args.source_qmp), of(Side::Destination, &args.destination_qmp))
}

/// The name and UUID of the virtual machine, if it runs at the source and is awaited at the
/// destination.
fn ready(source: &mut Vm, destination: &mut Vm) -> Result<(String, String), MigrateError> {
    let identity = same(source, destination)?;
    match source.state() {
        State::Running => {}
        other => return Err(MigrateError::NotRunning(other)),
    }
    match destination.state() {
        State::Incoming => Ok(identity),
        other => Err(MigrateError::NotWaiting(other)),
    }
}

/// The name and UUID of both, if they are meant to be one virtual machine.
fn same(source: &mut Vm, destination: &mut Vm) -> Result<(String, String), MigrateError> {
    let (ours, theirs) = (identity_of(source)?, identity_of(destination)?);
    if ours == theirs {
        return Ok(ours);
    }
    Err(MigrateError::Strangers { source_name: ours.0, destination_name: theirs.0 })
}

fn identity_of(vm: &mut Vm) -> Result<(String, String), MigrateError> {
    let found = vm.name().and_then(|name| Ok((name, vm.uuid()?)));
    found.map_err(|error| MigrateError::Qemu { side: vm.side(), error })
}

/// Set by SIGINT and SIGTERM, which cancel a migration.
fn interruptions() -> Result<Arc<AtomicBool>, MigrateError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(MigrateError::Signals)?;
    }
    Ok(interrupted)
}
