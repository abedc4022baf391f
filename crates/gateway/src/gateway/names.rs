//! DNS names of connections: the names that the endpoint wants resolved, and the answers.

use super::Gateway;
use std::time::Instant;
use testudo_vici::shut::Cause;

impl Gateway {
    /// Begins to resolve the names that the endpoint asks for.
    pub(super) fn look_names_up(&mut self) {
        let names = self.endpoint.take_names();
        if !names.is_empty() {
            self.resolver.ask(names, Instant::now());
        }
    }

    /// Goes on with the connections whose names are resolved.
    pub(crate) fn names_done(&mut self) {
        let answers = self.resolver.done(Instant::now());
        if answers.is_empty() {
            return;
        }
        for (name, result) in answers {
            for connection in self.endpoint.resolved(self.now, &name, result) {
                self.policies_follow(&connection);
            }
        }
        self.settle();
    }

    /// The selectors of a loaded connection have changed.
    pub(crate) fn policies_follow(&mut self, name: &str) {
        let Some(connection) = self.endpoint.connection(name).cloned() else { return };
        let outdated = self.endpoint.outdated_children(name);
        self.change_policies(Cause::ConnectionChanged(name.to_owned()), |policies| {
            policies.load(&connection);
            policies.stand_in(name, &outdated);
        });
        self.protection_changed |= self.data.claim_inherited();
    }
}
