//! Packets of shards that another node carries, on their way there.

use super::Burst;
use super::number::{Low, number, refuse_unnumbered};
use super::plan::{self, OutboundPlan, Planner, Room};
use super::seal::{finish, seal};
use crate::dataplane::Dataplane;
use crate::dataplane::burst::Item;
use crate::dataplane::relay::{self, Relay};
use crate::dataplane::shards::is_carried;
use crate::drops::DropReason;
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::sa::OutboundSa;
use crate::spd::PolicyId;
use testudo_base::spi::Shard;

impl<'s> Planner<'s, '_> {
    /// Plans a packet that another node has to work on: it is relayed, or dropped because that node
    /// has it too. `shard` is `None` for one that only this host may send.
    pub(super) fn leave(
        &self,
        item: &mut Item<'_>,
        inner: &Inner,
        at: u8,
        shard: Option<Shard>,
    ) -> Option<OutboundPlan<'s>> {
        let planned = match self.relay.zip(shard) {
            Some((relay, shard)) => plan(relay, item, inner, at, shard),
            None => Err(DropReason::OtherNode),
        };
        planned.map_err(|reason| item.refuse(reason, &self.counters.outbound)).ok()
    }

    /// The shard of a packet that another node has to work on. `None` in transport mode: the SA
    /// carries what its node's own host sends.
    pub(super) fn relay_shard(&self, item: &Item<'_>, sa: &OutboundSa) -> Option<Shard> {
        self.shard_of(item, sa).filter(|_| !sa.outer.is_transport())
    }

    /// The home of a policy's packets, if another node carries it: that node asks for the missing
    /// SA.
    #[cold]
    pub(super) fn foreign_home(&self, policy: PolicyId) -> Option<Shard> {
        self.table.get(policy)?.home.filter(|home| !is_carried(*home, self.shards))
    }
}

/// Plans the packet as it is, inside the SA to the node that carries the shard. It is never too big:
/// its SA may be fragmented outside.
#[inline(never)]
fn plan<'s>(
    relay: &'s Relay,
    item: &Item<'_>,
    inner: &Inner,
    at: u8,
    shard: Shard,
) -> Result<OutboundPlan<'s>, DropReason> {
    if item.ingress.is_relayed() {
        return Err(DropReason::OtherNode);
    }
    let sa = relay.way(shard).ok_or(DropReason::OtherNode)?;
    let room = Room::of(sa);
    let behind = sa.outer.sizes().behind(usize::from(inner.len));
    if item.buf.headroom() < room.prefix || item.buf.tailroom() < behind {
        return Err(DropReason::NoRoom);
    }
    let fits = inner.len <= room.mtu;
    let pieces = if fits { None } else { room.pieces(sa, usize::from(inner.len) + behind) };
    let next_header = relay::next_header(item.ingress, inner);
    Ok(OutboundPlan { next_header, ..plan::plan(sa, inner, at, fits, pieces) })
}

impl Dataplane {
    /// Relays those packets of a burst to this node that others carry, each to the node of its
    /// shard.
    #[inline(never)]
    pub(in crate::dataplane) fn relay_inbound(&mut self, burst: &mut [Item<'_>], foreign: &[(u8, Shard)]) {
        let Some(relay) = self.relay.as_deref() else { return };
        let counters = &self.counters.inbound;
        let mut plans = Burst::new();
        for (at, shard) in foreign {
            let Some(item) = burst.get_mut(usize::from(*at)) else { continue };
            let planned = match Inner::parse(item.buf.data(), Direction::Out) {
                Ok(inner) => {
                    inner.trim(&mut item.buf);
                    plan(relay, item, &inner, *at, *shard)
                }
                Err(_) => Err(DropReason::Malformed),
            };
            match planned {
                Ok(plan) => plans.push(plan),
                Err(reason) => item.refuse(reason, counters),
            }
        }
        let mut low = Low {
            table: &self.outbound,
            clock: self.clock.as_deref(),
            iv_told: &mut self.iv_low_told,
            events: &mut self.events,
            now: self.now,
        };
        number(&mut plans, &mut self.ivs, &mut low);
        refuse_unnumbered(burst, &mut plans, &self.ivs, counters);
        let id = self.ids.take(plans.len() as u16);
        seal(burst, &plans, id);
        finish(burst, &plans, counters, &mut self.events, self.now);
    }
}
