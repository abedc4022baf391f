//! Row clocks, read without a system call.

use super::Filter;
use super::error::{FilterError, Result};
use super::object::FilterMap;
use crate::sys::mmap::WatchedPage;
use std::sync::atomic::Ordering;
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

impl Filter {
    /// Maps the row clocks. The handle reads the maps of this filter, also when that is dropped.
    pub fn clocks(&self) -> Result<RowClocks> {
        RowClocks::of(&self.loaded.clocks)
    }
}
