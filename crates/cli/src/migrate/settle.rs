//! The end of every migration: exactly one of the two runs.
//!
//! [`decide`] is the whole of the rules; the table in docs/how-to/migrate-vm.md is its table. The
//! destination is the one to keep if both run: it runs only after it has loaded everything, and a
//! source that runs beside it has resumed from the moment of the switch.
//!
//! A source whose migration has failed may have its last octets still in its kernel, which may
//! deliver them when the link comes back. So a destination that still waits gets `stop` first:
//! QEMU then does not start the virtual machine when it has loaded everything.

use super::vm::{Phase, Side, State, Vm};
use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// QEMU ends a migration within milliseconds once it has noticed its failure.
const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// What was done: the fence.
pub(super) const FENCED: &str = "told the destination not to start the virtual machine by itself";

/// What is known of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) source: State,
    pub(super) destination: State,
    /// How far the source says that the migration is.
    pub(super) sent: Phase,
    /// How far the destination says that it is.
    pub(super) received: Phase,
    /// The destination has been told not to start the virtual machine by itself.
    pub(super) fenced: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Exactly this one runs, and nothing that is under way changes that.
    Done(Side),
    /// QEMU is about to decide it.
    Wait,
    /// The destination shall not start the virtual machine by itself.
    Fence,
    Stop(Side),
    Continue(Side),
    /// Only an operator can decide it.
    Stuck(&'static str),
}

/// The next step. It never starts one while the other may run.
pub(super) fn decide(now: &Situation) -> Step {
    use State::{Gone, Incoming, Running, Stopped, Unknown};
    match (&now.source, &now.destination) {
        (Unknown(_), _) => Step::Stuck("the source does not answer, so it may run"),
        (_, Unknown(_)) => Step::Stuck("the destination does not answer, so it may run"),
        (Running, Running) => both_run(now.received),
        (Running, _) if now.sent == Phase::Active => Step::Wait,
        (Running, Incoming) if now.sent != Phase::None && !now.fenced => Step::Fence,
        (Running, _) => Step::Done(Side::Source),
        (Gone, Running) => Step::Done(Side::Destination),
        (_, Running) if now.sent == Phase::Active => Step::Wait,
        (_, Running) => Step::Done(Side::Destination),
        (Gone, other) => source_is_gone(other, now.received),
        (Stopped(_) | Incoming, other) => none_runs(other, now),
    }
}

fn both_run(received: Phase) -> Step {
    match received {
        Phase::Completed => Step::Stop(Side::Source),
        // The destination runs a moment before it says that the migration is complete.
        Phase::Active => Step::Wait,
        Phase::None | Phase::Failed | Phase::Cancelled => {
            Step::Stuck("both run, but the destination has not received the source's state")
        }
    }
}

fn source_is_gone(destination: &State, received: Phase) -> Step {
    match (destination, received) {
        (State::Stopped(_), Phase::Completed) => Step::Continue(Side::Destination),
        // What the source's kernel has not sent yet may still come.
        (State::Incoming, Phase::Active) => Step::Wait,
        _ => Step::Stuck("the source is gone, and the destination has not received its whole state"),
    }
}

/// Neither runs, and the source still exists.
fn none_runs(destination: &State, now: &Situation) -> Step {
    match (now.sent, destination) {
        (Phase::Active, _) => Step::Wait,
        (Phase::None, _) => Step::Stuck("neither runs, and there has been no migration: somebody stopped it"),
        (_, State::Stopped(_)) if now.received == Phase::Completed => Step::Continue(Side::Destination),
        (Phase::Completed, State::Gone) => Step::Stuck(
            "the destination took over and is gone: the source's state is older than what it wrote to disks",
        ),
        (Phase::Completed, _) => Step::Wait,
        (Phase::Failed | Phase::Cancelled, State::Incoming) if !now.fenced => Step::Fence,
        (Phase::Failed | Phase::Cancelled, _) => Step::Continue(Side::Source),
    }
}

/// How it has ended.
#[derive(Debug)]
pub(super) struct Settled {
    /// The one that runs, or why that is not known to be one.
    pub(super) runs: Result<Side, Unsettled>,
    /// What was done for it.
    pub(super) actions: Vec<String>,
}

/// Not exactly one is known to run.
#[derive(Debug, thiserror::Error)]
#[error("{reason}; source: {source_state}, destination: {destination_state}")]
pub(super) struct Unsettled {
    reason: String,
    source_state: State,
    destination_state: State,
}

/// Makes sure that exactly one runs. `fenced`: the destination has had its `stop` already.
pub(super) fn settle(source: &mut Vm, destination: &mut Vm, mut fenced: bool) -> Settled {
    let begun = Instant::now();
    let mut actions = Vec::new();
    loop {
        let now = look(source, destination, fenced);
        let step = decide(&now);
        let reason = match step {
            Step::Done(side) => return Settled { runs: Ok(side), actions },
            Step::Stuck(reason) => reason.to_owned(),
            _ if begun.elapsed() > LIMIT => {
                format!("not settled within {} seconds", LIMIT.as_secs())
            }
            Step::Wait => {
                sleep(POLL);
                continue;
            }
            step => match act(&step, source, destination) {
                Ok(done) => {
                    fenced |= step == Step::Fence;
                    actions.push(done);
                    continue;
                }
                Err(error) if error.is_gone() => continue,
                Err(error) => error.to_string(),
            },
        };
        let Situation { source: source_state, destination: destination_state, .. } = now;
        return Settled { runs: Err(Unsettled { reason, source_state, destination_state }), actions };
    }
}

/// The states are asked for after the phases: a phase that is final stays, and a state that was
/// asked for before might belong to the phase before.
fn look(source: &mut Vm, destination: &mut Vm, fenced: bool) -> Situation {
    let (sent, received) = (source.phase(), destination.phase());
    Situation { sent, received, source: source.state(), destination: destination.state(), fenced }
}

fn act(step: &Step, source: &mut Vm, destination: &mut Vm) -> Result<String, testudo_qmp::Error> {
    let (vm, command, done) = match step {
        Step::Stop(Side::Source) => {
            (source, "stop", "stopped the source: the destination runs with the newest state")
        }
        Step::Continue(Side::Source) => (source, "cont", "continued the source, which has the state"),
        Step::Continue(Side::Destination) => {
            (destination, "cont", "continued the destination, which has the state")
        }
        _ => (destination, "stop", FENCED),
    };
    vm.execute(command, json!({}))?;
    Ok(done.to_owned())
}
