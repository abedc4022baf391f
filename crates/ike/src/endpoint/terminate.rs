//! Termination by the operator.

use super::{Endpoint, RetransmitPolicy, Target, TerminateError, Terminating};
use crate::output::{ChildSaId, IkeSaId, Reason, Time};
use crate::sa::{ChildSa, IkeSa, Phase};
use std::time::Duration;

/// How often a request is sent while the endpoint shuts down.
const LAST_TRANSMISSIONS: u32 = 6;

impl Endpoint {
    /// See [`Endpoint::shut_down`].
    pub(crate) fn end_all(&mut self, now: Time, within: Duration) {
        let names: Vec<String> = self.connections().map(|connection| connection.name.clone()).collect();
        for name in names {
            self.unload_connection(&name);
        }
        let wait = self.config.retransmit.timeout.min(within / LAST_TRANSMISSIONS);
        // What ends it is the deadline, however often a request was sent before.
        self.config.retransmit =
            RetransmitPolicy { timeout: wait, base_milli: 1000, tries: u32::MAX, limit: wait };
        self.config.delete_timeout = within;
        let ids: Vec<IkeSaId> = self.table.iter().filter(|sa| !sa.is_gone()).map(|sa| sa.id).collect();
        for id in ids {
            self.with_sa(now, id, |endpoint, sa| {
                // A delete has to wait for the answer to the request under way: the window is one (RFC 7296 §2.3).
                if let Some(pending) = &mut sa.outgoing.pending {
                    pending.next = pending.next.min(now.plus(wait));
                }
                endpoint.terminate_ike(now, sa, false)
            });
        }
    }

    pub(crate) fn take_down(
        &mut self,
        now: Time,
        target: &Target,
        force: bool,
    ) -> Result<Terminating, TerminateError> {
        let found = self.resolve(target);
        if found.ikes.is_empty() && found.children.is_empty() {
            return Err(TerminateError::NotFound);
        }
        for &id in &found.ikes {
            self.with_sa(now, id, |endpoint, sa| endpoint.terminate_ike(now, sa, force));
        }
        for &id in &found.children {
            if let Some(ike) = self.table.by_child(id).map(|sa| sa.id) {
                self.with_sa(now, ike, |endpoint, sa| endpoint.terminate_child(now, sa, id, force));
            }
        }
        Ok(found)
    }

    fn resolve(&self, target: &Target) -> Terminating {
        let live = |sa: &&IkeSa| !sa.is_gone();
        let ikes = |found: &mut dyn Iterator<Item = &IkeSa>| {
            let ikes: Vec<IkeSaId> = found.filter(live).map(|sa| sa.id).collect();
            Terminating { ikes, children: Vec::new() }
        };
        let children = |found: &mut dyn Iterator<Item = &IkeSa>, wanted: &dyn Fn(&ChildSa) -> bool| {
            let children = found.filter(live).flat_map(|sa| &sa.children).filter(|child| wanted(child));
            Terminating { ikes: Vec::new(), children: children.map(|child| child.id).collect() }
        };
        match target {
            Target::Ike(id) => ikes(&mut self.table.get(*id).into_iter()),
            Target::Connection(name) => ikes(&mut self.table.of_connection(name)),
            Target::All => ikes(&mut self.table.iter()),
            Target::Child(id) => {
                children(&mut self.table.by_child(*id).into_iter(), &|child| child.id == *id)
            }
            Target::ChildName { connection, child } => {
                let named = |found: &ChildSa| found.name == *child;
                match connection {
                    Some(connection) => children(&mut self.table.of_connection(connection), &named),
                    None => children(&mut self.table.iter(), &named),
                }
            }
        }
    }

    /// Takes an IKE SA down: with a delete where the peer may know of it, else at once.
    pub(super) fn terminate_ike(&mut self, now: Time, sa: &mut IkeSa, force: bool) -> Result<(), Reason> {
        match sa.phase {
            Phase::Established | Phase::AuthSent(_) | Phase::AuthRounds(_) => {
                let deadline = if force { now } else { now.plus(self.config.delete_timeout) };
                self.delete_ike(now, sa, Reason::Requested, deadline)?;
                if force { Err(Reason::Requested) } else { Ok(()) }
            }
            Phase::InitSent(_)
            | Phase::Intermediate(_)
            | Phase::HalfOpen(_)
            | Phase::HalfProven(_)
            | Phase::Rejecting => Err(Reason::Requested),
            Phase::Gone { .. } => Ok(()),
        }
    }

    fn terminate_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        id: ChildSaId,
        force: bool,
    ) -> Result<(), Reason> {
        let Some(spi_in) = sa.child(id).map(|child| child.params.spi_in) else { return Ok(()) };
        self.delete_child(now, sa, spi_in)?;
        if force {
            self.remove_child(now, sa, id, &Reason::Requested);
        }
        Ok(())
    }
}
