//! Sessions of spread tunnels whose lanes take turns by session, and the lane of each.
//!
//! A session takes its turn with its first packet, and keeps that lane. A node that has missed the
//! packet, or has started later, would disagree with the others for all of the session's life. So
//! nodes compare their tables: each slot has an authority, the node that owns the slot's shard, and
//! the others follow its word. The authority alone forgets sessions, because no two nodes see the
//! same moment pass.
//!
//! A table is memory that the filter shares with its daemon, a word for each slot.
//! `crates/fastpath/bpf/turn.h` has the filter's part.

use crate::spi::Shard;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Slots of a table. The authority of a slot is the owner of the shard in its high octet.
pub const SLOTS: u16 = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 13;
/// Slots of a shard.
const OF_SHARD: u16 = SLOTS / 256;

/// A session has the slot. Its tag is in the upper half of the word, its lane in the lowest octet.
const TAKEN: u64 = 0x100;
/// The filter has seen a packet of the session since the authority last looked.
const SEEN: u64 = 0x200;
/// How new the session is: the filter begins with two heartbeats, and the daemon counts down.
const NEW: u64 = 0xc00;
const NEWEST: u64 = 2 * HEARTBEAT;
const HEARTBEAT: u64 = 0x400;

/// A session in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Half of its hash, from which the slot does not follow.
    pub tag: u32,
    /// Its lane.
    pub lane: Shard,
}

/// What an authority says of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The slot.
    pub slot: u16,
    /// The session there, if there is one.
    pub session: Option<Session>,
}

/// What a table has of the session of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Lane(Shard),
    /// Another session has its slot.
    Other,
    Nothing,
}

/// What an authority's word has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The node knew that, or knows better for now.
    Nothing,
    /// The session is over.
    Forgotten,
    /// The node had no session there.
    Learned,
    /// The node had the session in another lane, or another session in the slot.
    PutRight,
}

/// The shard whose owner is the authority for a slot.
pub fn shard_of(slot: u16) -> Shard {
    Shard((slot / OF_SHARD) as u8)
}

/// The slots of a shard.
pub fn slots_of(shard: Shard) -> std::ops::Range<u16> {
    let first = u16::from(shard.0) * OF_SHARD;
    first..first + OF_SHARD
}

/// A table of [`SLOTS`] words. Slots that the memory lacks count as held by another session.
#[derive(Clone, Copy, Debug)]
pub struct Sessions<'a>(&'a [AtomicU64]);

impl<'a> Sessions<'a> {
    /// No table.
    pub const NONE: Self = Self(&[]);

    /// The table in this memory.
    pub fn of(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    fn word(self, slot: u16) -> Option<&'a AtomicU64> {
        self.0.get(usize::from(slot))
    }

    /// Looks for the session of a packet with this hash, and notes that it was seen.
    pub(crate) fn find(self, hash: u64) -> Found {
        let Some(word) = self.word(slot(hash)) else { return Found::Other };
        let now = word.load(Relaxed);
        match session(now) {
            None => Found::Nothing,
            Some(session) if session.tag != tag(hash) => Found::Other,
            Some(session) => {
                word.store(now | SEEN, Relaxed);
                Found::Lane(session.lane)
            }
        }
    }

    /// Enters the session of a packet with this hash.
    pub(crate) fn enter(self, hash: u64, lane: Shard) {
        if let Some(word) = self.word(slot(hash)) {
            let session = Session { tag: tag(hash), lane };
            word.store(written(Some(session)) | SEEN | NEWEST, Relaxed);
        }
    }

    /// The session in a slot.
    pub fn get(self, slot: u16) -> Option<Session> {
        session(self.word(slot)?.load(Relaxed))
    }

    /// What an authority says of a slot. `None` while its session is new: the packet with which it
    /// began may still be on its way to others, who are to count it.
    pub fn tell(self, slot: u16) -> Option<Told> {
        let word = self.word(slot)?.load(Relaxed);
        (word & NEW == 0).then_some(Told { slot, session: session(word) })
    }

    /// Time has passed: sessions are less new. To be called with every heartbeat.
    pub fn grow_older(self) {
        for word in self.0 {
            let now = word.load(Relaxed);
            if now & NEW != 0 {
                // The filter writes between the two only what makes the session new again.
                let _ = word.compare_exchange(now, now - HEARTBEAT, Relaxed, Relaxed);
            }
        }
    }

    /// True if the session of a slot was seen since the last call.
    pub fn was_seen(self, slot: u16) -> bool {
        self.word(slot).is_some_and(|word| word.fetch_and(!SEEN, Relaxed) & SEEN != 0)
    }

    /// Forgets the session of a slot, unless a packet of it has come just now.
    pub fn forget(self, slot: u16) {
        if let Some(word) = self.word(slot) {
            let now = word.load(Relaxed);
            if now & SEEN == 0 {
                let _ = word.compare_exchange(now, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Forgets all sessions.
    pub fn clear(self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Follows the authority of a slot. What it has said may be older than a session that this node
    /// has just entered, but not than the lane of that session.
    pub fn follow(self, told: Told) -> Followed {
        let Some(word) = self.word(told.slot) else { return Followed::Nothing };
        let now = word.load(Relaxed);
        let here = session(now);
        let is_lane = here.zip(told.session).is_some_and(|(here, told)| here.tag == told.tag);
        if here == told.session || now & NEW != 0 && !is_lane {
            return Followed::Nothing;
        }
        let wanted = written(told.session) | told.session.map_or(0, |_| SEEN);
        match word.compare_exchange(now, wanted, Relaxed, Relaxed) {
            // The authority says it again.
            Err(_) => Followed::Nothing,
            Ok(_) => match (here, told.session) {
                (None, _) => Followed::Learned,
                (_, None) => Followed::Forgotten,
                _ => Followed::PutRight,
            },
        }
    }
}

fn slot(hash: u64) -> u16 {
    (hash >> 8) as u16 & (SLOTS - 1)
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn session(word: u64) -> Option<Session> {
    (word & TAKEN != 0).then_some(Session { tag: (word >> 32) as u32, lane: Shard(word as u8) })
}

fn written(session: Option<Session>) -> u64 {
    session.map_or(0, |session| u64::from(session.tag) << 32 | TAKEN | u64::from(session.lane.0))
}

#[cfg(test)]
mod tests;
