//! Shards on their way from one node of a cluster to another, with both of them alive. Both have
//! every packet: the new node keeps those back that come before the shard does, and the old one
//! notes which it has worked on, so that none is lost and none goes twice.
//!
//! Of what comes in, the replay window says that already. So only clear packets are noted, by a
//! keyed hash of their octets.

use super::burst::{Ingress, Item, Verdict};
use super::counters::DirectionCounters;
use crate::drops::DropReason;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;

/// For so many milliseconds after a shard has come a packet may still lie before the worker that
/// came when the old node had the shard.
const FORMER_OWNER_MS: u64 = 300;

/// A clear packet that a node has worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Of the SA that it took.
    pub shard: Shard,
    /// The keyed hash of its octets.
    pub digest: u64,
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// Shards that come: their packets wait.
    held: ShardSet,
    /// Shards that go: what is worked on is noted.
    leaving: ShardSet,
    /// The latest, from `count` on around.
    notes: Box<[Note]>,
    /// How many have been written since the list was made.
    count: usize,
    /// Shards that have come.
    came: ShardSet,
    /// What other nodes have worked on of them, sorted; true for what has been met.
    handled: Box<[(u64, bool)]>,
    /// Until when that counts.
    until: u64,
}

impl Transit {
    /// True if it has nothing to say of any packet.
    #[inline]
    pub(super) fn is_idle(&self, now: u64) -> bool {
        self.held.is_empty() && self.leaving.is_empty() && (self.handled.is_empty() || now >= self.until)
    }

    pub(super) fn hold(&mut self, shards: ShardSet) {
        self.held = shards;
    }

    pub(super) fn holds(&self, shard: Shard) -> bool {
        self.held.contains(shard)
    }

    /// Notes what is worked on of these shards, into that list. Gives the former one back.
    pub(super) fn note(&mut self, shards: ShardSet, list: Box<[Note]>) -> Box<[Note]> {
        (self.leaving, self.count) = (shards, 0);
        std::mem::replace(&mut self.notes, list)
    }

    /// Ends that. Gives the notes, oldest first, and how many they are.
    pub(super) fn take_notes(&mut self) -> (Box<[Note]>, usize) {
        self.leaving = ShardSet::EMPTY;
        let mut notes = std::mem::take(&mut self.notes);
        if self.count > notes.len() && !notes.is_empty() {
            let oldest = self.count % notes.len();
            notes.rotate_left(oldest);
        }
        let count = self.count.min(notes.len());
        (notes, count)
    }

    /// What others have worked on of shards that come here. Gives the former list back.
    pub(super) fn handled(
        &mut self,
        shards: ShardSet,
        mut digests: Box<[(u64, bool)]>,
        now: u64,
    ) -> Box<[(u64, bool)]> {
        digests.sort_unstable();
        (self.came, self.until) = (shards, now + FORMER_OWNER_MS);
        std::mem::replace(&mut self.handled, digests)
    }

    /// True if a clear packet of that shard is to be worked on now; else it has its verdict.
    /// `here`: this node carries the shard, so that it will be. What is noted and not worked on
    /// would be lost.
    #[cold]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`at` is below the number of notes"))]
    pub(super) fn lets_pass(
        &mut self,
        item: &mut Item<'_>,
        shard: Shard,
        here: bool,
        now: u64,
        key: SipKey,
        counters: &DirectionCounters,
    ) -> bool {
        // What this was asked of before.
        if item.ingress == Ingress::Piece {
            return true;
        }
        if self.held.contains(shard) {
            counters.to_wait.add(1);
            item.verdict = Verdict::Held;
            return false;
        }
        let asks = self.came.contains(shard) && !self.handled.is_empty() && now < self.until;
        let notes = here && self.leaving.contains(shard) && !self.notes.is_empty();
        if !asks && !notes {
            return true;
        }
        let digest = key.hash(item.buf.data());
        if asks && self.is_handled(digest) {
            item.refuse(DropReason::HandledElsewhere, counters);
            return false;
        }
        if notes {
            let at = self.count % self.notes.len();
            self.notes[at] = Note { shard, digest };
            self.count += 1;
        }
        true
    }

    /// True once for each time that another node has had a packet like that.
    fn is_handled(&mut self, digest: u64) -> bool {
        let first = self.handled.partition_point(|(other, _)| *other < digest);
        let alike = self.handled.iter_mut().skip(first).take_while(|(other, _)| *other == digest);
        alike.into_iter().find(|(_, met)| !*met).map(|(_, met)| *met = true).is_some()
    }
}
