//! Leases of sender IDs (RFC 6054): which incarnation has been granted to which node. This is part
//! of invariant 1, that no (key, IV) pair is used twice.
//!
//! A node writes an incarnation to its disk, then asks for it in the total order. The incarnation
//! is granted when a majority of the configured nodes hold that message, or, where the last node
//! may go on alone, all members of the view. Any later view has one of these nodes, and its exchange
//! makes the highest incarnation known.

use super::GroupOutput;
use super::core::Core;
use super::outbox::Outbox;
use super::views::history::History;
use crate::node::NodeId;
use std::collections::BTreeMap;
use testudo_base::spi::SenderId;
use testudo_ike::output::LogLevel;
use testudo_planted::{Plant, planted};

/// The last incarnation of a node. The first is 1.
const LAST: u16 = SenderId::LAST_INCARNATION;

/// What this node knows of all leases, and how far its own has come.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    node: NodeId,
    /// The highest incarnation that this node has written to its disk or asked for.
    used: u16,
    /// The highest incarnation that is known of each node.
    table: BTreeMap<NodeId, u16>,
    /// This node wants a lease.
    wanted: bool,
    /// It has asked for one, and it is not granted yet.
    asked: Option<Asked>,
    /// The sender ID that this node has been granted last.
    granted: Option<SenderId>,
    /// No incarnation is left, and that has been said.
    exhausted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    incarnation: u16,
    /// After how many messages of the present view it was delivered.
    at: Option<u64>,
}

/// A request for a lease, in the total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) boot: u64,
    pub(super) incarnation: u16,
}

/// What a node that wants a lease does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// It writes this incarnation to its disk, then asks for it.
    New(u16),
    /// It asks for this incarnation again: an earlier view ended before it was granted.
    Again(u16),
    /// It cannot ask: no incarnation is left.
    Exhausted,
}

impl Lease {
    pub(super) fn write(self) -> [u8; 10] {
        let mut out = [0; 10];
        out[..8].copy_from_slice(&self.boot.to_be_bytes());
        out[8..].copy_from_slice(&self.incarnation.to_be_bytes());
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j] = *<&[u8; 10]>::try_from(bytes).ok()?;
        Some(Self {
            boot: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            incarnation: u16::from_be_bytes([i, j]),
        })
    }
}

impl Leases {
    /// At the start of a node, which wants a lease. `last`: the last incarnation on its disk.
    pub(super) fn new(node: NodeId, last: u16) -> Self {
        let table = BTreeMap::from([(node, last)]);
        Self { node, used: last, table, wanted: true, asked: None, granted: None, exhausted: false }
    }

    /// The node wants another lease.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Nothing that was asked for or granted before counts any more.
    pub(super) fn void(&mut self) {
        (self.wanted, self.asked, self.granted) = (true, None, None);
    }

    /// A view begins, whose members know of these leases.
    pub(super) fn merge(&mut self, known: &[(NodeId, u16)]) {
        for (node, incarnation) in known {
            self.learn(*node, *incarnation);
        }
        if let Some(asked) = &mut self.asked {
            asked.at = None;
        }
    }

    fn learn(&mut self, node: NodeId, incarnation: u16) {
        let highest = self.table.entry(node).or_default();
        *highest = incarnation.max(*highest);
    }

    /// What to ask for, in a view that has begun; `begun` if it has just begun.
    fn ask(&mut self, begun: bool) -> Option<Ask> {
        if !self.wanted {
            return None;
        }
        if let Some(asked) = self.asked {
            return begun.then_some(Ask::Again(asked.incarnation));
        }
        let highest = self.table.get(&self.node).copied().unwrap_or(0).max(self.used);
        if highest >= LAST {
            return (!std::mem::replace(&mut self.exhausted, true)).then_some(Ask::Exhausted);
        }
        self.used = highest + 1;
        self.asked = Some(Asked { incarnation: self.used, at: None });
        Some(Ask::New(self.used))
    }

