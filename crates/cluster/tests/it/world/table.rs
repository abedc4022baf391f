//! The table of sessions that take turns of a node.

use std::sync::atomic::AtomicU64;
use testudo_base::session::{Followed, SLOTS, Sessions, Told};

/// See the module. It has no slots until a test wants some.
#[derive(Default)]
pub(crate) struct Table {
    words: Vec<AtomicU64>,
    /// How many sessions were learned from other nodes, and put right.
    pub(crate) followed: [usize; 2],
}

impl Table {
    pub(crate) fn empty() -> Self {
        Self { words: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), followed: [0; 2] }
    }

    pub(crate) fn sessions(&self) -> Sessions<'_> {
        Sessions::of(&self.words)
    }

    /// An authority has said this.
    pub(super) fn follow(&mut self, told: Told) {
        match self.sessions().follow(told) {
            Followed::Learned => self.followed[0] += 1,
            Followed::PutRight => self.followed[1] += 1,
            Followed::Nothing | Followed::Forgotten => {}
        }
    }
}
