//! Identifiers with a layout: SPI, shard, sender ID.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// One of 256 parts of all tunnels. A node owns some of them; a lone node owns all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard(pub u8);

/// Security Parameters Index of ESP (RFC 4303 §2.1), laid out as shard:8 | slot:14 | tag:10.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spi(pub u32);

/// What a node encrypts of a packet that it relays to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// The whole packet: any packet may go so.
    Whole,
    /// The beginning of the packet only: for ESP and AH, whose own SA protects the rest.
    Head,
    /// Nothing: for ESP and AH of whose beginning the carrier believes nothing that their own SA
    /// does not protect. It belongs to the SA of [`Self::Head`] between the two nodes.
    Bare,
}

impl RelayKind {
    /// The kinds with SAs of their own.
    pub const SAS: [Self; 2] = [Self::Whole, Self::Head];
}

impl Shard {
    /// The SPIs of a shard's Child SAs: the shard's number is their first octet.
    pub fn spis(self) -> RangeInclusive<Spi> {
        let first = u32::from(self.0) << 24;
        Spi(first)..=Spi(first | ((1 << 24) - 1))
    }
}

impl Spi {
    /// Slots of a shard.
    pub const SLOTS: usize = 1 << 14;

    /// The SPIs of relay SAs, by which nodes of a cluster pass packets on to each other. They lie
    /// in slot 0 of shard 0, which no Child SA gets.
    pub const RELAY: RangeInclusive<Self> = Self(256)..=Self(1023);
    /// SPIs of relay SAs of one kind. Those of each kind follow those of the kind before.
    pub const RELAY_SPIS: u32 = 256;
    /// Generations of relay SAs whose SPIs differ.
    const RELAY_GENERATIONS: u64 = 8;

    /// Lays out the SPI of a Child SA. `None` if a field is too wide, or in slot 0 of shard 0: its
    /// first values are reserved (RFC 4303 §2.1), and relay SAs have others.
    pub fn from_parts(shard: Shard, slot: u16, tag: u16) -> Option<Self> {
        if usize::from(slot) >= Self::SLOTS || tag >= 1 << 10 || (shard.0, slot) == (0, 0) {
            return None;
        }
        Some(Self(u32::from(shard.0) << 24 | u32::from(slot) << 10 | u32::from(tag)))
    }

    /// The SPI of the relay SAs of a kind by which this node sends in a view. The SAs of the views
    /// shortly before have others. `None` if there is no such node.
    pub fn of_relay(kind: RelayKind, generation: u64, sender: u8) -> Option<Self> {
        let first = Self::RELAY.start().0 + kind as u32 * Self::RELAY_SPIS;
        let row = (generation % Self::RELAY_GENERATIONS) as u32;
        (sender <= SenderId::LAST_NODE).then(|| Self(first + row * 32 + u32::from(sender)))
    }

    /// The kind of the relay SAs with this SPI. `None` if it is no SPI of relay SAs.
    #[inline]
    pub fn relay_kind(self) -> Option<RelayKind> {
        let place = self.0.wrapping_sub(Self::RELAY.start().0);
        match place / Self::RELAY_SPIS {
            0 => Some(RelayKind::Whole),
            1 => Some(RelayKind::Head),
            2 => Some(RelayKind::Bare),
            _ => None,
        }
    }

    /// The SPI of another kind of packets between the same nodes in the same view, if this is one of
    /// a relay SA.
    #[inline]
    pub fn with_relay_kind(self, kind: RelayKind) -> Self {
        Self(Self::RELAY.start().0 + kind as u32 * Self::RELAY_SPIS + self.0 % Self::RELAY_SPIS)
    }

    /// The shard whose owner receives this SPI's packets.
    pub fn shard(self) -> Shard {
        Shard((self.0 >> 24) as u8)
    }

    /// Index into the shard's slots.
    pub fn slot(self) -> u16 {
        (self.0 >> 10) as u16 & 0x3fff
    }
}

impl std::fmt::Debug for Spi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl std::fmt::Display for Spi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Sender ID of RFC 6054: the leftmost 16 bits of all IVs of one sender, node slot:5 |
/// incarnation:11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SenderId(pub u16);

impl SenderId {
    const INCARNATION_BITS: u32 = 11;
    /// The highest slot of a node.
    pub const LAST_NODE: u8 = (u16::MAX >> Self::INCARNATION_BITS) as u8;
    /// The last incarnation of a node. After it every SA must get new keys before the node may
    /// start over.
    pub const LAST_INCARNATION: u16 = (1 << Self::INCARNATION_BITS) - 1;

    /// Lays out a sender ID. `None` if a field is too wide.
    pub fn from_parts(node: u8, incarnation: u16) -> Option<Self> {
        (node <= Self::LAST_NODE && incarnation <= Self::LAST_INCARNATION)
            .then(|| Self(u16::from(node) << Self::INCARNATION_BITS | incarnation))
    }

