//! One Child SA takes the place of another, and no packet is lost (RFC 7296 §2.8): the new one takes packets in from the
//! start, the old one until some time after its end, and what goes out changes over in between, in one step.

use crate::exchange::session::Session;
use crate::output::{ChildSaId, Output, Reason};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Outbound, Task};
use testudo_ipsec::spi::Spi;

impl Session<'_> {
    /// We renewed a Child SA and the peer has answered: it is ready for both directions.
    pub(super) fn take_place(&mut self, new: ChildSaId) {
        let waits = self.sa.child(new).and_then(|child| child.waits_for());
        if let Some(old) = waits.and_then(|old| self.child_of_spi(old)) {
            // Should the old one itself never have been proven, it has its place for a moment.
            self.proven(old);
            self.switch_outbound(old, new);
        }
    }

    /// What we have renewed goes.
    pub(super) fn let_go(&mut self, old: ChildSaId) {
        if let Some(spi_in) = outdo(self.sa, old) {
            self.sa.outgoing.queue(Task::DeleteSpi(spi_in));
        }
    }

    /// One takes the place of another, and the peer does not know that: what it lets go it does not take in any more, so what
    /// is under way gets time.
    pub(super) fn displace(&mut self, old: ChildSaId, new: ChildSaId) {
        // Should the old one itself never have been proven, it has its place for a moment.
        self.proven(old);
        self.switch_outbound(old, new);
        if let Some(spi_in) = outdo(self.sa, old) {
            self.sa.outgoing.delay(self.now.plus(self.env.config.rekeyed_linger), Task::DeleteSpi(spi_in));
        }
    }

    /// What goes out through a Child SA goes out through the one that took its place, if there is one.
    pub(crate) fn switch_to_successor(&mut self, old: ChildSaId) {
        let place = self.sa.child(old).map(|old| old.params.spi_in);
        let new = self.sa.children.iter().find(|child| place.is_some() && child.waits_for() == place);
        match new.map(|child| child.id) {
            Some(new) => self.switch_outbound(old, new),
            None => self.hand_over(old),
        }
        if let Some(former) = former(self.sa, old) {
            self.switch_outbound(old, former);
        }
    }

    /// A packet came in through a renewed Child SA: the peer uses it.
    pub(crate) fn proven(&mut self, new: ChildSaId) {
        let Some(child) = self.sa.child(new) else { return };
        let Some(place) = child.waits_for() else { return };
        // Where the other IKE SA has renewed the old one meanwhile, what goes out goes through that.
        let moved = || self.env.predecessor(self.sa, &child.name, &child.params);
        let known = |old: &ChildSaId| self.sa.child(*old).is_some() || self.env.sends_elsewhere(*old);
        let old = self.child_of_spi(place).filter(known).or_else(moved);
        if let Some(old) = old {
            if self.env.stays_beside(self.sa, old, &child.params) {
                return self.start_outbound(new);
            }
            self.switch_outbound(old, new);
        } else if self.child_of_spi(place).is_none() {
            // The old one ended, or its IKE SA has moved to another node of the cluster: nobody
            // here switches from it.
            self.send_through((None, place), new);
        }
    }

    pub(super) fn start_outbound(&mut self, new: ChildSaId) {
        if let Some(child) = self.sa.child_mut(new) {
            child.outbound = Outbound::Active;
            self.env.effects.outputs.push_back(Output::StartChild { child: new });
        }
    }

    /// Not where the old one is retired already: then another than `new` won (§2.8.1).
    fn switch_outbound(&mut self, old: ChildSaId, new: ChildSaId) {
        let Some(place) = self.spi_of(old) else { return };
        let stopped = match self.sa.child_mut(old) {
            Some(from) if from.outbound == Outbound::Active => {
                from.outbound = Outbound::Retired;
                true
            }
            Some(_) => false,
            None => self.env.stop_elsewhere(old),
        };
        if stopped {
            self.send_through((Some(old), place), new);
        }
    }

    /// What has gone out through one Child SA, of that number if it is still there, goes out through another.
    pub(crate) fn send_through(&mut self, (old, place): (Option<ChildSaId>, Spi), new: ChildSaId) {
        let Some(to) = self.sa.child_mut(new) else { return };
        to.outbound = Outbound::Active;
        let next = to.params.spi_in;
        // Who else waited for that place waits for its successor.
        for child in self.sa.children.iter_mut().filter(|child| child.is_installed()) {
            if child.outbound == Outbound::Waiting(place) {
                child.outbound = Outbound::Waiting(next);
            }
        }
        self.env.effects.outputs.push_back(match old {
            Some(old) => Output::SwitchChild { from: old, to: new },
            None => Output::StartChild { child: new },
        });
        self.pass_place_on(place, new);
    }

    /// The Child SA, of this IKE SA or of another, for which we chose that SPI.
    pub(crate) fn child_of_spi(&self, spi_in: Spi) -> Option<ChildSaId> {
        let elsewhere = || self.env.table.by_esp_spi(spi_in)?.child_by_spi(spi_in);
        self.sa.child_by_spi(spi_in).or_else(elsewhere).map(|child| child.id)
    }

    /// The SPI that we chose for a Child SA of this IKE SA or of another.
    pub(crate) fn spi_of(&self, child: ChildSaId) -> Option<Spi> {
        let elsewhere = || self.env.table.by_child(child)?.child(child);
        self.sa.child(child).or_else(elsewhere).map(|child| child.params.spi_in)
    }

    /// Both sides have let a Child SA go. If another has its place, what is still under way through the old one comes in.
    pub(crate) fn close_child(&mut self, id: ChildSaId, reason: &Reason) {
        self.switch_to_successor(id);
        let until = self.now.plus(self.env.config.rekeyed_linger);
        let Some(child) = self.sa.child_mut(id) else { return };
        match (child.phase, child.outbound) {
            // Each side has deleted it by itself.
            (ChildPhase::Deleted(_), _) => {}
            (ChildPhase::Installed | ChildPhase::Rekeyed, Outbound::Retired) => {
                let end = child.limits.times.end.unwrap_or(until);
                child.phase = ChildPhase::Deleted(until.min(end));
            }
            (ChildPhase::Rekeyed, Outbound::Expired) => self.remove_child(id, &Reason::Rekeyed),
            _ => self.remove_child(id, reason),
        }
    }

    /// Forgets the Child SAs through which nothing can be under way any more.
    pub(crate) fn sweep_deleted(&mut self) {
        let over = |phase: ChildPhase| matches!(phase, ChildPhase::Deleted(until) if until <= self.now);
        let ids: Vec<ChildSaId> =
            self.sa.children.iter().filter(|child| over(child.phase)).map(|child| child.id).collect();
        if !ids.is_empty() {
            self.commit();
        }
        for id in ids {
            self.remove_child(id, &Reason::Rekeyed);
        }
    }
}

/// What had taken the place of a Child SA is for nothing: it stays.
pub(super) fn serve_on(sa: &mut IkeSa, old: ChildSaId) {
    if let Some(old) = sa.child_mut(old).filter(|old| old.phase == ChildPhase::Rekeyed) {
        old.phase = ChildPhase::Installed;
    }
}

/// Another has the place of a Child SA. Gives its SPI, if it is still to be deleted.
fn outdo(sa: &mut IkeSa, old: ChildSaId) -> Option<Spi> {
    let lives = |child: &&mut ChildSa| matches!(child.phase, ChildPhase::Installed | ChildPhase::Rekeyed);
    let child = sa.child_mut(old).filter(lives)?;
    child.phase = ChildPhase::Rekeyed;
    Some(child.params.spi_in)
}

/// The Child SA that one in use has displaced without the peer's wanting it to go: it serves again.
fn former(sa: &IkeSa, active: ChildSaId) -> Option<ChildSaId> {
    let active = sa.child(active).filter(|child| child.outbound == Outbound::Active)?;
    let displaced = |child: &&ChildSa| {
        child.name == active.name && child.is_installed() && child.outbound == Outbound::Retired
    };
    sa.children.iter().rfind(displaced).map(|child| child.id)
}
