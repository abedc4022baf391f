//! Packets that came in clear from where a peer's packets come protected: the policies decide
//! whether they may pass (RFC 4301 §5.2).
//!
//! Each is looked up without the flow cache: the sender of such packets must not push the flows of
//! tunnels out of it.

use super::Dataplane;
use super::burst::{Item, Verdict};
use super::fence;
use super::local::LocalAddrs;
use super::reply::Replier;
use crate::drops::DropReason;
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::spd::{InboundClear, Spd};
use testudo_base::spi::Spi;
use testudo_wire::icmp::{Kind, Sources};
use testudo_wire::ipv6;

/// The decision on a clear packet.
enum Judgement {
    /// It is for this host, and may pass.
    ToHost,
    /// It is for another, and may pass.
    Forward,
    /// Its ports decide, and it is a fragment: it must be reassembled.
    Join,
    Drop(DropReason),
}

impl Dataplane {
    /// Decides on packets that a port received in clear, from prefixes that policies hold back.
    /// ICMP errors about those that may pass come from `sources`.
    pub fn judge(&mut self, burst: &mut [Item<'_>], sources: &Sources) {
        if !self.open {
            return fence::refuse(burst, &self.counters.inbound);
        }
        let counters = &*self.counters;
        let mut replier = Replier { sources, limit: &mut self.icmp_limit, counters };
        for item in burst {
            counters.inbound.received.add(1);
            counters.inbound.received_bytes.add(item.buf.len() as u64);
            let Ok(inner) = Inner::parse(item.buf.data(), Direction::In) else {
                item.refuse(DropReason::Malformed, &counters.inbound);
                continue;
            };
            match judge(&inner, &self.spd, &self.local) {
                Judgement::ToHost => {
                    inner.trim(&mut item.buf);
                    counters.inbound.to_host.add(1);
                    item.verdict = Verdict::ToHost;
                }
                Judgement::Forward => forward(item, &inner, &mut replier),
                Judgement::Join => {
                    counters.inbound.to_join.add(1);
                    item.verdict = Verdict::Reassemble;
                }
                Judgement::Drop(reason) => {
                    counters.inbound.samples.offer(reason, Spi(0), item.buf.data());
                    item.refuse(reason, &counters.inbound);
                }
            }
        }
    }
}

fn judge(inner: &Inner, spd: &Spd, local: &LocalAddrs) -> Judgement {
    let flow = &inner.flow;
    if flow.is_fragment() && spd.needs_ports(&flow.without_ports()) {
        return Judgement::Join;
    }
    let is_for_us = local.contains(flow.local());
    match spd.inbound_clear(flow) {
        InboundClear::Bypass if !is_for_us => Judgement::Forward,
        InboundClear::Bypass => Judgement::ToHost,
        InboundClear::Drop(reason) => Judgement::Drop(reason),
        // It must not reach this host either: it would come to the kernel by the TUN, as if it had
        // been protected, and a firewall that trusts tunnel traffic would let it in. Packets that
        // the host may have beside a tunnel for everything are passed to the kernel by the filter.
        InboundClear::NoPolicy => Judgement::Drop(DropReason::NoPolicy),
    }
}

/// Routes a packet on, with its TTL decremented.
fn forward(item: &mut Item<'_>, inner: &Inner, replier: &mut Replier<'_>) {
    let counters = &replier.counters.inbound;
    if inner.ttl <= 1 {
        return replier.refuse(item, Kind::TimeExceeded, DropReason::TtlExceeded, counters);
    }
    inner.trim(&mut item.buf);
    inner.decrement_ttl(item.buf.data_mut());
    counters.forwarded.add(1);
    counters.forwarded_bytes.add(u64::from(inner.len));
    // An IPv6 packet that came in fragments goes on in fragments that fit every link, like bypassed
    // outbound packets.
    let in_pieces = item.ingress.is_joined() && inner.is_ipv6() && inner.len > ipv6::MIN_MTU;
    item.verdict = if in_pieces { Verdict::ForwardInPieces { mtu: ipv6::MIN_MTU } } else { Verdict::Forward };
}
