//! Bundles: AH around ESP of our own (RFC 4301 §4.3). The outer SA is found by the packet that the
//! inner one has made, as in appendix E. Both SAs are planned and numbered before either does
//! anything, so that a packet goes through both or neither.

use super::plan::{OutboundPlan, Planner, Room};
use super::{Burst, ah, number};
use crate::dataplane::burst::{Item, Verdict};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::event::Events;
use crate::dataplane::table::OutboundTable;
use crate::drops::DropReason;
use crate::esp::tunnel;
use crate::number::IvAllocator;
use crate::packet_selector::PacketSelector;
use crate::sa::{OutboundSa, SaKey};
use crate::spd::{PolicyId, Spd};
use testudo_wire::ip::Protocol;

/// The policy that puts AH around the packets of an SA. It applies to ESP in UDP too, which the
/// policy does not let out without AH, although AH does not go around it.
fn policy_around(sa: &OutboundSa, spd: &Spd) -> Option<PolicyId> {
    let is_esp = !sa.outer.is_ah() && !sa.is_relay();
    is_esp.then(|| spd.around(sa.outer.local(), sa.outer.remote())).flatten()
}

/// The SA of that policy.
fn cover_of(policy: PolicyId, table: &OutboundTable) -> Option<&OutboundSa> {
    table.sa(policy).filter(|ah| ah.outer.is_ah())
}

impl<'s> Planner<'s, '_> {
    /// The room that an SA leaves for a packet, with bundles. Without its AH no ESP is sent, and
    /// the packet has its verdict then.
    #[cold]
    pub(super) fn room_in_bundle(
        &mut self,
        item: &mut Item<'_>,
        sa: &'s OutboundSa,
        spd: &Spd,
    ) -> Option<Room<'s>> {
        let Some(policy) = policy_around(sa, spd) else {
            return Some(Room::of(sa));
        };
        let reason = match cover_of(policy, self.table) {
            _ if sa.outer.is_udp() => DropReason::NotInAh,
            Some(ah) if self.is_home(ah) => {
                return Some(Room {
                    mtu: sa.inner_mtu_within(ah.inner_mtu()),
                    prefix: sa.outer.prefix_len() + ah.outer.prefix_len(),
                    cover: Some(ah),
                });
            }
            Some(_) => DropReason::OtherNode,
            None => {
                self.ask_for_cover(sa, policy);
                DropReason::NoSa
            }
        };
        item.refuse(reason, &self.counters.outbound);
        None
    }

    /// Asks for the missing AH. The node that carries ESP asks, whatever the home of the policy: it
    /// has the IKE SA from which both SAs come, so that AH gets ESP's shard. No other node sees a
    /// packet that lacks AH.
    fn ask_for_cover(&mut self, sa: &OutboundSa, policy: PolicyId) {
        let made = PacketSelector::new(sa.outer.local(), sa.outer.remote(), Protocol::ESP, None);
        if let (Some(made), Some(place)) = (made, self.table.get(policy)) {
            self.ask_for_sa(place, policy, made);
        }
    }
}

/// Plans AH for those packets whose ESP gets it and that have their numbers.
#[cold]
pub(super) fn plan<'s>(
    plans: &[OutboundPlan<'s>],
    spd: &Spd,
    table: &'s OutboundTable,
    covers: &mut Burst<OutboundPlan<'s>>,
) {
    for run in plans.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        let policy = run.first().and_then(|plan| policy_around(plan.sa, spd));
        let Some(cover) = policy.and_then(|policy| cover_of(policy, table)) else {
            continue;
        };
        let numbered = run.iter().filter(|plan| plan.sequence != 0);
        covers.extend(numbered.map(|plan| cover_plan(plan, cover)));
    }
}

fn cover_plan<'s>(plan: &OutboundPlan<'s>, cover: &'s OutboundSa) -> OutboundPlan<'s> {
    let (class, next_header) = match (cover.outer.is_transport(), plan.sa.outer.is_ipv6()) {
        (true, _) => (plan.class, Protocol::ESP),
        (false, true) => (tunnel::outer_class(cover.copy, plan.class), Protocol::IPV6),
        (false, false) => (tunnel::outer_class(cover.copy, plan.class), Protocol::IPV4),
    };
    OutboundPlan { sa: cover, sequence: 0, iv: 0, class, next_header, ..*plan }
}

/// Removes the packets for which AH has no number, from the plans of ESP too.
#[cold]
pub(super) fn refuse_unnumbered<'s>(
    burst: &mut [Item<'_>],
    plans: &mut Burst<OutboundPlan<'s>>,
    covers: &mut Burst<OutboundPlan<'s>>,
    ivs: &IvAllocator,
    counters: &DirectionCounters,
) {
    number::refuse_unnumbered(burst, covers, ivs, counters);
    plans.retain(|plan| burst.get(usize::from(plan.at)).is_some_and(|item| item.verdict == Verdict::Pending));
}

/// Puts AH around the encrypted packets, and counts them for its SA.
#[cold]
pub(super) fn seal(
    burst: &mut [Item<'_>],
    covers: &[OutboundPlan<'_>],
    mut id: u16,
    events: &mut Events,
    now: u64,
) {
    for run in covers.chunk_by(|a, b| std::ptr::eq(a.sa, b.sa)) {
        let Some(sa) = run.first().map(|plan| plan.sa) else { continue };
        let SaKey::Mac(key) = &sa.key else { continue };
        let (mut packets, mut bytes) = (0, 0);
        for plan in run {
            id = id.wrapping_add(1);
            let Some(item) = burst.get_mut(usize::from(plan.at)) else { continue };
            if !matches!(item.verdict, Verdict::Forward | Verdict::ForwardInPieces { .. }) {
                continue;
            }
            let len = item.buf.len();
            match ah::protect(&mut item.buf, plan, key, id) {
                Some(()) => {
                    packets += 1;
                    bytes += len as u64;
                }
                None => item.verdict = Verdict::Drop(DropReason::NoRoom),
            }
        }
        if packets > 0 {
            sa.counters().add(packets, bytes, now);
            events.note_mark(sa.counters(), sa.pair);
        }
    }
}
