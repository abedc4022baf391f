//! The lanes of clear packets: which node works on a packet of a spread SA.
//!
//! Where all nodes have a packet, its lane decides. Where routers give it to one node, that node
//! has to work on it or to relay it. Any node that has numbers can send it, and relaying it would
//! cost as much as that. So the lane only decides if this node has no numbers.

use super::Burst;
use super::plan::Planner;
use super::train::{OutboundTrain, TrainMember};
use crate::dataplane::burst::{Ingress, Item};
use crate::dataplane::shards::is_carried;
use crate::dataplane::table::row_now;
use crate::drops::DropReason;
use crate::sa::OutboundSa;
use testudo_base::lane::{self, Spread};
use testudo_base::spi::Shard;

/// A header without options, and what the lane of a session depends on behind it.
const SHOWS_SESSION: u16 = 28;

/// True if only this node has the packet although all nodes see all packets: it was sent or
/// decrypted here, or its fragments found this node before they were joined.
fn is_only_here(ingress: Ingress) -> bool {
    ingress.is_host() || ingress == Ingress::PortJoined
}

impl Planner<'_, '_> {
    /// True if this node works on a packet of the SA.
    #[inline]
    pub(super) fn carries(&self, item: &Item<'_>, sa: &OutboundSa) -> bool {
        match sa.spread_by() {
            None => self.is_home(sa),
            Some(spread) => self.carries_packet(item, sa, spread),
        }
    }

    #[inline(never)]
    fn carries_packet(&self, item: &Item<'_>, sa: &OutboundSa, spread: Spread) -> bool {
        !self.is_dealt_out(item.ingress, sa) || self.carries_lane(item, spread)
    }

    fn carries_lane(&self, item: &Item<'_>, spread: Spread) -> bool {
        is_carried(self.lane(item, spread), self.shards)
    }

    /// True if the lane decides which node works on a packet.
    fn is_dealt_out(&self, ingress: Ingress, sa: &OutboundSa) -> bool {
        match self.relay {
            Some(_) => !self.may_number(sa),
            None => !is_only_here(ingress),
        }
    }

    /// True if this node is in service and has numbers of a spread SA. A node that has joined knows
    /// only a stripe that has yet to begin: its numbers lie above those of all other nodes.
    fn may_number(&self, sa: &OutboundSa) -> bool {
        let stripes = self.table.get(sa.policy()).and_then(|place| place.stripes.as_deref());
        let row = || sa.next_row().max(row_now(sa, self.clock));
        !self.shards.is_empty() && stripes.is_some_and(|stripes| stripes.cover(row()))
    }

    /// The lane that the filter has found, or that of the packet's hash: only the filter counts.
    pub(super) fn lane(&self, item: &Item<'_>, spread: Spread) -> Shard {
        match item.buf.octet_before().filter(|_| item.ingress == Ingress::InTurn) {
            Some(lane) => Shard(lane),
            None => lane::of_packet(self.pairs, spread, item.buf.data()),
        }
    }

    /// The shard that decides which node works on a packet of the SA. `None` if this node does in
    /// any case.
    pub(super) fn shard_of(&self, item: &Item<'_>, sa: &OutboundSa) -> Option<Shard> {
        match sa.spread_by() {
            None => Some(sa.pair.shard()),
            Some(spread) => self.is_dealt_out(item.ingress, sa).then(|| self.lane(item, spread)),
        }
    }

    /// True if the packets of a train may have one plan: this node works on all of them, or only
    /// has to find out which are its own.
    #[inline]
    pub(super) fn may_template(&self, sa: &OutboundSa) -> bool {
        match (sa.spread_by(), self.relay) {
            (None, _) => self.is_home(sa),
            (Some(_), None) => true,
            (Some(_), Some(_)) => self.may_number(sa),
        }
    }

    /// The packets of a train that this node works on, if the SA is spread and others have them
    /// too. The rest get their verdicts.
    #[inline]
    pub(super) fn of_own_lanes(
        &self,
        burst: &mut [Item<'_>],
        train: &OutboundTrain,
        members: &[TrainMember],
        sa: &OutboundSa,
    ) -> Option<Burst<TrainMember>> {
        let spread = sa.spread_by().filter(|_| self.relay.is_none())?;
        Some(self.own_members(burst, train, members, spread))
    }

    #[inline(never)]
    fn own_members(
        &self,
        burst: &mut [Item<'_>],
        train: &OutboundTrain,
        members: &[TrainMember],
        spread: Spread,
    ) -> Burst<TrainMember> {
        let of_session = spread.is_by_session() && !train.inner.flow.is_fragment();
        let (mut own, mut known) = (Burst::new(), None);
        for member in members {
            let Some(item) = burst.get_mut(usize::from(member.at)) else { continue };
            let find = || is_only_here(item.ingress) || self.carries_lane(item, spread);
            let shows_session = of_session
                && member.len >= SHOWS_SESSION
                && item.buf.data().first() == Some(&0x45)
                && item.ingress != Ingress::InTurn;
            let here = if shows_session { *known.get_or_insert_with(find) } else { find() };
            if here {
                own.push(*member);
            } else {
                item.refuse(DropReason::OtherNode, &self.counters.outbound);
            }
        }
        own
    }
}
