//! How a gateway ends: it is asked to, or cannot go on.

use super::Gateway;
use crate::error::{Error, Result};
use crate::ike::Ike;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testudo_ike::output::LogLevel;

/// Whether a gateway ends, and why.
#[derive(Default)]
pub(crate) struct Ending {
    /// A signal asks for the end.
    pub(crate) called: Arc<AtomicBool>,
    /// The end has begun: nothing new comes up.
    begun: bool,
    /// A node of a cluster ends without giving its shards away first.
    leaves_at_once: bool,
    /// The gateway cannot go on.
    failed: bool,
    /// The reason, until [`Ending::take_failure`] has taken it.
    failure: Option<Error>,
}

impl Ending {
    /// True once the end has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// True from a signal that asks for the end until the end has begun: whatever takes long leaves
    /// the rest for later.
    pub(crate) fn is_called_for(&self) -> bool {
        !self.begun && self.called.load(Ordering::Relaxed)
    }

    /// [`Self::is_called_for`], for work during which the gateway is lent out.
    pub(crate) fn call(&self) -> impl Fn() -> bool + use<> {
        let (begun, called) = (self.begun, Arc::clone(&self.called));
        move || !begun && called.load(Ordering::Relaxed)
    }

    /// The gateway cannot go on, and does nothing more that the cluster asks for.
    pub(crate) fn fail(&mut self, why: Error) {
        if !self.failed {
            self.failed = true;
            self.failure = Some(why);
        }
    }

    /// True once the gateway cannot go on.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Why it cannot go on: said once.
    pub(crate) fn take_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Gateway {
    /// Begins the end: nothing new comes up, and every SA goes within that time. Those of a cluster
    /// stay: the other nodes carry them on, and are given them before, if that is possible.
    pub(crate) fn shut_down(&mut self, within: Duration, possible: bool) {
        self.ending.begun = true;
        match &mut self.endpoint {
            Ike::Member(member) => {
                let drained = if possible { member.leave(self.now) } else { Ok(()) };
                self.ending.leaves_at_once = !possible || drained.is_err();
                if let Err(error) = drained {
                    self.log(
                        None,
                        None,
                        LogLevel::Warning,
                        format!("leaves the cluster with what it has: {error}"),
                    );
                }
            }
            Ike::Alone(endpoint) => endpoint.shut_down(self.now, within),
        }
        self.settle();
    }

    /// True if nothing is left to be told to the peers, or given to the other nodes.
    pub(crate) fn is_gone(&mut self) -> bool {
        if let Ike::Member(member) = &mut self.endpoint {
            return self.ending.leaves_at_once || member.is_empty_handed(self.now);
        }
        self.endpoint.names().next().is_none() && !self.has_notes()
    }

    /// Says how many packets were dropped, and why: the counters end with the process.
    pub(crate) fn say_what_was_dropped(&self) {
        let drops = self.data.counters().drops;
        let counted = drops.iter().filter(|(_, count)| *count > 0);
        let said: Vec<String> = counted.map(|(reason, count)| format!("{reason} {count}")).collect();
        if !said.is_empty() {
            tracing::info!("packets dropped since the start: {}", said.join(", "));
        }
    }
}
