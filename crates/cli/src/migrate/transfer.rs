//! The migration itself: begun here, carried out by the two QEMUs, watched, and cancelled.
//!
//! QEMU does all of it alone once it has begun, so the end of this program changes nothing: the
//! source goes on to send, and both switch by themselves. With `return-path` the source counts the
//! migration as complete only when the destination has loaded everything and says so; until then
//! it keeps the virtual machine.
//!
//! ```text
//! begin ──> active ──> switch ──> completed     the destination runs
//!              │          │
//!              ├──────────┴─────> failed        the source goes on
//!              └── cancel ──────> cancelled     the source goes on
//! ```
//!
//! A cancelled source goes on by itself, even if the destination has just loaded everything. So
//! the destination is fenced first ([`Transfer::break_off`]).

use super::load::Loads;
use super::path::hold::Hold;
use super::vm::{Migration, Phase, Side, State, Vm};
use super::watch::{Watch, WatchEnd};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_qmp::Error;
use testudo_terminal::progress::Progress;
use testudo_terminal::units::bytes;

#[cfg(test)]
mod tests;

const CANCEL: &str = "migrate_cancel";
const POLL: Duration = Duration::from_millis(100);
/// How long QEMU may take from the end of a migration to its figures.
const FIGURES_LIMIT: Duration = Duration::from_secs(2);

/// What the operator wants of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// Connections beside the first; none: all goes by one.
    pub(super) multifd: Option<u8>,
    /// Octets a second.
    pub(super) max_bandwidth: u64,
    /// The longest pause of the virtual machine at the switch, in milliseconds.
    pub(super) downtime_ms: u64,
}

/// Why a migration was cancelled, or was to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("interrupted")]
    Interrupted,
    #[error("somebody else has cancelled it")]
    SomebodyElse,
    #[error("no progress for {} seconds", .0.as_secs())]
    Stalled(Duration),
    #[error(transparent)]
    Watch(#[from] WatchEnd),
}

/// How it has ended, as far as QEMU is concerned.
#[derive(Debug)]
pub(super) enum End {
    Completed(Migration),
    /// With QEMU's reason.
    Failed(String),
    Cancelled(Cause),
    /// The source's QEMU has ended.
    SourceGone,
    /// Neither completed nor cancelled in time: one of the two cannot be asked.
    Undecided(Cause),
}

/// Both QEMUs during a migration.
pub(super) struct Transfer<'a, 'b> {
    pub(super) source: &'a mut Vm,
    pub(super) destination: &'a mut Vm,
    /// None: nobody watches.
    pub(super) watch: Option<&'a mut Watch>,
    /// None: the testudods have not been told what the path takes.
    pub(super) hold: Option<&'a mut Hold<'b>>,
    pub(super) loads: &'a mut Loads,
    /// Set by a signal.
    pub(super) interrupted: &'a AtomicBool,
    /// A migration without progress for that long is cancelled.
    pub(super) stall: Duration,
    /// The longest pause of the virtual machine that is allowed. QEMU may not answer in it.
    pub(super) pause: Duration,
    /// The destination does not start the virtual machine by itself any more.
    pub(super) fenced: bool,
}

/// What [`Transfer::break_off`] has found and done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakOff {
    /// The source has been told to cancel. It may not have answered: it does so later, when it
    /// answers again.
    Told,
    /// The destination has everything.
    TooLate,
    /// It cannot be known whether the destination has everything.
    Unclear,
}

/// How far a cancellation is. An alarm is read only once, so its cause is kept.
#[derive(Default)]
struct Cancellation {
    /// What could not be acted upon yet.
    due: Option<Cause>,
    /// Why the source has been told.
    told: Option<Cause>,
}

impl Cancellation {
    /// Why a source that has cancelled has done so.
    fn cause(self) -> Cause {
        self.told.or(self.due).unwrap_or(Cause::SomebodyElse)
    }
}

