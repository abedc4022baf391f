//! IVs of counter-mode ciphers with several senders (RFC 6054).

use serde::{Deserialize, Serialize};
use testudo_base::spi::SenderId;

/// Number of a worker on its node: six bits of the IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkerId(u8);

impl WorkerId {
    /// `None` from 64 on: the IV has no room for it.
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

const COUNTER_BITS: u32 = 42;
const WORKER_BITS: u32 = 6;
const COUNTER_END: u64 = 1 << COUNTER_BITS;
/// Seven eighths of the counter: from here on control should request a new sender ID.
const COUNTER_LOW: u64 = COUNTER_END / 8 * 7;

/// Allots the IVs of one worker (RFC 6054): sender ID:16 | worker:6 | counter:42, for all SAs
/// together.
#[derive(Debug)]
pub struct IvAllocator {
    /// The latest sender ID, even if it has been given up: no earlier one is accepted again.
    sender: Option<SenderId>,
    worker: WorkerId,
    next: u64,
}

/// Consecutive IVs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedIvs {
    /// The first of them; each next one is higher by one.
    pub first: u64,
    /// Their number; fewer than requested at the end of the counter.
    pub count: u64,
    /// True from the low-water mark on.
    pub low: bool,
}

/// Value of the counter while there is no sender ID: no IVs are left.
const NO_SENDER: u64 = u64::MAX;

impl IvAllocator {
    /// Starts at counter 0 of a sender ID that has never been used under the present keys, not even
    /// by this worker. Without one there are no IVs.
    pub fn new(sender: Option<SenderId>, worker: WorkerId) -> Self {
        Self { sender, worker, next: if sender.is_some() { 0 } else { NO_SENDER } }
    }

    /// Takes up to `count` IVs.
    #[inline]
    pub fn reserve(&mut self, count: u32) -> ReservedIvs {
        let sender = self.sender.map_or(0, |sender| u64::from(sender.0));
        let prefix = sender << WORKER_BITS | u64::from(self.worker.0);
        let first = self.next;
        let count = u64::from(self.left(count));
        self.next = first.saturating_add(count);
        ReservedIvs { first: prefix << COUNTER_BITS | first, count, low: self.next >= COUNTER_LOW }
    }

    /// The number of available IVs, up to `count`.
    #[inline]
    pub fn left(&self, count: u32) -> u32 {
        u64::from(count).min(COUNTER_END.saturating_sub(self.next)) as u32
    }

    /// Goes on with a new sender ID. Returns false, and changes nothing, if it is not later than
    /// the last one: its counter must not begin again.
    #[must_use]
    pub fn set_sender(&mut self, sender: SenderId) -> bool {
        let fresh = self.sender.is_none_or(|last| sender.0 > last.0);
        if fresh {
            self.sender = Some(sender);
            self.next = 0;
        }
        fresh
    }

    /// Gives the sender ID up: another node may be using it, because the machine was set back to an
    /// earlier state.
    pub fn forget_sender(&mut self) {
        self.next = NO_SENDER;
    }

    /// The sender ID in use.
    pub fn sender(&self) -> Option<SenderId> {
        self.sender.filter(|_| self.next != NO_SENDER)
    }
}

#[cfg(test)]
mod tests;
