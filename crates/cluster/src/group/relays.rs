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
//! - **Each key has one sender, one receiver and one kind of SA.** They go into it: what was sealed
//!   as the head of a packet is never accepted as a whole packet, nor the other way round.
//! - **A machine that was set back to an earlier state** may have the key of a view that it has
//!   sent in since. Like every other packet, a relayed packet leaves only in the generation of the
//!   machine in which the fence was opened, and [`super::Group::rolled_back`] ends in another view.

use super::core::Core;
use super::keys::{self, RELAY_LEN};
use super::views::exchange::Outcome;
use crate::node::NodeId;
use crate::update::RELAYED_HEADS;
use testudo_base::spi::{RelayKind, Spi};
use zeroize::Zeroizing;

/// What protects the packets that this node and another member relay to each other by SAs of one
/// kind, which the SPIs show.
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

/// The keys of this node in a view that begins, for each other member and kind of SA. None if the
/// members have taken a STATUS of a former life of this node for its own.
pub(super) fn of_view(core: &Core, outcome: &Outcome) -> Vec<RelayKeys> {
    let this = core.node();
    if !outcome.boots.contains(&(this, core.boot())) {
        return Vec::new();
    }
    let secret = keys::view(&core.config.key, outcome.view.ring, &outcome.randoms);
    let others = outcome.view.members.iter().copied().filter(|node| *node != this);
    // A member of an older version would not know the packets.
    let is_known = |kind: &RelayKind| *kind == RelayKind::Whole || outcome.version() >= RELAYED_HEADS;
    let kinds: Vec<RelayKind> = RelayKind::SAS.into_iter().filter(is_known).collect();
    let keys = |node, kind| {
        let spi = |sender: NodeId| Spi::of_relay(kind, outcome.epoch, sender.get());
        Some(RelayKeys {
            node,
            spi_in: spi(node)?,
            spi_out: spi(this)?,
            key_in: keys::relay(&secret, kind, node, this),
            key_out: keys::relay(&secret, kind, this, node),
        })
    };
    others.flat_map(|node| kinds.iter().filter_map(move |kind| keys(node, *kind))).collect()
}