    /// The node slot of the sender.
    pub fn node(self) -> u8 {
        (self.0 >> Self::INCARNATION_BITS) as u8
    }

    /// How often that node has been granted a sender ID.
    pub fn incarnation(self) -> u16 {
        self.0 & Self::LAST_INCARNATION
    }

    /// The same node's next incarnation; `None` after the last.
    pub fn next_incarnation(self) -> Option<Self> {
        Self::from_parts(self.node(), self.incarnation() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds, and their first SPIs.
    const KINDS: [(RelayKind, u32); 3] =
        [(RelayKind::Whole, 256), (RelayKind::Head, 512), (RelayKind::Bare, 768)];

    #[test]
    fn incarnations_end_before_the_next_node_begins() {
        let node = 3 << 11;
        assert_eq!(SenderId::from_parts(3, 0), Some(SenderId(node)));
        assert_eq!(SenderId(node).next_incarnation(), Some(SenderId(node + 1)));
        assert_eq!(SenderId(node + 2046).next_incarnation(), Some(SenderId(node + 2047)));
        assert_eq!(SenderId(node + 2047).next_incarnation(), None);
        assert_eq!(SenderId(u16::MAX).next_incarnation(), None);
    }

    #[test]
    fn no_child_sa_has_an_spi_of_a_relay_sa() {
        for tag in 0..1 << 10 {
            assert_eq!(Spi::from_parts(Shard(0), 0, tag), None);
            assert_eq!(Spi::from_parts(Shard(0), 1, tag), Some(Spi(1 << 10 | u32::from(tag))));
            assert_eq!(Spi::from_parts(Shard(1), 0, tag), Some(Spi(1 << 24 | u32::from(tag))));
        }
    }

    #[test]
    fn relay_sas_of_eight_views_have_different_spis() {
        let spis = |first: u64| (first..first + 8).flat_map(|view| (0..32).map(move |node| (view, node)));
        for (first, (kind, lowest)) in [0, 5, u64::MAX - 9].into_iter().zip(KINDS.into_iter().cycle()) {
            let all: std::collections::BTreeSet<_> =
                spis(first).filter_map(|(view, node)| Spi::of_relay(kind, view, node)).collect();
            let highest = Spi(lowest + 255);
            assert_eq!((all.first(), all.last(), all.len()), (Some(&Spi(lowest)), Some(&highest), 256));
            assert!(all.iter().all(|spi| Spi::RELAY.contains(spi) && spi.relay_kind() == Some(kind)));
        }
        for (kind, lowest) in KINDS {
            let of = |view, node| Spi::of_relay(kind, view, node);
            assert_eq!((of(9, 3), of(9, 32)), (Some(Spi(lowest + 32 + 3)), None));
            assert_eq!(of(9, 3), of(1, 3));
            assert_eq!(of(u64::MAX, 31), Some(Spi(lowest + 255)));
        }
    }

    #[test]
    fn spis_of_relay_sas_show_their_kind_and_no_others_do() {
        for spi in [0, 255, 1 << 10, u32::MAX] {
            assert_eq!(Spi(spi).relay_kind(), None, "{spi}");
            assert!(!Spi::RELAY.contains(&Spi(spi)));
        }
        assert_eq!([256, 511].map(|spi| Spi(spi).relay_kind()), [Some(RelayKind::Whole); 2]);
        assert_eq!([512, 767].map(|spi| Spi(spi).relay_kind()), [Some(RelayKind::Head); 2]);
        assert_eq!([768, 1023].map(|spi| Spi(spi).relay_kind()), [Some(RelayKind::Bare); 2]);
        for (view, node) in [(0, 0), (3, 5), (u64::MAX, 31)] {
            let [whole, head, bare] = [RelayKind::Whole, RelayKind::Head, RelayKind::Bare]
                .map(|kind| Spi::of_relay(kind, view, node).unwrap());
            assert_eq!(whole.with_relay_kind(RelayKind::Head), head);
            assert_eq!(head.with_relay_kind(RelayKind::Bare), bare);
            assert_eq!(bare.with_relay_kind(RelayKind::Head), head);
        }
    }

    #[test]
    fn a_sender_id_is_five_bits_of_node_and_eleven_of_incarnation() {
        assert_eq!((SenderId::LAST_NODE, SenderId::LAST_INCARNATION), (31, 2047));
        let last = SenderId::from_parts(31, 2047).unwrap();
        assert_eq!((last, last.node(), last.incarnation()), (SenderId(u16::MAX), 31, 2047));
        let some = SenderId::from_parts(2, 9).unwrap();
        assert_eq!((some.0, some.node(), some.incarnation()), (0x1009, 2, 9));
        assert_eq!((SenderId::from_parts(32, 0), SenderId::from_parts(0, 2048)), (None, None));
    }
}
