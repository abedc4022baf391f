//! What this node holds of all SAs of the cluster, so that it can go on with them.
//!
//! For its own shares the owner is the only one who changes anything, and changes it here as it says so; for the others it is done
//! as it is delivered. IKE states of others are octets that nobody reads before they are needed.

use super::blocks::Ledger;
use crate::update::{ChildState, Secret};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use testudo_ike::endpoint::Outline;
use testudo_ike::message::{IkeSpi, MessageId};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::spi::{Share, Spi};

/// An IKE SA of any share.
#[derive(Debug)]
pub(crate) struct IkeReplica {
    /// Its number on this node, drawn when it was first heard of.
    pub(crate) id: IkeSaId,
    pub(crate) outline: Outline,
    /// Its state as it was last said, and so as all nodes have it; and the moment that it is for, by the clock here. None: nobody
    /// goes on from what was said.
    pub(crate) told: Option<(Time, Secret)>,
    /// This node's endpoint has it, and may be further on; and how far both windows had moved when it was last told.
    pub(crate) here: Option<(MessageId, MessageId)>,
    /// Not named yet by those who bring this node up to date.
    pub(crate) stale: bool,
}

/// A Child SA of any share. It is in the data plane.
#[derive(Debug)]
pub(crate) struct ChildReplica {
    /// Its number on this node.
    pub(crate) id: ChildSaId,
    pub(crate) ike: IkeSpi,
    pub(crate) connection: String,
    pub(crate) name: String,
    pub(crate) params: Box<ChildSaParams>,
    /// The one whose place it takes.
    pub(crate) replaces: Option<Spi>,
    /// Where it stands among those that protect the same: see [`Self::host_place`].
    pub(crate) place: u32,
    /// It has begun to send instead of that one.
    pub(crate) switched: bool,
    pub(crate) ledger: Ledger,
    /// Packets were taken in up to here, as far as the owner has told, and when that came.
    pub(crate) edge: u64,
    pub(crate) edge_at: Time,
    /// Packets a second between the last two edges that were told.
    pub(crate) rate: u64,
    /// Counts them in the order in which they came.
    pub(crate) order: u64,
    pub(crate) stale: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    pub(crate) ikes: BTreeMap<IkeSpi, IkeReplica>,
    /// Local numbers of IKE SAs.
    by_ike: BTreeMap<IkeSaId, IkeSpi>,
    children: BTreeMap<Spi, ChildReplica>,
    by_child: BTreeMap<ChildSaId, Spi>,
    last_order: u64,
    /// The highest that any had.
    last_place: u32,
}

impl Replicas {
    pub(crate) fn insert_ike(&mut self, spi: IkeSpi, ike: IkeReplica) {
        self.by_ike.insert(ike.id, spi);
        self.ikes.insert(spi, ike);
    }

    pub(crate) fn remove_ike(&mut self, spi: IkeSpi) -> Option<IkeReplica> {
        let ike = self.ikes.remove(&spi)?;
        self.by_ike.remove(&ike.id);
        Some(ike)
    }

    pub(crate) fn spi_of_ike(&self, id: IkeSaId) -> Option<IkeSpi> {
        self.by_ike.get(&id).copied()
    }

    /// The IKE SAs of a share, by SPI.
    pub(crate) fn ikes_of(&self, share: Share) -> impl Iterator<Item = (&IkeSpi, &IkeReplica)> {
        self.ikes.range(ikes(share))
    }

    /// Those of them that the endpoint does not have.
    pub(super) fn readable(&self, share: Share) -> impl Iterator<Item = IkeSpi> {
        self.ikes_of(share).filter(|(_, ike)| ike.here.is_none() && ike.told.is_some()).map(|(spi, _)| *spi)
    }

    pub(crate) fn child(&self, spi: Spi) -> Option<&ChildReplica> {
        self.children.get(&spi)
    }

    pub(crate) fn child_mut(&mut self, spi: Spi) -> Option<&mut ChildReplica> {
        self.children.get_mut(&spi)
    }

