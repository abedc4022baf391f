//! Keys for the packets that members of a view relay to each other, where routers give each packet
//! to one node ([`super::Ingress::Routed`]).
//!
//! The group makes the keys; the host protects packets with them, counting from 1 under each key.
//! A number must never repeat under one key. So:
//!
//! - **No two views have a key in common.** A key derives from the parts that all members have put
//!   into the view's group key. Each of them draws its part anew for every STATUS that it says,
//!   and the engine delivers a STATUS once. That holds for a view that began at some of its members
//!   only (void), and for views beside each other that later merge: their exchanges are others. The
//!   numbers of views, and thus the SPIs, may repeat there. Then the receiver cannot authenticate
//!   the packets of the other view, and drops them.
//! - **A process that has restarted never has a key of its former life.** It has keys only after an
//!   exchange in which a STATUS of this life counted for it ([`of_view`] checks that).
//! - **Each key has one sender.** The names of sender and receiver go into it.
//! - **A machine that was set back to an earlier state** may have the key of a view that it has
//!   sent in since. Like every other packet, a relayed packet leaves only in the generation of the
//!   machine in which the fence was opened, and [`super::Group::rolled_back`] ends in another view.

use super::core::Core;
use super::keys::{self, RELAY_LEN};
use super::views::exchange::Outcome;
use crate::node::NodeId;
use testudo_base::spi::Spi;
use zeroize::Zeroizing;

/// Numbers of views that SPIs tell apart: a packet of the view before still has its own SPI.
const GENERATIONS: u64 = 8;
/// The first SPI that is not reserved (RFC 4303 §2.1).
const FIRST_SPI: u32 = 256;
/// Node numbers have five bits.
const NODE_BITS: u32 = 5;

/// What protects the packets that this node and another member relay to each other.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayKeys {
    /// The other member.
    pub node: NodeId,
    /// SPI of the packets that come from it.
    pub spi_in: Spi,
    /// SPI of the packets that go to it.
    pub spi_out: Spi,
    /// Key and salt of the packets that come from it.
    pub key_in: Zeroizing<[u8; Self::LEN]>,
    /// Key and salt of the packets that go to it.
    pub key_out: Zeroizing<[u8; Self::LEN]>,
}

impl RelayKeys {
    /// Octets of a key of AES-256-GCM and its salt (RFC 4106 §8.1).
    pub const LEN: usize = RELAY_LEN;
}

impl std::fmt::Debug for RelayKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RelayKeys(node {}: {} in, {} out)", self.node, self.spi_in, self.spi_out)
    }
}

/// The keys of this node in a view that begins, for each other member. None if the members have
/// taken a STATUS of a former life of this node for its own.
pub(super) fn of_view(core: &Core, outcome: &Outcome) -> Vec<RelayKeys> {
    let this = core.node();
    if !outcome.boots.contains(&(this, core.boot())) {
        return Vec::new();
    }
    let secret = keys::view(&core.config.key, outcome.view.ring, &outcome.randoms);
    let others = outcome.view.members.iter().copied().filter(|node| *node != this);
    let keys = |node| RelayKeys {
        node,
        spi_in: spi(outcome.epoch, node),
        spi_out: spi(outcome.epoch, this),
        key_in: keys::relay(&secret, node, this),
        key_out: keys::relay(&secret, this, node),
    };
    others.map(keys).collect()
}

/// The SPI of what this node sends in the view with this number.
fn spi(epoch: u64, sender: NodeId) -> Spi {
    let generation = (epoch % GENERATIONS) as u32;
    Spi(FIRST_SPI + (generation << NODE_BITS) + u32::from(sender.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_spi_tells_the_sender_and_eight_views_apart() {
        let node = |number| NodeId::new(number).unwrap();
        let all = (0..8).flat_map(|epoch| (1..=31).map(move |number| spi(epoch, node(number)).0));
        let all: std::collections::BTreeSet<u32> = all.collect();
        assert_eq!(all.len(), 8 * 31);
        assert_eq!((all.first(), all.last()), (Some(&257), Some(&511)));
        assert_eq!(spi(9, node(3)), spi(1, node(3)));
        assert!(spi(u64::MAX, node(31)).0 < 512);
    }
}
