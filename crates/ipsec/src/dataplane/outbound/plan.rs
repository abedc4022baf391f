//! Plans: the decision on each packet, before any is encrypted.

use super::train::{OutboundTrain, TrainMember};
use super::{Burst, resolve};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::counters::Counters;
use crate::dataplane::event::{Event, Events, NO_SA_INTERVAL_MS};
use crate::dataplane::local::LocalAddrs;
use crate::dataplane::relay::Relay;
use crate::dataplane::reply::Replier;
use crate::dataplane::shards::is_carried;
use crate::dataplane::table::{OutboundTable, PolicyPlace};
use crate::dataplane::transit::Transit;
use crate::drops::DropReason;
use crate::esp::tunnel;
use crate::flow::Path;
use crate::inner::Inner;
use crate::number::RowClock;
use crate::packet_selector::{Direction, PacketSelector};
use crate::sa::OutboundSa;
use crate::spd::{PolicyId, Spd, is_everything};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_wire::icmp::Kind;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6;

/// A packet that will be encrypted.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutboundPlan<'s> {
    pub(super) sa: &'s OutboundSa,
    pub(super) sequence: u64,
    pub(super) iv: u64,
    pub(super) len: u16,
    pub(super) at: u8,
    pub(super) class: u8,
    pub(super) df: bool,
    /// The largest piece, if the outer packet must be fragmented.
    pub(super) pieces: Option<u16>,
    pub(super) next_header: Protocol,
}

impl OutboundPlan<'_> {
    /// The verdict on the packet once it is encrypted.
    #[inline]
    pub(super) fn sealed(&self) -> Verdict {
        self.pieces.map_or(Verdict::Forward, |mtu| Verdict::ForwardInPieces { mtu })
    }
}

/// The room that an SA leaves for a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'s> {
    /// The largest packet.
    pub(super) mtu: u16,
    /// Octets before its text.
    pub(super) prefix: usize,
    /// The SA of AH, in a bundle.
    pub(super) cover: Option<&'s OutboundSa>,
}

/// Decides what becomes of each packet, and prepares those that will be encrypted.
pub(super) struct Planner<'s, 'd> {
    pub(super) table: &'s OutboundTable,
    /// Addresses of this host.
    pub(super) local: &'d LocalAddrs,
    pub(super) spd: &'d Spd,
    /// Set if there are bundles.
    pub(super) bundles: Option<&'d Spd>,
    pub(super) shards: &'d ShardSet,
    /// Set if shards come or go.
    pub(super) transit: Option<&'d mut Transit>,
    /// Set if packets of other nodes are relayed.
    pub(super) relay: Option<&'s Relay>,
    pub(super) pairs: SipKey,
    /// The clock of the rows of spread SAs.
    pub(super) clock: Option<&'d dyn RowClock>,
    pub(super) replier: Replier<'d>,
    pub(super) counters: &'d Counters,
    pub(super) events: &'d mut Events,
    pub(super) now: u64,
    /// True if a packet of this burst is to be split: later packets must stay behind its pieces.
    pub(super) splits: bool,
}

