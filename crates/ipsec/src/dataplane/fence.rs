//! A shut pipeline.

use super::burst::Item;
use super::counters::DirectionCounters;
use crate::drops::DropReason;

/// Drops a burst unread, but counted.
#[cold]
pub(super) fn refuse(burst: &mut [Item<'_>], counters: &DirectionCounters) {
    for item in burst {
        counters.received.add(1);
        counters.received_bytes.add(item.buf.len() as u64);
        item.refuse(DropReason::Fenced, counters);
    }
}
