//! Trains: packets of a burst that follow each other and differ in little but their length. Headers
//! and path are found for the first of them only.

use super::{Burst, path};
use crate::dataplane::burst::{Ingress, Item, Verdict};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::table::OutboundTable;
use crate::drops::DropReason;
use crate::flow::{FlowCache, Path};
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::spd::{PolicyId, Spd};
use testudo_wire::ipv4::Likeness;

/// The common fields of a train's packets.
pub(super) struct OutboundTrain {
    /// The headers, with the length of the first packet.
    pub(super) inner: Inner,
    /// Its path, once it has been looked up.
    pub(super) path: Path,
    hash: u64,
    ingress: Ingress,
    /// True if it is of the same flow as the train before it.
    same_flow: bool,
    packets: u8,
}

/// A packet of a train.
#[derive(Clone, Copy)]
pub(super) struct TrainMember {
    /// Octets, by the packet's header.
    pub(super) len: u16,
    /// Its place in the burst.
    pub(super) at: u8,
}

/// The packets of a burst, parsed.
pub(super) struct Parsed {
    pub(super) trains: Burst<OutboundTrain>,
    members: Burst<TrainMember>,
}

impl Parsed {
    /// The trains with their packets, in order.
    #[inline]
    pub(super) fn trains(&self) -> impl Iterator<Item = (&OutboundTrain, &[TrainMember])> {
        let mut rest = &*self.members;
        self.trains.iter().filter_map(move |train| {
            let (members, behind) = rest.split_at_checked(train.packets.into())?;
            rest = behind;
            Some((train, members))
        })
    }

    /// Begins a train with a packet, by its own headers. Returns true if the packet continues the
    /// train before it.
    #[inline]
    fn begin(&mut self, inner: Inner, at: u8, ingress: Ingress, flows: &FlowCache) -> bool {
        let before = self.trains.last().filter(|train| train.inner.flow == inner.flow);
        let (hash, same_flow) = match before {
            Some(train) if train.ingress == ingress && train.inner.is_like(&inner) => {
                self.go_on(inner.len, at);
                return true;
            }
            Some(train) => (train.hash, true),
            None => (flows.hash(&inner.flow), false),
        };
        if !same_flow {
            flows.prefetch(hash);
        }
        self.members.push(TrainMember { len: inner.len, at });
        self.trains.push(OutboundTrain { inner, path: Path::Discard, hash, ingress, same_flow, packets: 1 });
        false
    }

    /// Adds a packet that is like the one before it.
    #[inline]
    fn go_on(&mut self, len: u16, at: u8) {
        self.members.push(TrainMember { len, at });
        if let Some(train) = self.trains.last_mut() {
            train.packets += 1;
        }
    }
}

/// Reads the headers of a burst.
pub(super) fn parse(burst: &mut [Item<'_>], flows: &FlowCache, counters: &DirectionCounters) -> Parsed {
    let mut parsed = Parsed { trains: Burst::new(), members: Burst::new() };
    let mut last: Option<(Likeness, Ingress)> = None;
    for (at, item) in burst.iter_mut().enumerate() {
        item.verdict = Verdict::Pending;
        // A burst has fewer packets than an octet can count.
        let at = at as u8;
        let packet = item.buf.data();
        let alike = |(like, ingress): &(Likeness, Ingress)| {
            (*ingress == item.ingress).then(|| like.accepts(packet)).flatten()
        };
        if let Some(len) = last.as_ref().and_then(alike) {
            // Octets of the link layer may follow the packet. The comparison has read as many
            // octets as the packet has.
            let _shrunk = item.buf.shrink_back(packet.len() - usize::from(len));
            parsed.go_on(len, at);
            continue;
        }
        match Inner::parse(packet, Direction::Out) {
            Ok(mut inner) => {
                if item.ingress == Ingress::Piece {
                    inner.flow = inner.flow.of_fragment(false);
                }
                // From the second packet on: if each packet is of another flow, a comparison would
                // be in vain.
                let is_train = parsed.begin(inner, at, item.ingress, flows);
                last = is_train.then(|| Likeness::of(packet)).flatten().map(|like| (like, item.ingress));
                inner.trim(&mut item.buf);
            }
            Err(_) => item.refuse(DropReason::Malformed, counters),
        }
    }
    parsed
}

/// Looks up the path of each train.
pub(super) fn look_up(trains: &mut [OutboundTrain], flows: &mut FlowCache, spd: &Spd, table: &OutboundTable) {
    let mut before = None;
    for train in trains {
        let known = before.filter(|_| train.same_flow);
        train.path = known.unwrap_or_else(|| path(train.hash, &train.inner.flow, flows, spd, table));
        before = Some(train.path);
    }
}

/// Prefetches the SAs of a burst, if there are several.
#[inline]
pub(super) fn fetch(trains: &[OutboundTrain], table: &OutboundTable) {
    let mut policies: Burst<(PolicyId, u16)> = Burst::new();
    for train in trains {
        if let Path::Protect(policy) = train.path
            && policies.last().is_none_or(|(last, _)| *last != policy)
        {
            policies.push((policy, train.inner.len));
        }
    }
    if policies.len() > 1 {
        table.prefetch(&policies);
    }
}