impl<'s> Planner<'s, '_> {
    /// Decides on the packets of a train. `plans` gets those that will be encrypted.
    #[inline]
    pub(super) fn plan_train(
        &mut self,
        burst: &mut [Item<'_>],
        train: &OutboundTrain,
        members: &[TrainMember],
        plans: &mut Burst<OutboundPlan<'s>>,
    ) {
        if let [only] = members {
            if let Some(item) = burst.get_mut(usize::from(only.at)) {
                plans.extend(self.plan(item, &train.inner, only.at, train.path));
            }
            return;
        }
        let template = self.template(train);
        let own = template.as_ref().and_then(|(plan, _)| self.of_own_lanes(burst, train, members, plan.sa));
        for member in own.as_deref().unwrap_or(members) {
            let Some(item) = burst.get_mut(usize::from(member.at)) else { continue };
            if let Some((plan, room)) = &template
                && fits(item, member.len, plan.sa, room)
            {
                if self.take_hop(item, &train.inner) {
                    self.clamp(item, &train.inner, plan.sa, room.mtu);
                    if !self.waits(item) {
                        plans.push(OutboundPlan { len: member.len, at: member.at, ..*plan });
                    }
                }
            } else {
                plans.extend(self.plan(item, &train.inner.of_len(member.len), member.at, train.path));
            }
        }
    }

    /// The common plan of a train, if its tunnel is up, it is spread or carried here, and no other
    /// SA stands around it.
    #[inline]
    fn template(&self, train: &OutboundTrain) -> Option<(OutboundPlan<'s>, Room<'s>)> {
        let Path::Protect(policy) = train.path else { return None };
        if self.bundles.is_some() || self.transit.is_some() {
            return None;
        }
        let sa = self.table.sa(policy).filter(|sa| !sa.outer.is_transport() && self.may_template(sa))?;
        Some((plan(sa, &train.inner, 0, true, None), Room::of(sa)))
    }

    /// Plans a single packet.
    fn plan(&mut self, item: &mut Item<'_>, inner: &Inner, at: u8, path: Path) -> Option<OutboundPlan<'s>> {
        if self.transit.is_some() && !self.transit_lets_pass(item, inner, path) {
            return None;
        }
        let reason = match path {
            Path::Protect(policy) => match self.table.sa(policy) {
                Some(sa) if self.carries(item, sa) => return self.protect(item, inner, at, sa),
                Some(sa) => return self.leave(item, inner, at, self.relay_shard(item, sa)),
                None => match self.foreign_home(policy) {
                    Some(home) => return self.leave(item, inner, at, Some(home)),
                    None => self.tell_no_sa(policy, inner.flow),
                },
            },
            // The node that has relayed it saw a policy that this node does not have.
            Path::Bypass if item.ingress.is_relayed() => DropReason::RelayedStray,
            Path::Bypass if self.keeps_pair(item, inner) => {
                self.bypass(item, inner);
                return None;
            }
            Path::Bypass => DropReason::OtherNode,
            Path::OutsideSa(_) | Path::NoPolicy(_)
                if let Some(policy) = self.policy_by_quote(item, inner) =>
            {
                return self.plan_by_quote(item, inner, at, policy);
            }
            Path::OutsideSa(policy) => match self.table.sa(policy) {
                Some(sa) if self.carries(item, sa) => {
                    sa.counters().add_drop(DropReason::OutsideSa);
                    DropReason::OutsideSa
                }
                Some(sa) => return self.leave(item, inner, at, self.relay_shard(item, sa)),
                None => DropReason::OutsideSa,
            },
            Path::Discard => DropReason::PolicyDiscard,
            Path::Join => {
                self.counters.outbound.to_join.add(1);
                item.verdict = Verdict::Reassemble;
                return None;
            }
            Path::NoPolicy(held) if self.is_hosts_own(item, inner, held) => {
                self.bypass(item, inner);
                return None;
            }
            Path::NoPolicy(_) => DropReason::NoPolicy,
        };
        item.refuse(reason, &self.counters.outbound);
        None
    }

    /// True unless the packet's shard comes or goes, and the packet must wait or was worked on
    /// elsewhere.
    #[cold]
    fn transit_lets_pass(&mut self, item: &mut Item<'_>, inner: &Inner, path: Path) -> bool {
        let shard = match path {
            Path::Protect(policy) | Path::OutsideSa(policy) => {
                self.table.sa(policy).and_then(|sa| self.shard_of(item, sa))
            }
            Path::Bypass if item.ingress.is_flooded() => {
                Some(self.pairs.pair(inner.flow.local(), inner.flow.remote()))
            }
            _ => None,
        };
        let (Some(shard), Some(transit)) = (shard, &mut self.transit) else { return true };
        let here = is_carried(shard, self.shards);
        transit.lets_pass(item, shard, here, self.now, self.pairs, &self.counters.outbound)
    }

    /// True if this node carries the SA. Packets whose home only the policies show come to all
    /// nodes.
    #[inline]
    pub(super) fn is_home(&self, sa: &OutboundSa) -> bool {
        is_carried(sa.pair.shard(), self.shards)
    }

    /// True unless the packet has reached all nodes and another node lets it pass.
    fn keeps_pair(&self, item: &Item<'_>, inner: &Inner) -> bool {
        let shard = || self.pairs.pair(inner.flow.local(), inner.flow.remote());
        !item.ingress.is_flooded() || is_carried(shard(), self.shards)
    }

    /// True for a packet of this host that only policies for all addresses hold back and none of
    /// them selects: a tunnel for everything must not cut the gateway off.
    #[cold]
    fn is_hosts_own(&self, item: &Item<'_>, inner: &Inner, held: Option<u8>) -> bool {
        let is_own = item.ingress.is_host() && !item.ingress.is_relayed();
        is_own && is_everything(&inner.flow, held) && self.local.contains(inner.flow.local())
    }

    /// The policy of an ICMP error that its own addresses do not lead into a tunnel: that of an
    /// answer to the packet that it quotes, if the policy's SA allows that (RFC 4301 §6.2). The
    /// flow cache does not remember it: the next error of its flow may quote another packet.
    #[cold]
    fn policy_by_quote(&self, item: &Item<'_>, inner: &Inner) -> Option<PolicyId> {
        let quote = PacketSelector::quoted(item.buf.data(), &inner.flow, Direction::Out)?;
        // Without ports it may be a later fragment, and some policy may select by ports.
        let path = resolve(&quote.of_fragment(!quote.has_ports()), self.spd, self.table);
        let Path::Protect(policy) = path else { return None };
        self.table.sa(policy).filter(|sa| sa.passes_icmp()).map(|_| policy)
    }

    /// Plans an ICMP error for the SA of that policy.
    #[cold]
    fn plan_by_quote(
        &mut self,
        item: &mut Item<'_>,
        inner: &Inner,
        at: u8,
        policy: PolicyId,
    ) -> Option<OutboundPlan<'s>> {
        if self.transit.is_some() && !self.transit_lets_pass(item, inner, Path::Protect(policy)) {
            return None;
        }
        let sa = self.table.sa(policy)?;
        match self.carries(item, sa) {
            true => self.protect(item, inner, at, sa),
            false => self.leave(item, inner, at, self.relay_shard(item, sa)),
        }
    }

    /// Reports a missing SA. Only the node at home asks for it: several nodes would set up several.
    #[cold]
    fn tell_no_sa(&mut self, policy: PolicyId, packet: PacketSelector) -> DropReason {
        if let Some(place) = self.table.get(policy) {
            self.ask_for_sa(place, policy, packet);
        }
        DropReason::NoSa
    }

    /// Tells control now and then that the policy's SA is missing.
    pub(super) fn ask_for_sa(&mut self, place: &PolicyPlace, policy: PolicyId, packet: PacketSelector) {
        let due = place.told.get().is_none_or(|told| self.now.saturating_sub(told) >= NO_SA_INTERVAL_MS);
        if due && self.events.raise(Event::NoSa { policy, packet }) {
            place.told.set(Some(self.now));
        }
    }

    /// Decrements the TTL of a packet that came through a port. Returns false if it was used up;
    /// the packet has its verdict then.
    #[inline]
    fn take_hop(&mut self, item: &mut Item<'_>, inner: &Inner) -> bool {
        if item.ingress.is_host() {
            return true;
        }
        if inner.ttl <= 1 {
            let (kind, reason) = (Kind::TimeExceeded, DropReason::TtlExceeded);
            self.replier.refuse(item, kind, reason, &self.counters.outbound);
            return false;
        }
        inner.decrement_ttl(item.buf.data_mut());
        true
    }

    /// True if a packet is given back, to be sent behind the pieces of earlier ones. A reassembled
    /// packet is not: its origin would be lost.
    #[inline(always)]
    fn waits(&self, item: &mut Item<'_>) -> bool {
        let waits = self.splits && !item.ingress.is_joined();
        if waits {
            self.counters.outbound.to_split.add(1);
            item.verdict = Verdict::Behind;
        }
        waits
    }

    /// Lowers the MSS of a segment that opens a connection through the SA, where packets of this
    /// size fit.
    #[inline]
    pub(super) fn clamp(&self, item: &mut Item<'_>, inner: &Inner, sa: &OutboundSa, mtu: u16) {
        if inner.clamp_mss(item.buf.data_mut(), &sa.mss, || mtu) {
            self.counters.mss_clamped.add(1);
        }
    }

    fn bypass(&mut self, item: &mut Item<'_>, inner: &Inner) {
        if self.take_hop(item, inner) {
            self.counters.outbound.forwarded.add(1);
            self.counters.outbound.forwarded_bytes.add(u64::from(inner.len));
            // An IPv6 packet that came in fragments goes on in fragments that fit every link: its
            // sender has already chosen that size.
            let in_pieces = item.ingress.is_joined() && inner.is_ipv6() && inner.len > ipv6::MIN_MTU;
            item.verdict =
                if in_pieces { Verdict::ForwardInPieces { mtu: ipv6::MIN_MTU } } else { Verdict::Forward };
        }
    }

    #[inline(always)]
    pub(super) fn room(&mut self, item: &mut Item<'_>, sa: &'s OutboundSa) -> Option<Room<'s>> {
        match self.bundles {
            None => Some(Room::of(sa)),
            Some(spd) => self.room_in_bundle(item, sa, spd),
        }
    }

    #[inline(always)]
    fn protect(
        &mut self,
        item: &mut Item<'_>,
        inner: &Inner,
        at: u8,
        sa: &'s OutboundSa,
    ) -> Option<OutboundPlan<'s>> {
        if sa.outer.is_transport() {
            return self.protect_own(item, inner, at, sa);
        }
        let room = self.room(item, sa)?;
        let mtu = room.mtu;
        let too_big = inner.len > mtu;
        // A sender of fragments has learned the MTU, or does without it.
        let may_shrink = || inner.df && !item.ingress.is_joined();
        if too_big && may_shrink() && inner.len > reported_mtu(inner, mtu) {
            let kind = Kind::TooBig { mtu: reported_mtu(inner, mtu) };
            sa.counters().add_drop(DropReason::TooBig);
            self.replier.refuse(item, kind, DropReason::TooBig, &self.counters.outbound);
            return None;
        }
        if !self.take_hop(item, inner) {
            return None;
        }
        if too_big && !inner.df && may_split(inner, sa) {
            self.counters.outbound.to_split.add(1);
            self.splits = true;
            item.verdict = Verdict::Fragment { mtu };
            return None;
        }
        let behind = sa.outer.sizes().behind(usize::from(inner.len));
        if item.buf.headroom() < room.prefix || item.buf.tailroom() < behind {
            sa.counters().add_drop(DropReason::NoRoom);
            item.refuse(DropReason::NoRoom, &self.counters.outbound);
            return None;
        }
        self.clamp(item, inner, sa, mtu);
        if self.waits(item) {
            return None;
        }
        let pieces = if too_big { room.pieces(sa, usize::from(inner.len) + behind) } else { None };
        Some(plan(sa, inner, at, !too_big, pieces))
    }
}

