//! Termination by the operator.

use crate::endpoint::{Endpoint, RetransmitPolicy, Target, TerminateError, Terminating};
use crate::environment::table::Table;
use crate::output::{IkeSaId, Time};
use crate::sa::{ChildSa, IkeSa};
use std::time::Duration;

/// How often a request is sent while the endpoint shuts down.
const LAST_TRANSMISSIONS: u32 = 6;

impl Endpoint {
    /// Shuts the endpoint down: forgets the connections, so that nothing new comes up, and
    /// terminates every SA within this time. There is no time for the usual retransmissions, so
    /// requests, including pending ones, are repeated at short intervals.
    pub fn shut_down(&mut self, now: Time, within: Duration) {
        let names: Vec<String> = self.connections().map(|connection| connection.name.clone()).collect();
        for name in names {
            self.unload_connection(&name);
        }
        let wait = self.env.config.retransmit.timeout.min(within / LAST_TRANSMISSIONS);
        // The deadline ends it, however often a request was sent before.
        self.env.config.retransmit =
            RetransmitPolicy { timeout: wait, base_milli: 1000, tries: u32::MAX, limit: wait };
        self.env.config.delete_timeout = within;
        let ids: Vec<IkeSaId> = self.env.table.iter().filter(|sa| !sa.is_gone()).map(|sa| sa.id).collect();
        for id in ids {
            self.env.with_sa(now, id, |session| {
                // A delete has to wait for the answer to the pending request: the window is one
                // (RFC 7296 §2.3).
                if let Some(pending) = &mut session.sa.outgoing.pending {
                    pending.next = pending.next.min(session.now.plus(wait));
                }
                session.terminate_ike(false)
            });
        }
    }

    /// Terminates SAs. The events `IkeDown` and `ChildDown` report when they are gone: when the
    /// peer has answered, or after the timeout. With `force` they are gone at once, and the peer is
    /// told if that needs no waiting.
    pub fn terminate(
        &mut self,
        now: Time,
        target: &Target,
        force: bool,
    ) -> Result<Terminating, TerminateError> {
        let found = target.resolve(&self.env.table);
        if found.ikes.is_empty() && found.children.is_empty() {
            return Err(TerminateError::NotFound);
        }
        for &id in &found.ikes {
            self.env.with_sa(now, id, |session| session.terminate_ike(force));
        }
        for &id in &found.children {
            if let Some(ike) = self.env.table.by_child(id).map(|sa| sa.id) {
                self.env.with_sa(now, ike, |session| session.terminate_child(id, force));
            }
        }
        Ok(found)
    }
}

impl Target {
    /// The SAs that it means.
    fn resolve(&self, table: &Table) -> Terminating {
        let live = |sa: &&IkeSa| !sa.is_gone();
        let ikes = |found: &mut dyn Iterator<Item = &IkeSa>| {
            let ikes: Vec<IkeSaId> = found.filter(live).map(|sa| sa.id).collect();
            Terminating { ikes, children: Vec::new() }
        };
        let children = |found: &mut dyn Iterator<Item = &IkeSa>, wanted: &dyn Fn(&ChildSa) -> bool| {
            let children = found.filter(live).flat_map(|sa| &sa.children).filter(|child| wanted(child));
            Terminating { ikes: Vec::new(), children: children.map(|child| child.id).collect() }
        };
        match self {
            Target::Ike(id) => ikes(&mut table.get(*id).into_iter()),
            Target::Connection(name) => ikes(&mut table.of_connection(name)),
            Target::All => ikes(&mut table.iter()),
            Target::Child(id) => children(&mut table.by_child(*id).into_iter(), &|child| child.id == *id),
            Target::ChildName { connection, child } => {
                let named = |found: &ChildSa| found.name == *child;
                match connection {
                    Some(connection) => children(&mut table.of_connection(connection), &named),
                    None => children(&mut table.iter(), &named),
                }
            }
        }
    }
}
