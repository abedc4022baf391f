//! Timers: IKE SAs whose deadline has come, and initiations that are due.

use crate::endpoint::Endpoint;
use crate::environment::report::{DETAIL, FAILURE};
use crate::output::Time;

impl Endpoint {
    /// Does what is due, or as much of it as fits into one go. Call it when
    /// [`Endpoint::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.env.names.run(now);
        self.run_starts(now);
        self.run_timers(now);
    }

    /// When something is due next.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.env.table.next_deadline(), self.env.starts.next(), self.env.names.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Serves IKE SAs whose deadline has come, each once.
    pub(crate) fn run_timers(&mut self, now: Time) {
        for id in self.env.table.due(now) {
            self.env.with_sa(now, id, |session| session.fire());
        }
    }

    /// Initiates the children that are due.
    pub(crate) fn run_starts(&mut self, now: Time) {
        for (connection, child) in self.env.starts.due(now) {
            if self.env.home_of(&connection, &child).is_none() {
                // Another node starts it; here it waits in case its shard comes to this node.
                continue;
            }
            if let Err(error) = self.initiate(now, Some(&connection), &child) {
                self.env.effects.log_connection(
                    &connection,
                    FAILURE,
                    format!("cannot initiate {child}: {error}"),
                );
                self.env.loaded.connections.note_failure(now, &connection, &child, error.to_string());
                self.env.starts.schedule(&connection, &child, now.plus(self.env.config.start_retry));
            } else {
                self.env.effects.log_connection(&connection, DETAIL, format!("initiated {child} by itself"));
            }
        }
    }
}