/// Plans a packet in a tunnel. A packet that must pass whole although it is too big is fragmented
/// outside, here or on its way.
#[inline(always)]
pub(super) fn plan<'s>(
    sa: &'s OutboundSa,
    inner: &Inner,
    at: u8,
    is_small: bool,
    pieces: Option<u16>,
) -> OutboundPlan<'s> {
    OutboundPlan {
        sa,
        sequence: 0,
        iv: 0,
        len: inner.len,
        at,
        class: tunnel::outer_class(sa.copy, inner.class),
        df: sa.copy.df && inner.df && is_small,
        pieces,
        next_header: inner.next_header(),
    }
}

/// True if a packet of this size is small enough, and its frame has room.
#[inline(always)]
fn fits(item: &Item<'_>, len: u16, sa: &OutboundSa, room: &Room<'_>) -> bool {
    let behind = sa.outer.sizes().behind(usize::from(len));
    len <= room.mtu && item.buf.headroom() >= room.prefix && item.buf.tailroom() >= behind
}

impl<'s> Room<'s> {
    /// The room without another SA around it.
    #[inline(always)]
    pub(super) fn of(sa: &'s OutboundSa) -> Self {
        Self { mtu: sa.inner_mtu(), prefix: sa.outer.prefix_len(), cover: None }
    }