/// Sets both QEMUs up.
pub(super) fn set_up(source: &mut Vm, destination: &mut Vm, wishes: &Wishes) -> Result<(), Error> {
    for vm in [source, destination] {
        let capabilities: Vec<_> =
            [("events", true), ("return-path", true), ("multifd", wishes.multifd.is_some())]
                .map(|(capability, state)| json!({ "capability": capability, "state": state }))
                .into();
        vm.execute("migrate-set-capabilities", json!({ "capabilities": capabilities }))?;
        let mut parameters =
            json!({ "max-bandwidth": wishes.max_bandwidth, "downtime-limit": wishes.downtime_ms });
        if let (Some(channels), Some(parameters)) = (wishes.multifd, parameters.as_object_mut()) {
            parameters.insert("multifd-channels".to_owned(), channels.into());
        }
        vm.execute("migrate-set-parameters", parameters)?;
    }
    Ok(())
}

/// Begins. Fails with the side that did not do its part.
pub(super) fn begin(source: &mut Vm, destination: &mut Vm, to: SocketAddr) -> Result<(), (Side, Error)> {
    let uri = json!({ "uri": format!("tcp:{to}") });
    let listens = destination.execute("migrate-incoming", uri.clone());
    listens.map_err(|error| (Side::Destination, error))?;
    source.execute("migrate", uri).map(drop).map_err(|error| (Side::Source, error))
}

/// Takes a begin back that has failed in this way. The destination may listen, and a source that
/// has not answered may begin later: its monitor takes commands in order, so it cancels then. Who
/// refuses will not begin. Returns whether the destination is fenced.
pub(super) fn withdraw(source: &mut Vm, destination: &mut Vm, (side, error): &(Side, Error)) -> bool {
    if matches!(error, Error::Refused { .. }) {
        return false;
    }
    // A virtual machine that runs there has come by itself, or with somebody else.
    let fenced = destination.state() == State::Incoming && destination.execute("stop", json!({})).is_ok();
    if let (true, State::Stopped(_)) = (fenced, destination.state()) {
        // It has just loaded everything. If this fails, the end of the migration repeats it.
        let _ = destination.execute("cont", json!({}));
        return false;
    }
    if *side == Side::Source {
        // Its state, which is looked at next, shows whether this has worked.
        let _ = source.execute(CANCEL, json!({}));
    }
    fenced
}

impl Transfer<'_, '_> {
    /// Follows it to its end, and cancels it if there is a cause.
    pub(super) fn follow(&mut self, progress: &Progress) -> End {
        progress.begin("migration", 0);
        let mut cancellation = Cancellation::default();
        let (mut sent, mut moved) = (0, Instant::now());
        loop {
            let (migration, patience) = match self.source.migration() {
                Ok(migration) => (migration, self.stall),
                Err(error) if error.is_gone() => return End::SourceGone,
                // It may answer the next time. While it sends what is left in the pause, it does not.
                Err(_) => {
                    let unknown = Migration { phase: Phase::Active, answer: json!(null) };
                    (unknown, self.stall + self.pause)
                }
            };
            match migration.phase {
                Phase::Active => {}
                Phase::Completed => return self.completed(migration),
                Phase::Cancelled => return End::Cancelled(cancellation.cause()),
                Phase::Failed | Phase::None => return failed(&migration, cancellation.told),
            }
            progress.doing(describe(&migration));
            self.loads.look();
            let transferred = migration.number("/ram/transferred");
            if transferred > sent {
                (sent, moved) = (transferred, Instant::now());
            }
            let stalled_for = (moved.elapsed() > patience).then_some(patience);
            let was_told = cancellation.told.is_some();
            if let Some(end) = self.pursue(&mut cancellation, stalled_for) {
                return end;
            }
            if cancellation.told.is_some() && !was_told {
                // It has its own time to end.
                moved = Instant::now();
            }
            if let Some(hold) = &mut self.hold {
                hold.look();
            }
            sleep(POLL);
        }
    }

    /// QEMU has the last figures only after it has said that the migration is complete.
    fn completed(&mut self, mut migration: Migration) -> End {
        let begun = Instant::now();
        while migration.number("/total-time") == 0 && begun.elapsed() < FIGURES_LIMIT {
            sleep(POLL);
            if let Ok(later) = self.source.migration() {
                migration = later;
            }
        }
        End::Completed(migration)
    }

