//! Packets of shards that another node carries, on their way there.

use super::Burst;
use super::number::{Low, number, refuse_unnumbered};
use super::plan::{self, OutboundPlan, Planner, Room};
use super::seal::{finish, seal};
use crate::dataplane::Dataplane;
use crate::dataplane::burst::{Ingress, Item, Verdict};
use crate::dataplane::counters::Counters;
use crate::dataplane::relay::{self, BEFORE_PACKET, HEAD_LEN, Relay};
use crate::dataplane::shards::is_carried;
use crate::demux::{Form, FoundEsp};
use crate::drops::DropReason;
use crate::esp::{Marks, tunnel};
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::sa::{OutboundSa, SaKey};
use crate::spd::PolicyId;
use testudo_base::spi::{RelayKind, Shard, Spi};
use testudo_crypto::{Aad, SealJob, TAG_LEN, seal_burst};
use testudo_wire::esp;
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;

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
            Some((relay, shard)) => {
                let ingress = item.ingress;
                plan(relay, item, inner, at, shard).inspect(|_| self.counters.relays(ingress, shard))
            }
            None => Err(DropReason::OtherNode),
        };
        planned.map_err(|reason| item.refuse(reason, &self.counters.outbound)).ok()
    }

    /// The shard of a packet that another node has to work on. `None` in transport mode: the SA
    /// carries what its node's own host sends.
    pub(super) fn relay_shard(&self, item: &Item<'_>, sa: &OutboundSa) -> Option<Shard> {
        match sa.spread_by() {
            // The stripe may have begun since this node found that it has no numbers.
            Some(spread) if self.relay.is_some() => Some(self.lane(item, spread)),
            _ => self.shard_of(item, sa).filter(|_| !sa.outer.is_transport()),
        }
    }

    /// The home of a policy's packets, if another node carries it: that node asks for the missing
    /// SA.
    #[cold]
    pub(super) fn foreign_home(&self, policy: PolicyId) -> Option<Shard> {
        self.table.get(policy)?.home.filter(|home| !is_carried(*home, self.shards))
    }
}

/// A packet to this gateway that another node carries.
#[derive(Clone, Copy)]
pub(in crate::dataplane) struct Foreign<'a> {
    pub(in crate::dataplane) at: u8,
    pub(in crate::dataplane) shard: Shard,
    pub(in crate::dataplane) arrived: &'a FoundEsp,
}

impl Foreign<'_> {
    /// Counts it for its shard, which may follow its packets to this node. Those of a spread SA are
    /// in other lanes than the shard of its SPI, and move no lane: the node that all of them reach
    /// would get every lane.
    fn count(&self, ingress: Ingress, counters: &Counters) {
        if Spi(self.arrived.spi).shard() == self.shard {
            counters.relays(ingress, self.shard);
        }
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
    if item.ingress.is_relayed_twice() {
        return Err(DropReason::OtherNode);
    }
    let sa = relay.way(shard, RelayKind::Whole).ok_or(DropReason::OtherNode)?;
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

/// Plans ESP or AH as it came by a port, inside the SA to the carrier that encrypts heads, bare or
/// not. `None` if it must go whole: a node of the view does not know such packets, the packet came in
/// fragments, which no field of it would show, or its head does not show where it belongs.
#[inline]
fn plan_protected<'s>(
    relay: &'s Relay,
    item: &Item<'_>,
    foreign: Foreign<'_>,
) -> Option<(OutboundPlan<'s>, RelayKind)> {
    let Foreign { at, shard, arrived } = foreign;
    let sa = relay.way(shard, RelayKind::Head)?;
    let (kind, icv_len) =
        if arrived.form == Form::EspInUdp { (RelayKind::Head, TAG_LEN) } else { (RelayKind::Bare, 0) };
    let room = Room::of(sa);
    let shows = kind == RelayKind::Bare || usize::from(arrived.at) + esp::HEADER <= HEAD_LEN;
    let has_room = item.buf.headroom() >= room.prefix && item.buf.tailroom() >= icv_len;
    if item.ingress != Ingress::Port || !shows || !has_room {
        return None;
    }
    let len = item.buf.len();
    let pieces = if sa.outer.is_ipv6() { room.pieces(sa, len + icv_len) } else { None };
    let plan = OutboundPlan {
        sa,
        sequence: 0,
        iv: 0,
        len: len as u16,
        at,
        class: tunnel::outer_class(sa.copy, arrived.class),
        df: false,
        pieces,
        // There is no trailer: the packet shows its version.
        next_header: Protocol::NO_NEXT,
    };
    Some((plan, kind))
}

/// Plans ESP or AH, inside a relay SA that encrypts all of it.
#[cold]
fn plan_whole<'s>(
    relay: &'s Relay,
    item: &mut Item<'_>,
    foreign: Foreign<'_>,
) -> Result<OutboundPlan<'s>, DropReason> {
    let inner = Inner::parse(item.buf.data(), Direction::Out).map_err(|_| DropReason::Malformed)?;
    inner.trim(&mut item.buf);
    plan(relay, item, &inner, foreign.at, foreign.shard)
}

