//! Twins: other IKE SAs with the same peer, and the traffic of their Child SAs.

use crate::config::{Connection, Identity, Unique};
use crate::environment::Environment;
use crate::exchange::narrow::Selectors;
use crate::output::{ChildSaId, IkeSaId};
use crate::sa::{ChildSa, IkeSa, Outbound, Reauth};
use crate::suite::Role;
use std::net::IpAddr;
use testudo_base::spi::Spi;
use testudo_ipsec::sa::ChildSaParams;

/// Bound on the IKE SAs with the same identity that are examined, the newest first. If many peers
/// share one identity, the time per SA must not grow with them.
const TWINS: usize = 8;

impl Environment {
    /// The virtual addresses of the former IKE SA.
    pub(crate) fn held_addresses(&self, sa: &IkeSa) -> Vec<IpAddr> {
        let old = self.reauthenticated(sa).map(|old| old.virtual_ips.local.clone());
        old.unwrap_or_default()
    }

    /// The IKE SA that this one is to replace.
    pub(crate) fn reauthenticated(&self, sa: &IkeSa) -> Option<&IkeSa> {
        let Some(Reauth::Of(spi) | Reauth::Shown(spi)) = sa.reauth else { return None };
        self.table.by_spi(spi).filter(|old| !old.is_gone())
    }

    /// The Child SA of another IKE SA with the same peer that a new one replaces: one in use, of
    /// the same name, with a part of the new one's traffic. The side that reauthenticates knows it,
    /// and the other one finds it.
    pub(crate) fn predecessor(&self, sa: &IkeSa, name: &str, params: &ChildSaParams) -> Option<ChildSaId> {
        let of = |other: &IkeSa| {
            let same = |child: &&ChildSa| {
                child.name == name
                    && child.is_proven()
                    && !other.is_additional(child)
                    && self.loaded.is_displaced_by(other, child, params)
            };
            other.children.iter().find(same).map(|child| child.id)
        };
        if sa.role == Role::Initiator {
            return self.reauthenticated(sa).and_then(of);
        }
        let older = |other: &&IkeSa| {
            other.is_established()
                && other.closing.is_none()
                && other.established < Some(sa.created)
                && other.connection == sa.connection
        };
        self.twins_of(sa).filter(older).find_map(of)
    }

    /// The Child SA through which the traffic of `old` goes, or will soon. By sending through a new
    /// one the peer may have given that one the place already (RFC 7296 §2.8.1). `None`: none does,
    /// so that there is nothing to wait for.
    pub(crate) fn holder(&self, sa: &IkeSa, old: ChildSaId) -> Option<ChildSaId> {
        let Some(named) = sa.child(old) else { return Some(old) };
        let same = |other: &IkeSa, child: &ChildSa| {
            child.is_sending()
                && child.name == named.name
                && other.resources.worker(child.params.spi_in) == sa.resources.worker(named.params.spi_in)
                && child.params.local_ts == named.params.local_ts
                && child.params.remote_ts == named.params.remote_ts
        };
        match named.outbound {
            Outbound::Active | Outbound::Waiting(_) => Some(old),
            Outbound::Retired | Outbound::Expired => {
                let here = sa.children.iter().find(|child| same(sa, child)).map(|child| child.id);
                let elsewhere =
                    || self.twins_of(sa).any(|other| other.children.iter().any(|child| same(other, child)));
                here.or_else(|| (named.outbound == Outbound::Retired && elsewhere()).then_some(old))
            }
        }
    }

