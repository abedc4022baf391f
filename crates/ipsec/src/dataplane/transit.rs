//! Shards on their way from one node of a cluster to another, while both are alive. Both nodes
//! receive every packet. The new owner keeps back packets that come before the shard does, and the
//! former one notes which packets it has worked on, so that none is lost and none goes twice.
//!
//! For inbound ESP the replay window ensures this already. So only clear packets are noted, by a
//! keyed hash of their octets.

use super::burst::{Ingress, Item, Verdict};
use super::counters::DirectionCounters;
use crate::drops::DropReason;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;

/// For this many milliseconds after a shard has come, a packet may wait at the worker that was
/// received while the former owner had the shard.
const FORMER_OWNER_MS: u64 = 300;

/// A clear packet that a node has worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The shard of the SA that it took.
    pub shard: Shard,
    /// The keyed hash of its octets.
    pub digest: u64,
}

/// State of shards that come and go.
#[derive(Debug, Default)]
pub(super) struct Transit {
    /// Shards that come: their packets wait.
    held: ShardSet,
    /// Shards that go: their packets are noted.
    leaving: ShardSet,
    /// The latest notes, a ring whose next place is at `count`.
    notes: Box<[Note]>,
    /// Number of notes since the list was made.
    count: usize,
    /// Shards that have come.
    came: ShardSet,
    /// Hashes of packets of these shards that other nodes have worked on, sorted; true for those
    /// that were met here.
    handled: Box<[(u64, bool)]>,
    /// When they stop counting.
    until: u64,
}

impl Transit {
    /// True if no shard comes or goes.
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

    /// Notes packets of these shards in this list. Returns the former list.
    pub(super) fn note(&mut self, shards: ShardSet, list: Box<[Note]>) -> Box<[Note]> {
        (self.leaving, self.count) = (shards, 0);
        std::mem::replace(&mut self.notes, list)
    }

    /// Ends noting. Returns the notes, oldest first, and their number.
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

    /// Sets the packets that others have worked on, of shards that come here. Returns the former
    /// list.
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

    /// True if a clear packet of this shard is to be worked on now; otherwise it has its verdict.
    /// `here`: this node carries the shard, so that the packet will be worked on. A packet that is
    /// noted and not worked on would be lost.
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
        // The whole packet was checked before.
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

    /// True once for each time that another node has worked on a packet like this.
    fn is_handled(&mut self, digest: u64) -> bool {
        let first = self.handled.partition_point(|(other, _)| *other < digest);
        let alike = self.handled.iter_mut().skip(first).take_while(|(other, _)| *other == digest);
        alike.into_iter().find(|(_, met)| !*met).map(|(_, met)| *met = true).is_some()
    }
}
