//! Row clocks and sessions, read without a system call.

use super::Filter;
use super::error::{FilterError, Result};
use super::object::FilterMap;
use crate::sys::mmap::{SharedWords, WatchedPage};
use std::sync::atomic::Ordering;
use testudo_base::session::{SLOTS, Sessions};
use testudo_base::spi::Shard;

/// The row clocks: for each shard, how many clear packets for its spread prefixes have come to this
/// node. They outlive the daemon, and never go back while the filter's maps exist.
#[derive(Debug)]
pub struct RowClocks(WatchedPage);

impl RowClocks {
    pub(super) fn of(map: &FilterMap) -> Result<Self> {
        WatchedPage::of(map.fd()).map(Self).map_err(|source| FilterError::Clocks { source })
    }

    /// The clock of this home shard: it counts a packet before any worker gets it.
    #[inline]
    pub fn now(&self, home: Shard) -> u64 {
        let offset = usize::from(home.0) * size_of::<u64>();
        self.0.word(offset).map_or(0, |clock| clock.load(Ordering::Relaxed))
    }
}

/// The sessions of spread prefixes that take turns by session. They outlive the daemon, too.
#[derive(Debug)]
pub struct SessionTable(SharedWords);

impl SessionTable {
    pub(super) fn of(map: &FilterMap) -> Result<Self> {
        let words = SharedWords::of(map.fd(), SLOTS.into());
        words.map(Self).map_err(|source| FilterError::Sessions { source })
    }

    /// The table.
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions::of(self.0.words())
    }
}

impl Filter {
    /// Maps the row clocks. The handle reads the maps of this filter, also when that is dropped.
    pub fn clocks(&self) -> Result<RowClocks> {
        RowClocks::of(&self.loaded.clocks)
    }

    /// Maps the sessions, as [`Self::clocks`] does the row clocks.
    pub fn sessions(&self) -> Result<SessionTable> {
        SessionTable::of(&self.loaded.sessions)
    }
}
