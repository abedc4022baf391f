//! A session: one IKE SA that is being worked on, and its environment.

use crate::environment::Environment;
use crate::output::{LogLevel, Reason, Time};
use crate::sa::IkeSa;

/// Works on one IKE SA, which was taken out of the endpoint's table. What it does to the outside
/// world it leaves with the [`Effects`](crate::environment::report::Effects) of its environment, in
/// order.
pub(crate) struct Session<'e> {
    pub(crate) now: Time,
    pub(crate) sa: &'e mut IkeSa,
    /// The environment, with the other IKE SAs.
    pub(crate) env: &'e mut Environment,
}

impl Session<'_> {
    /// A session of another IKE SA that is not in the table either.
    pub(crate) fn beside<'s>(&'s mut self, other: &'s mut IkeSa) -> Session<'s> {
        Session { now: self.now, sa: other, env: self.env }
    }

    /// The state of the SA changes; later messages depend on the change.
    pub(crate) fn commit(&mut self) {
        self.env.commit(self.sa);
    }

    /// Logs a line about the IKE SA.
    pub(crate) fn log(&mut self, level: LogLevel, message: impl Into<String>) {
        self.env.effects.log(self.sa, level, message);
    }

    /// Hands out a computation for a message of the IKE SA. `then` continues with the result,
    /// unless [`Environment::forget_jobs`] was called before.
    pub(crate) fn compute<T: Send + 'static>(
        &mut self,
        response: bool,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Session<'_>, T) -> Result<(), Reason> + Send + 'static,
    ) {
        self.env.compute_for_sa(self.now, self.sa, response, work, then);
    }

    /// [`Self::compute`], if the computation takes long. Otherwise it is done at once, because
    /// handing it over would take longer.
    pub(crate) fn compute_if<T: Send + 'static>(
        &mut self,
        takes_long: bool,
        response: bool,
        work: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Session<'_>, T) -> Result<(), Reason> + Send + 'static,
    ) -> Result<(), Reason> {
        if takes_long {
            self.compute(response, work, then);
            return Ok(());
        }
        then(self, work())
    }
}