impl Dataplane {
    /// Relays those packets of a burst to this gateway that others carry, each to the node of its
    /// shard.
    #[inline(never)]
    pub(in crate::dataplane) fn relay_inbound(&mut self, burst: &mut [Item<'_>], foreign: &[Foreign<'_>]) {
        let Some(relay) = self.relay.as_deref() else { return };
        let counters = &self.counters.inbound;
        let (mut bare, mut heads, mut whole) = (Burst::new(), Burst::new(), Burst::new());
        for foreign in foreign {
            let Some(item) = burst.get_mut(usize::from(foreign.at)) else { continue };
            foreign.count(item.ingress, &self.counters);
            match plan_protected(relay, item, *foreign) {
                Some((plan, RelayKind::Bare)) => bare.push(plan),
                Some((plan, _)) => heads.push(plan),
                None => match plan_whole(relay, item, *foreign) {
                    Ok(plan) => whole.push(plan),
                    Err(reason) => item.refuse(reason, counters),
                },
            }
        }
        if !bare.is_empty() {
            wrap_bare(burst, &bare, self.ids.take(bare.len() as u16));
            finish(burst, &bare, counters, &mut self.events, self.now);
        }
        if heads.is_empty() && whole.is_empty() {
            return;
        }
        let mut low = Low {
            table: &self.outbound,
            clock: self.clock.as_deref(),
            counts_all: false,
            iv_told: &mut self.iv_low_told,
            events: &mut self.events,
            now: self.now,
        };
        number(&mut heads, &mut self.ivs, &mut low);
        number(&mut whole, &mut self.ivs, &mut low);
        for plans in [&mut heads, &mut whole] {
            refuse_unnumbered(burst, plans, &self.ivs, counters);
        }
        if !heads.is_empty() {
            seal_heads(burst, &heads, self.ids.take(heads.len() as u16));
            finish(burst, &heads, counters, &mut self.events, self.now);
        }
        if !whole.is_empty() {
            seal(burst, &whole, self.ids.take(whole.len() as u16));
            finish(burst, &whole, counters, &mut self.events, self.now);
        }
    }
}

/// Puts planned packets behind the header of their relay SA.
fn wrap_bare(burst: &mut [Item<'_>], plans: &[OutboundPlan<'_>], mut id: u16) {
    for plan in plans {
        let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
        id = id.wrapping_add(1);
        item.verdict = match write_bare(&mut item.buf, plan, id) {
            Some(()) => plan.sealed(),
            None => Verdict::Drop(DropReason::NoRoom),
        };
    }
}

/// Writes the outer header. `None` if there is no room, which the planner has ruled out.
#[inline]
fn write_bare(buf: &mut PacketBuf<'_>, plan: &OutboundPlan<'_>, id: u16) -> Option<()> {
    let sa = plan.sa;
    if !buf.grow_front(sa.outer.prefix_len()) {
        return None;
    }
    let total = buf.len() as u16;
    let marks = Marks { class: plan.class, df: plan.df, id, sequence: 0, iv: 0 };
    let prefix = buf.data_mut().get_mut(..sa.outer.prefix_len())?;
    sa.outer.write(prefix, total, &marks);
    let (_, behind_ip) = prefix.split_last_chunk_mut::<BEFORE_PACKET>()?;
    let spi = sa.spi.with_relay_kind(RelayKind::Bare);
    behind_ip.first_chunk_mut().map(|place| *place = spi.0.to_be_bytes())
}

/// Encrypts the heads of planned packets, each behind the header of its relay SA.
fn seal_heads(burst: &mut [Item<'_>], plans: &[OutboundPlan<'_>], mut id: u16) {
    let mut jobs = Burst::new();
    let mut left = plans.iter().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(plan) = left.next_if(|plan| usize::from(plan.at) == at) else {
            continue;
        };
        id = id.wrapping_add(1);
        item.verdict = match cover(&mut item.buf, plan, id) {
            Some(job) => {
                jobs.push(job);
                plan.sealed()
            }
            None => Verdict::Drop(DropReason::NoRoom),
        };
    }
    seal_burst(&mut jobs);
}

/// Writes the outer header. `None` if there is no room, which the planner has ruled out.
#[inline]
fn cover<'a>(buf: &'a mut PacketBuf<'_>, plan: &OutboundPlan<'a>, id: u16) -> Option<SealJob<'a>> {
    let OutboundPlan { sa, sequence, iv, .. } = *plan;
    let SaKey::Aead(key) = &sa.key else { return None };
    let prefix_len = sa.outer.prefix_len();
    if !(buf.grow_front(prefix_len) && buf.grow_back(TAG_LEN)) {
        return None;
    }
    let total = buf.len() as u16;
    let marks = Marks { class: plan.class, df: plan.df, id, sequence, iv };
    let (prefix, packet) = buf.data_mut().split_at_mut_checked(prefix_len)?;
    sa.outer.write(prefix, total, &marks);
    let (packet, tag) = packet.split_last_chunk_mut::<TAG_LEN>()?;
    let head_len = packet.len().min(HEAD_LEN);
    let (text, _) = packet.split_at_mut_checked(head_len)?;
    Some(SealJob { key, iv: iv.to_be_bytes(), aad: Aad::of_esp(sa.spi.0, sequence, sa.esn), text, tag })
}
