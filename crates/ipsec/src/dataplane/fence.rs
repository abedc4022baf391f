//! What a shut pipeline does.

use super::burst::{Item, Verdict};
use super::counters::DirectionCounters;
use crate::drops::DropReason;

/// Drops a burst, unseen but counted.
#[cold]
pub(super) fn refuse(burst: &mut [Item<'_>], counters: &DirectionCounters) {
    for item in burst {
        counters.received.add(1);
        counters.received_bytes.add(item.buf.len() as u64);
        counters.drop(DropReason::Fenced);
        item.verdict = Verdict::Drop(DropReason::Fenced);
    }
}
