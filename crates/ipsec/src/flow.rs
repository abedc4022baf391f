//! A worker's cache from flow to the SPD's decision, so that the SPD is searched once a flow, not
//! once a packet.
//!
//! A flow may stand in two sets: if it would displace another in the first, it goes to the second,
//! so that few flows lack a place before most places are taken.

use crate::packet_selector::PacketSelector;
use crate::spd::PolicyId;
use testudo_crypto::prefetch;

/// The decision on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Through the policy's SA, if there is one.
    Protect(PolicyId),
    /// The policy's SA was not negotiated for this flow.
    OutsideSa(PolicyId),
    Bypass,
    Discard,
    /// A fragment on whose flow ports decide: only the whole datagram shows them.
    Join,
    /// No policy matches. The width is that of a range that holds back packets to the address from
    /// other sources, if there is one.
    NoPolicy(Option<u8>),
}

/// Two entries a set, in one pair of cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct FlowEntry {
    flow: PacketSelector,
    path: Path,
    /// Entries of an older generation are void.
    generation: u32,
}

/// The cache. Its size never changes.
#[derive(Debug)]
pub(crate) struct FlowCache {
    sets: Box<[[FlowEntry; 2]]>,
    generation: u32,
    seed: u64,
}

impl FlowCache {
    /// `2^bits` sets of two. The seed keeps outsiders from choosing flows that collide.
    pub(crate) fn new(bits: u32, seed: u64) -> Self {
        let flow = PacketSelector { local: 0, remote: 0, meta: 0 };
        let empty = FlowEntry { flow, path: Path::NoPolicy(None), generation: 0 };
        Self { sets: vec![[empty; 2]; 1 << bits.min(20)].into(), generation: 1, seed }
    }

    /// Forgets all flows.
    pub(crate) fn invalidate(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            // Once in about four thousand million changes, entries of the first generation would
            // become valid again.
            for entry in self.sets.as_flattened_mut() {
                entry.generation = 0;
            }
            self.generation = 1;
        }
    }

    /// A keyed hash of the flow (folded multiplication).
    #[inline]
    pub(crate) fn hash(&self, flow: &PacketSelector) -> u64 {
        const ODD: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0x8cb9_2ba7_2f3d_8dd7];
        let (local, remote) = (flow.local, flow.remote);
        let low = fold(local as u64 ^ self.seed, remote as u64 ^ ODD[0]);
        let high = fold((local >> 64) as u64 ^ ODD[1], (remote >> 64) as u64 ^ self.seed.rotate_left(32));
        fold(low ^ flow.meta, high ^ ODD[2])
    }

    /// The two sets of a hash.
    #[inline]
    fn places(&self, hash: u64) -> [usize; 2] {
        let mask = self.sets.len() - 1;
        [hash as usize & mask, (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask]
    }

    /// Prefetches the place of a flow with this hash: the first of two, where most flows are.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let [first, _] = self.places(hash);
        if let Some(set) = self.sets.get(first) {
            prefetch(set, size_of_val(set));
        }
    }

    /// The cached path of a flow.
    #[inline]
    pub(crate) fn get(&self, hash: u64, flow: &PacketSelector) -> Option<Path> {
        let found = |at: usize| {
            let is_it = |entry: &&FlowEntry| entry.generation == self.generation && entry.flow == *flow;
            self.sets.get(at)?.iter().find(is_it).map(|entry| entry.path)
        };
        let [first, second] = self.places(hash);
        found(first).or_else(|| found(second))
    }

    /// Stores a flow, in place of the older one of its first set if there is no room in either.
    pub(crate) fn insert(&mut self, hash: u64, flow: &PacketSelector, path: Path) {
        let generation = self.generation;
        let has_room = |at: &usize| self.sets.get(*at).is_some_and(|set| set[1].generation != generation);
        let places = self.places(hash);
        let at = places.into_iter().find(has_room).unwrap_or(places[0]);
        if let Some(set) = self.sets.get_mut(at) {
            if set[0].generation == generation {
                set[1] = set[0];
            }
            set[0] = FlowEntry { flow: *flow, path, generation };
        }
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