    /// Cancels if there is a cause. Returns the end of what cannot be waited for any longer.
    fn pursue(&mut self, cancellation: &mut Cancellation, stalled_for: Option<Duration>) -> Option<End> {
        let is_stalled = stalled_for.is_some();
        if cancellation.told.is_some() {
            return cancellation.told.take_if(|_| is_stalled).map(End::Undecided);
        }
        let cause = cancellation.due.take().or_else(|| self.cause(stalled_for))?;
        match self.break_off() {
            BreakOff::Told => cancellation.told = Some(cause),
            BreakOff::Unclear if is_stalled => return Some(End::Undecided(cause)),
            BreakOff::TooLate if is_stalled => return Some(self.abandon_source(cause)),
            BreakOff::TooLate | BreakOff::Unclear => cancellation.due = Some(cause),
        }
        None
    }

    fn cause(&mut self, stalled_for: Option<Duration>) -> Option<Cause> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some(Cause::Interrupted);
        }
        if let Some(Err(end)) = self.watch.as_mut().map(|watch| watch.look()) {
            return Some(end.into());
        }
        stalled_for.map(Cause::Stalled)
    }

    /// Cancels the migration unless the destination has everything. The destination gets `stop`
    /// first: while it waits for the rest this makes QEMU load everything without starting the
    /// virtual machine. So however late the cancellation is, the source alone goes on.
    fn break_off(&mut self) -> BreakOff {
        if self.destination.state() == State::Running {
            return BreakOff::TooLate;
        }
        // Whether it has worked shows the state behind it.
        let stopped = self.destination.execute("stop", json!({}));
        match self.destination.state() {
            State::Incoming if stopped.is_ok() => self.fenced = true,
            State::Gone => {}
            State::Running => return BreakOff::TooLate,
            // It has just loaded everything. If this fails, the end of the migration repeats it.
            State::Stopped(_) => {
                let _ = self.destination.execute("cont", json!({}));
                return BreakOff::TooLate;
            }
            State::Incoming | State::Unknown(_) => return BreakOff::Unclear,
        }
        match self.source.execute(CANCEL, json!({})) {
            Ok(_) => BreakOff::Told,
            // From here on the destination must stay fenced: the source goes on when it obeys.
            Err(Error::Timeout { command, .. }) if command == CANCEL => BreakOff::Told,
            Err(_) => BreakOff::Unclear,
        }
    }

    /// The destination runs, and its message that it does so cannot reach the source. The source
    /// would go on when its connection fails, so its QEMU is ended. It has not run since the
    /// switch.
    fn abandon_source(&mut self, cause: Cause) -> End {
        if self.source.state() == State::Running {
            return End::Undecided(cause);
        }
        match self.source.execute("quit", json!({})) {
            Ok(_) => End::SourceGone,
            Err(error) if error.is_gone() => End::SourceGone,
            Err(_) => End::Undecided(cause),
        }
    }
}

/// A migration that was cancelled may end as a failed one.
fn failed(migration: &Migration, told: Option<Cause>) -> End {
    match told {
        Some(cause) => End::Cancelled(cause),
        None => End::Failed(migration.error().unwrap_or("QEMU gives no reason").to_owned()),
    }
}

/// The text of the progress line.
fn describe(migration: &Migration) -> String {
    let page = migration.number("/ram/page-size");
    format!(
        "migration: {} sent, {} left, {} a second rewritten, {} ms of pause expected",
        bytes(migration.number("/ram/transferred")),
        bytes(migration.number("/ram/remaining")),
        bytes(migration.number("/ram/dirty-pages-rate").saturating_mul(page)),
        migration.number("/expected-downtime"),
    )
}

impl End {
    /// For programs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled(_) => "cancelled",
            Self::SourceGone => "source-gone",
            Self::Undecided(_) => "undecided",
        }
    }

    /// Why it has not completed.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Completed(_) => None,
            Self::Failed(reason) => Some(reason.clone()),
            Self::Cancelled(cause) | Self::Undecided(cause) => Some(cause.to_string()),
            Self::SourceGone => Some(format!("the {}'s QEMU has ended", Side::Source)),
        }
    }
}