    /// Asks for a lease, if one is wanted; `begun` if the view has just begun. True if that had to
    /// be written to the disk.
    pub(super) fn request(
        &mut self,
        core: &mut Core,
        history: &mut History,
        outbox: &mut Outbox,
        begun: bool,
    ) -> bool {
        let (incarnation, is_new) = match self.ask(begun) {
            None => return false,
            Some(Ask::Exhausted) => {
                let line =
                    "no sender ID is left for this node: nothing can be sent until all SAs have new keys";
                core.log(LogLevel::Error, line.to_owned());
                return false;
            }
            Some(Ask::New(incarnation)) => (incarnation, true),
            Some(Ask::Again(incarnation)) => (incarnation, false),
        };
        if is_new {
            history.use_incarnation(incarnation);
            core.outputs.push_back(GroupOutput::Persist(history.durable()));
        }
        outbox.lease(&Lease { boot: core.boot(), incarnation }.write());
        is_new
    }

    /// A request for a lease has been delivered, as message number `count` of the view.
    pub(super) fn delivered(&mut self, from: NodeId, lease: Lease, boot: u64, count: u64) {
        self.learn(from, lease.incarnation.min(LAST));
        if let Some(asked) = &mut self.asked
            && (from, lease) == (self.node, Lease { boot, incarnation: asked.incarnation })
        {
            asked.at = Some(count);
        }
    }

    /// The sender ID that is granted now, if enough nodes hold the message that asked for it.
    pub(super) fn grant(&mut self, is_held: impl Fn(u64) -> bool) -> Option<SenderId> {
        let asked = self.asked?;
        let granted = is_held(asked.at?) || planted(Plant::LeaseWithoutMajority);
        if !granted {
            return None;
        }
        (self.wanted, self.asked) = (false, None);
        let sender = self.node.sender(asked.incarnation)?;
        self.granted = Some(sender);
        self.granted
    }

    /// The sender ID that this node has been granted last.
    pub(super) fn granted(&self) -> Option<SenderId> {
        self.granted
    }

    /// The highest incarnation of each node.
    pub(super) fn table(&self) -> impl Iterator<Item = (NodeId, u16)> + '_ {
        self.table.iter().map(|(node, incarnation)| (*node, *incarnation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_lease_is_granted_once_a_majority_holds_it() {
        let mut leases = Leases::new(node(1), 4);
        leases.merge(&[(node(1), 6), (node(2), 9)]);
        assert_eq!(leases.ask(true), Some(Ask::New(7)));
        assert_eq!(leases.ask(false), None);
        assert_eq!(leases.grant(|_| true), None, "not delivered");
        leases.delivered(node(1), Lease { boot: 5, incarnation: 7 }, 6, 3);
        assert_eq!(leases.grant(|_| true), None, "of another boot");
        leases.delivered(node(1), Lease { boot: 6, incarnation: 7 }, 6, 4);
        assert_eq!(leases.grant(|count| count < 4), None);
        let sender = node(1).sender(7);
        assert_eq!((leases.grant(|count| count <= 4), leases.granted()), (sender, sender));
        assert_eq!(leases.ask(true), None);
        leases.want();
        assert_eq!(leases.ask(false), Some(Ask::New(8)));
        assert_eq!(leases.granted(), sender, "it counts until another is granted");
        leases.void();
        assert_eq!(leases.granted(), None);
    }

    #[test]
    fn what_a_view_did_not_grant_is_asked_for_again_in_the_next() {
        let mut leases = Leases::new(node(1), 0);
        assert_eq!(leases.ask(true), Some(Ask::New(1)));
        leases.delivered(node(1), Lease { boot: 6, incarnation: 1 }, 6, 4);
        leases.merge(&[(node(1), 1)]);
        assert_eq!(leases.grant(|_| true), None, "delivered in a view that is over");
        assert_eq!(leases.ask(true), Some(Ask::Again(1)));
        leases.void();
        assert_eq!(leases.ask(true), Some(Ask::New(2)));
    }

    #[test]
    fn when_all_are_used_up_there_is_none_and_that_is_said_once() {
        let mut leases = Leases::new(node(1), LAST - 1);
        assert_eq!(leases.ask(true), Some(Ask::New(LAST)));
        leases.void();
        assert_eq!(leases.ask(true), Some(Ask::Exhausted));
        assert_eq!(leases.ask(true), None);
    }
}
