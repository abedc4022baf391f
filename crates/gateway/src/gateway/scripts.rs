//! When `updown` scripts are run: for the SAs that this node owns.

use super::Gateway;
use crate::updown::Risen;
use nix::net::if_::if_indextoname;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;
use testudo_fastpath::fib::{Fib, Out, Route};
use testudo_ike::endpoint::{ChildSaState, ChildSaStatus};
use testudo_ike::output::{ChildSaId, Event, IkeSaId};

impl Gateway {
    /// Runs the scripts for an event of an SA of this node.
    pub(super) fn scripts_for(&mut self, event: &Event) {
        match event {
            Event::ChildUp(ike, child) => self.script_up(*ike, *child),
            Event::ChildRekeyed(ike, old, new) if !self.updown.renewed(*old, *new) => {
                self.script_up(*ike, *new);
            }
            Event::ChildDown(_, child, _) => self.updown.gone(*child),
            _ => {}
        }
    }

    fn script_up(&mut self, ike: IkeSaId, child: ChildSaId) {
        if self.updown.is_unused() {
            return;
        }
        let Some(sa) = self.endpoint.sa(ike) else { return };
        let Some(child) = sa.children.iter().find(|found| found.id == child) else { return };
        // The SA of a single worker belongs to the tunnel of the one for all.
        let is_for_all = |other: &&ChildSaStatus| {
            (&other.name, other.worker) == (&child.name, None)
                && (&other.local_ts, &other.remote_ts) == (&child.local_ts, &child.remote_ts)
        };
        let mut for_all = sa.children.iter().filter(|_| child.worker.is_some()).filter(is_for_all);
        if for_all.any(|other| self.updown.renewed(other.id, child.id)) {
            return;
        }
        let connection = sa.connection.as_deref().and_then(|name| self.endpoint.connection(name));
        let Some(connection) = connection else { return };
        let config = connection.children.iter().find(|config| config.name == child.name);
        let Some(script) = config.and_then(|config| config.updown.as_ref()) else { return };
        let interface = interface_towards(self.data.fib(), sa.remote.ip());
        let connection = &connection.name;
        self.updown.up(Risen { connection, ike: &sa, child, interface: interface.as_deref() }, script);
    }

    /// Once a second while owners change: runs `up` for the SAs that have come from other nodes,
    /// and `down` for those that went there.
    pub(super) fn scripts_follow_owners(&mut self) {
        if !self.updown.looks_at_owners(Instant::now()) {
            return;
        }
        let updown = &self.updown;
        let scripted = self.endpoint.names().flat_map(|sa| {
            let has_scripts = sa.connection().is_some_and(|name| updown.is_scripted(name));
            let children = sa.children().map(move |(child, _)| (child, sa.id()));
            children.filter(move |(child, _)| has_scripts || updown.knows(*child))
        });
        let scripted: BTreeMap<ChildSaId, IkeSaId> = scripted.collect();
        let gone: Vec<ChildSaId> = updown.members().filter(|child| !scripted.contains_key(child)).collect();
        let come = scripted.into_iter().filter(|(child, _)| !updown.knows(*child));
        let come: Vec<(ChildSaId, IkeSaId)> = come.collect();
        gone.into_iter().for_each(|child| self.updown.gone(child));
        for (child, ike) in come {
            // A Child SA that was replaced does not count: it is about to go.
            let carries = [ChildSaState::Installed, ChildSaState::Rekeying];
            let status = self.endpoint.sa(ike);
            let state = status.and_then(|sa| sa.children.iter().find(|c| c.id == child).map(|c| c.state));
            if state.is_some_and(|state| carries.contains(&state)) {
                self.script_up(ike, child);
            }
        }
    }

    /// Logs what scripts have written.
    pub(crate) fn scripts_done(&mut self) {
        for line in self.updown.take_lines() {
            self.log(None, Some(line.connection), line.level, line.text);
        }
    }

    /// The end: scripts take down what they have set up.
    pub(crate) fn end_scripts(&mut self) {
        for line in self.updown.end() {
            self.log(None, Some(line.connection), line.level, line.text);
        }
    }
}

/// The name of the interface that packets to the peer leave by.
fn interface_towards(fib: &Fib, peer: IpAddr) -> Option<String> {
    let Route::Forward(hop) = fib.lookup(peer) else { return None };
    match hop.out {
        Out::Port(port) => fib.port(port).map(|link| link.name.clone()),
        Out::Other { ifindex } => if_indextoname(ifindex).ok()?.into_string().ok(),
    }
}
