//! The lanes of clear packets: which node works on a packet of a spread SA.

use super::Burst;
use super::plan::Planner;
use super::train::{OutboundTrain, TrainMember};
use crate::dataplane::burst::{Ingress, Item};
use crate::dataplane::shards::is_carried;
use crate::drops::DropReason;
use crate::sa::OutboundSa;
use testudo_base::lane::{self, Spread};
use testudo_base::spi::Shard;

/// A header without options, and what the lane of a session depends on behind it.
const SHOWS_SESSION: u16 = 28;

/// True if all nodes have the packet. Otherwise it has come to this node alone, which must work on
/// it: it was sent or decrypted here, or its fragments found this node before they were joined.
fn is_dealt_out(ingress: Ingress) -> bool {
    !ingress.is_host() && ingress != Ingress::PortJoined
}

impl Planner<'_, '_> {
    /// True if this node works on a packet of the SA.
    #[inline]
    pub(super) fn carries(&self, item: &Item<'_>, sa: &OutboundSa) -> bool {
        match sa.spread_by() {
            None => self.is_home(sa),
            Some(spread) => self.carries_lane(item, spread),
        }
    }

    #[inline(never)]
    fn carries_lane(&self, item: &Item<'_>, spread: Spread) -> bool {
        !is_dealt_out(item.ingress) || is_carried(self.lane(item, spread), self.shards)
    }

    fn lane(&self, item: &Item<'_>, spread: Spread) -> Shard {
        lane::of_packet(self.pairs, spread, item.buf.data())
    }

    /// The shard that decides which node works on a packet of the SA. `None` if this node does in
    /// any case.
    pub(super) fn shard_of(&self, item: &Item<'_>, sa: &OutboundSa) -> Option<Shard> {
        match sa.spread_by() {
            None => Some(sa.pair.shard()),
            Some(spread) => is_dealt_out(item.ingress).then(|| self.lane(item, spread)),
        }
    }

    /// The packets of a train that this node works on, if the SA is spread. The others get their
    /// verdicts.
    #[inline]
    pub(super) fn of_own_lanes(
        &self,
        burst: &mut [Item<'_>],
        train: &OutboundTrain,
        members: &[TrainMember],
        sa: &OutboundSa,
    ) -> Option<Burst<TrainMember>> {
        let spread = sa.spread_by()?;
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
        let of_session = spread == Spread::Session && !train.inner.flow.is_fragment();
        let (mut own, mut known) = (Burst::new(), None);
        for member in members {
            let Some(item) = burst.get_mut(usize::from(member.at)) else { continue };
            let find = || self.carries_lane(item, spread);
            let shows_session =
                of_session && member.len >= SHOWS_SESSION && item.buf.data().first() == Some(&0x45);
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