    /// The newest IKE SAs between the same identities; and those of the same connection at the same
    /// address with the same peer, to whom we may have used another identity, or whose own identity
    /// the configuration has changed. The address alone proves nothing: a peer behind a NAT, or one
    /// that claims it, can have any address.
    fn twins_of<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = &'a IkeSa> {
        let named =
            sa.remote_id.iter().flat_map(|identity| self.table.by_identity(identity).rev().take(TWINS));
        let named = named.filter(|other| other.local_id == sa.local_id);
        let placed = self.table.by_addr(sa.path.remote.ip()).rev().take(TWINS);
        let name = sa.remote_id.as_ref().map(Identity::canonical);
        let placed = placed.filter(move |other| {
            other.connection == sa.connection
                && other.path.remote == sa.path.remote
                && (other.remote_id.as_ref().map(Identity::canonical) == name
                    || self.loaded.is_renamed(other)
                    || self.loaded.is_renamed(sa))
        });
        named.chain(placed).filter(|other| other.id != sa.id)
    }

    /// Stops sending through a Child SA of another IKE SA. Returns false if it was not sending any
    /// more.
    pub(crate) fn stop_elsewhere(&mut self, old: ChildSaId) -> bool {
        let id = self.table.by_child(old).map(|sa| sa.id);
        let Some(mut sa) = id.and_then(|id| self.table.take(id)) else { return false };
        let active = sa.child_mut(old).filter(|child| child.is_sending());
        let stopped = active.map(|child| {
            child.outbound = Outbound::Retired;
            child.params.spi_in
        });
        if stopped.is_some() {
            // A renewal there that the peer has not used yet is too late.
            let late = sa.children.iter_mut().filter(|child| child.waits_for() == stopped);
            late.for_each(|child| child.outbound = Outbound::Retired);
            self.commit(&mut sa);
        }
        self.put(sa);
        stopped.is_some()
    }

    /// True if a Child SA in use, of another IKE SA or of this one, has traffic that the new one
    /// does not cover.
    pub(crate) fn stays_beside(&self, sa: &IkeSa, old: ChildSaId, new: &ChildSaParams) -> bool {
        let here = sa.child(old).map(|old| (sa, old));
        let found = here.or_else(|| self.table.by_child(old).and_then(|sa| Some((sa, sa.child(old)?))));
        found.is_some_and(|(sa, old)| old.is_proven() && !self.loaded.is_replaced_by(sa, old, new))
    }

    /// True if a Child SA of another IKE SA is sending.
    pub(crate) fn sends_elsewhere(&self, old: ChildSaId) -> bool {
        let found = self.table.by_child(old).and_then(|sa| sa.child(old));
        found.is_some_and(ChildSa::is_sending)
    }

    /// The Child SA of another IKE SA that waits for the place of the one with this SPI.
    pub(crate) fn standby(&self, sa: &IkeSa, old: Spi) -> Option<(IkeSaId, ChildSaId)> {
        let waits = |child: &&ChildSa| child.outbound == Outbound::Waiting(old);
        self.twins_of(sa).find_map(|other| Some((other.id, other.children.iter().find(waits)?.id)))
    }

    /// True if the child has a Child SA in this IKE SA, or in another with the same peer: two that
    /// were made at once, one of which goes.
    pub(crate) fn is_up_otherwise(&self, sa: &IkeSa, name: &str) -> bool {
        has_up(sa, name) || self.is_up_elsewhere(sa, name)
    }

    /// True if the child has a Child SA in another IKE SA with the same peer.
    pub(crate) fn is_up_elsewhere(&self, sa: &IkeSa, name: &str) -> bool {
        let live = |other: &&IkeSa| other.is_in_charge() && other.connection == sa.connection;
        self.twins_of(sa).filter(live).any(|other| has_up(other, name))
    }

    /// False if the configuration does not admit the peer of this IKE SA any more, and it has no
    /// such Child SA yet, here or in another IKE SA that is not admitted either: it keeps what it
    /// has, and gets nothing new.
    pub(crate) fn may_have(&self, sa: &IkeSa, name: &str, selectors: &Selectors) -> bool {
        let has_it = |sa: &IkeSa| {
            let is_it = |child: &ChildSa| {
                child.name == name && child.is_up() && selectors.within(&Selectors::of(&child.params))
            };
            sa.is_established() && sa.children.iter().any(is_it)
        };
        // What a peer has whose proof is valid is not for one whose proof is void.
        let mut others = self.between_the_same(sa).filter(|other| self.loaded.is_revoked(other)).take(TWINS);
        !self.loaded.is_revoked(sa) || has_it(sa) || others.any(has_it)
    }

    /// True if the peer of this IKE SA would not be admitted any more, and the child has a Child SA
    /// with the peer that would be.
    pub(crate) fn has_moved_on(&self, sa: &IkeSa, name: &str) -> bool {
        let admitted = |other: &&IkeSa| {
            other.is_in_charge() && other.connection == sa.connection && !self.loaded.is_revoked(other)
        };
        self.loaded.is_revoked(sa) && self.twins_of(sa).filter(admitted).any(|other| has_up(other, name))
    }

    /// True if another Child SA has this one's traffic, or is about to get it.
    pub(crate) fn has_standby(&self, sa: &IkeSa, child: &ChildSa) -> bool {
        child.outbound == Outbound::Retired || self.standby(sa, child.params.spi_in).is_some()
    }

    /// True if the peer must not have another IKE SA beside its present one. From the same address
    /// it may: as charon sees it, it reauthenticates, and deletes the old one itself.
    pub(crate) fn is_surplus(&self, sa: &IkeSa, connection: &Connection) -> bool {
        let elsewhere = |id| self.table.get(id).is_some_and(|other| other.path.remote != sa.path.remote);
        connection.unique == Unique::Keep && self.twins(sa).any(elsewhere)
    }

    /// The number of the peer's IKE SAs, if it must not have another: each may have the full number
    /// of Child SAs. Those that the new one replaces do not count.
    pub(crate) fn is_sated(&self, sa: &IkeSa, connection: &Connection) -> Option<usize> {
        let limit = self.config.twin_limit?.get();
        let stays = |id: &IkeSaId| {
            let elsewhere = || self.table.get(*id).is_some_and(|other| other.path.remote != sa.path.remote);
            connection.unique != Unique::Replace || !elsewhere()
        };
        (self.twins(sa).filter(stays).take(limit).count() >= limit).then_some(limit)
    }

    /// Other IKE SAs between the same identities that will stay.
    pub(crate) fn twins<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = IkeSaId> + 'a {
        let stays = |other: &&IkeSa| other.is_established() && other.closing.is_none();
        self.between_the_same(sa).filter(stays).map(|other| other.id)
    }

    /// Other IKE SAs between the same identities, of the same connection or a similar one: the peer
    /// chooses among these by its request.
    pub(crate) fn between_the_same<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = &'a IkeSa> {
        let others = sa.remote_id.iter().flat_map(|identity| self.table.by_identity(identity));
        others.filter(|other| {
            other.id != sa.id
                && other.local_id == sa.local_id
                && self.loaded.are_alike(&other.connection, &sa.connection)
        })
    }

    /// The peer sets up another IKE SA in place of that of a Child SA: then we need not.
    pub(crate) fn leave_to_peer(&mut self, displaced: ChildSaId) {
        let outdated = self.table.by_child(displaced).filter(|sa| sa.is_outdated()).map(|sa| sa.id);
        if let Some(mut sa) = outdated.and_then(|id| self.table.take(id)) {
            self.commit(&mut sa);
            sa.outdated.iter_mut().for_each(|outdated| outdated.turn.at = None);
            self.put(sa);
        }
    }
}

/// True if the IKE SA has a Child SA of the child.
fn has_up(sa: &IkeSa, name: &str) -> bool {
    sa.children.iter().any(|child| child.name == name && child.is_up())
}
