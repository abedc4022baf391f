//! Identifiers with a layout: SPI, share, sender ID.

use serde::{Deserialize, Serialize};

/// One of the 256 parts of the tunnel space; a node owns some of them. A single node owns all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share(pub u8);

/// Security Parameters Index of ESP (RFC 4303 §2.1), laid out as share:8 | slot:14 | tag:10.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spi(pub u32);

impl Spi {
    /// Slots of a share.
    pub const SLOTS: usize = 1 << 14;

    /// Lays out an SPI. `None` where the result is below 256, which is reserved (RFC 4303 §2.1), or a field is too wide.
    pub fn from_parts(share: Share, slot: u16, tag: u16) -> Option<Self> {
        if usize::from(slot) >= Self::SLOTS || tag >= 1 << 10 {
            return None;
        }
        let value = u32::from(share.0) << 24 | u32::from(slot) << 10 | u32::from(tag);
        (value >= 256).then_some(Self(value))
    }

    /// The share whose owner receives this SPI's packets.
    pub fn share(self) -> Share {
        Share((self.0 >> 24) as u8)
    }

    /// Index into the share's slots.
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

/// Sender ID of RFC 6054: the leftmost 16 bits of every IV that this sender makes, node slot:5 | incarnation:11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SenderId(pub u16);

impl SenderId {
    /// The same node's next incarnation; `None` after the last, when every SA must get new keys first.
    pub fn next_incarnation(self) -> Option<Self> {
        const INCARNATION: u16 = (1 << 11) - 1;
        (self.0 & INCARNATION != INCARNATION).then(|| Self(self.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_end_before_the_next_node_begins() {
        let node = 3 << 11;
        assert_eq!(SenderId(node).next_incarnation(), Some(SenderId(node + 1)));
        assert_eq!(SenderId(node + 2046).next_incarnation(), Some(SenderId(node + 2047)));
        assert_eq!(SenderId(node + 2047).next_incarnation(), None);
    }
}