    pub(crate) fn insert_child(&mut self, mut child: ChildReplica) {
        let spi = child.params.spi_in;
        self.last_order += 1;
        self.last_place = self.last_place.max(child.place);
        child.order = self.last_order;
        self.by_child.insert(child.id, spi);
        self.children.insert(spi, child);
    }

    /// Where a new Child SA stands: before all that are known, or where the one stands that it renews.
    pub(crate) fn new_place(&self, replaces: Option<Spi>) -> u32 {
        let old = replaces.and_then(|spi| self.child(spi));
        old.map_or(self.last_place.saturating_add(1), |old| old.place)
    }

    pub(crate) fn remove_child(&mut self, spi: Spi) -> Option<ChildReplica> {
        let child = self.children.remove(&spi)?;
        self.by_child.remove(&child.id);
        Some(child)
    }

    pub(crate) fn spi_of_child(&self, id: ChildSaId) -> Option<Spi> {
        self.by_child.get(&id).copied()
    }

    /// The Child SAs of a share, by SPI.
    pub(crate) fn children_of(&self, share: Share) -> impl Iterator<Item = (&Spi, &ChildReplica)> {
        self.children.range(children(share))
    }

    pub(crate) fn children_mut_of(
        &mut self,
        share: Share,
    ) -> impl Iterator<Item = (&Spi, &mut ChildReplica)> {
        self.children.range_mut(children(share))
    }

    /// How many Child SAs there are.
    pub(crate) fn children_len(&self) -> usize {
        self.children.len()
    }

    /// All are to be named again.
    pub(crate) fn doubt(&mut self) {
        for ike in self.ikes.values_mut() {
            if ike.here.take().is_some() {
                ike.told = None;
            }
            ike.stale = true;
        }
        self.children.values_mut().for_each(|child| child.stale = true);
    }

    /// What was not named again.
    pub(crate) fn stale(&self) -> (Vec<IkeSpi>, Vec<Spi>) {
        let ikes = self.ikes.iter().filter(|(_, ike)| ike.stale).map(|(spi, _)| *spi).collect();
        let children = self.children.iter().filter(|(_, child)| child.stale).map(|(spi, _)| *spi).collect();
        (ikes, children)
    }
}

impl ChildReplica {
    /// Of several Child SAs that protect the same, such as those of a peer that has come a second time, the one with the highest
    /// place sends. Their homes may differ, so all nodes must choose the same one, in whatever order they have heard of them. Who made
    /// an SA says where it stands, and that SPIs differ decides where two nodes have said the same.
    pub(crate) fn host_place(&self) -> u64 {
        let place = self.place.min(i32::MAX.unsigned_abs());
        u64::from(place) << 32 | u64::from(self.params.spi_in.0)
    }

    /// As others are told of it.
    pub(crate) fn state(&self) -> ChildState {
        ChildState {
            ike: self.ike,
            connection: self.connection.clone(),
            name: self.name.clone(),
            params: (*self.params).clone(),
            replaces: self.replaces,
            place: self.place,
            reserved: self.ledger.reserved,
            log2: self.ledger.log2,
            heir: None,
            edge: self.edge,
        }
    }
}

/// The SPIs of a share: its number is their first octet.
fn ikes(share: Share) -> RangeInclusive<IkeSpi> {
    let first = u64::from(share.0) << 56;
    IkeSpi(first)..=IkeSpi(first | ((1 << 56) - 1))
}

fn children(share: Share) -> RangeInclusive<Spi> {
    let first = u32::from(share.0) << 24;
    Spi(first)..=Spi(first | ((1 << 24) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spis_of_a_share_are_those_that_show_it() {
        for number in [0, 1, 255] {
            let share = Share(number);
            let (ikes, children) = (ikes(share), children(share));
            assert!([ikes.start(), ikes.end()].iter().all(|spi| spi.share() == share));
            assert!([children.start(), children.end()].iter().all(|spi| spi.share() == share));
        }
        assert_eq!(children(Share(255)).end().0, u32::MAX);
        assert_eq!(ikes(Share(255)).end().0, u64::MAX);
    }
}
