//! Packets to protect: look-up, size, numbers, cipher, outer header. Each stage goes over the whole
//! burst before the next begins, so that the memory accesses of different packets overlap.

mod ah;
mod bundle;
mod ccm;
mod lanes;
mod number;
mod others;
mod plan;
mod relay;
mod seal;
mod separate;
mod train;
mod transport;

use super::burst::{BURST, Item};
use super::reply::Replier;
use super::table::OutboundTable;
use super::turn::Turn;
use super::{Dataplane, fence};
use crate::flow::{FlowCache, Path};
use crate::packet_selector::PacketSelector;
use crate::spd::{Action, Decision, Spd};
use arrayvec::ArrayVec;
use number::{Low, number, refuse_unnumbered};
use plan::Planner;
pub(super) use relay::Foreign;
use seal::{finish, seal, want_keys};
use testudo_wire::icmp::Sources;
use train::{fetch, look_up, parse};

type Burst<T> = ArrayVec<T, BURST>;

impl Dataplane {
    /// Protects a burst of clear packets. A burst longer than [`BURST`] is processed in parts. ICMP
    /// errors about them come from `sources`: addresses of the interface by which they came in (RFC
    /// 1812 §4.3.2.4).
    pub fn outbound(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        if !self.open {
            return fence::refuse(burst, &self.counters.outbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.outbound_part(part, sources, None);
        }
    }

    /// [`Self::outbound`] while other workers have earlier and later bursts in hand: the steps that
    /// depend on the order wait for `turn`.
    pub fn outbound_in_turn(&mut self, burst: &mut [Item<'_>], sources: &Sources, turn: &mut dyn Turn) {
        if !self.open {
            return fence::refuse(burst, &self.counters.outbound);
        }
        for part in burst.chunks_mut(BURST) {
            self.outbound_part(part, sources, Some(turn));
        }
    }

    fn outbound_part(&mut self, burst: &mut [Item<'_>], sources: &Sources, mut turn: Option<&mut dyn Turn>) {
        let counters = &*self.counters;
        let bytes: usize = burst.iter().map(|item| item.buf.len()).sum();
        counters.outbound.received.add(burst.len() as u64);
        counters.outbound.received_bytes.add(bytes as u64);

        let mut parsed = parse(burst, &self.flows, &counters.outbound);
        look_up(&mut parsed.trains, &mut self.flows, &self.spd, &self.outbound);
        fetch(&parsed.trains, &self.outbound);
        let mut planner = Planner {
            table: &self.outbound,
            local: &self.local,
            spd: &self.spd,
            bundles: self.spd.has_around().then_some(&*self.spd),
            shards: &self.shards,
            transit: (!self.transit.is_idle(self.now)).then_some(&mut self.transit),
            relay: self.relay.as_deref(),
            pairs: self.pairs,
            clock: self.clock.as_deref(),
            replier: Replier { sources, limit: &mut self.icmp_limit, counters },
            counters,
            events: &mut self.events,
            now: self.now,
            splits: false,
        };
        let mut plans = Burst::new();
        for (train, members) in parsed.trains() {
            planner.plan_train(burst, train, members, &mut plans);
        }
        let mut low = Low {
            table: &self.outbound,
            clock: self.clock.as_deref(),
            counts_all: self.relay.is_none(),
            iv_told: &mut self.iv_low_told,
            events: &mut self.events,
            now: self.now,
        };
        if let Some(turn) = &mut turn {
            turn.begin();
        }
        number(&mut plans, &mut self.ivs, &mut low);
        let mut covers = Burst::new();
        if self.spd.has_around() {
            bundle::plan(&plans, &self.spd, &self.outbound, &mut covers);
            number(&mut covers, &mut self.ivs, &mut low);
        }
        if let Some(turn) = turn {
            turn.end();
        }
        refuse_unnumbered(burst, &mut plans, &self.ivs, &counters.outbound);
        if !covers.is_empty() {
            bundle::refuse_unnumbered(burst, &mut plans, &mut covers, &self.ivs, &counters.outbound);
        }
        let id = self.ids.take(plans.len() as u16);
        seal(burst, &plans, id);
        if !covers.is_empty() {
            let id = self.ids.take(covers.len() as u16);
            bundle::seal(burst, &covers, id, &mut self.events, self.now);
        }
        want_keys(&plans, &mut self.events, self.now);
        finish(burst, &plans, &counters.outbound, &mut self.events, self.now);
    }
}

/// The path of a flow: from the cache, or from the SPD and then stored in the cache. `hash` is that
/// of the flow.
#[inline]
pub(super) fn path(
    hash: u64,
    flow: &PacketSelector,
    flows: &mut FlowCache,
    spd: &Spd,
    table: &OutboundTable,
) -> Path {
    flows.get(hash, flow).unwrap_or_else(|| {
        let path = resolve(flow, spd, table);
        flows.insert(hash, flow, path);
        path
    })
}

/// True if a fragment's datagram must be reassembled first: a policy needs ports, and a fragment
/// without ports may not be told from what a later policy takes. The other fragments would go
/// another way, perhaps in clear or through another tunnel (RFC 4301 §7.3, §7.4). The same holds
/// for an SA that was negotiated for certain ports.
fn must_be_joined(flow: &PacketSelector, spd: &Spd, table: &OutboundTable) -> bool {
    let later = flow.without_ports();
    let is_outside = || match spd.lookup(&later) {
        Decision::Act(Action::Protect(policy)) => table
            .sa(policy)
            .is_some_and(|sa| !sa.selectors.accepts(&later) && sa.selectors.accepts_but_for_ports(&later)),
        _ => false,
    };
    spd.needs_ports(&later) || is_outside()
}

#[cold]
fn resolve(flow: &PacketSelector, spd: &Spd, table: &OutboundTable) -> Path {
    if flow.is_fragment() && must_be_joined(flow, spd, table) {
        return Path::Join;
    }
    match spd.lookup(flow) {
        Decision::Act(Action::Protect(policy)) => match table.sa(policy) {
            Some(sa) if !sa.selectors.accepts(flow) => Path::OutsideSa(policy),
            _ => Path::Protect(policy),
        },
        // The connection of a wider prefix was unloaded, perhaps by mistake.
        Decision::Act(Action::Bypass) if spd.is_shut(flow) => Path::NoPolicy(spd.held_back(flow)),
        Decision::Act(Action::Bypass) => Path::Bypass,
        Decision::Act(Action::Discard) => Path::Discard,
        Decision::NoPolicy => Path::NoPolicy(spd.held_back(flow)),
    }
}