    /// The largest piece of an outer IPv6 packet, which only its source may fragment (RFC 8200 §5).
    /// `None` if the packet fits the path, or every IPv6 link. `behind_prefix`: its octets behind
    /// the prefix.
    #[cold]
    pub(super) fn pieces(&self, sa: &OutboundSa, behind_prefix: usize) -> Option<u16> {
        let outermost = self.cover.unwrap_or(sa);
        let mtu = outermost.path_mtu().max(ipv6::MIN_MTU);
        let total = self.prefix + behind_prefix;
        (outermost.outer.is_ipv6() && total > usize::from(mtu)).then_some(mtu)
    }
}

/// True if the pieces of a packet may go through the SA too. If its selectors need ports, the later
/// pieces have none to show (RFC 4301 §7), and the packet is encrypted whole.
#[cold]
fn may_split(inner: &Inner, sa: &OutboundSa) -> bool {
    sa.selectors.accepts(&inner.flow.without_ports())
}

/// The MTU to report to a sender. No IPv6 sender can go below 1280 octets (RFC 8200 §5), so packets
/// up to that size must pass whatever the path MTU is.
#[inline]
pub(super) fn reported_mtu(inner: &Inner, mtu: u16) -> u16 {
    if inner.is_ipv6() { mtu.max(ipv6::MIN_MTU) } else { mtu }
}
