//! Strict reverse path forwarding (RFC 3704 §2.2) for packets that are to be protected. Without it
//! any host on a link could send packets into the peer's network with our addresses as source.

use super::route::{AddressKey, CACHE_ENTRIES};
use crate::fib::{Fib, PortIndex};

/// A source whose route leads out of the port by which its packets came. Three words, compared at
/// once.
#[derive(Clone, Copy, Debug, Default)]
struct SourceEntry {
    /// The epoch in which alone the entry counts, then port:16 and IPv6:1. 0 is no entry.
    scope: u64,
    high: u64,
    low: u64,
}

impl SourceEntry {
    #[inline]
    fn new(epoch: u64, key: AddressKey, port: PortIndex) -> Self {
        let AddressKey { v6, high, low } = key;
        Self { scope: epoch << 17 | u64::from(port.0) << 1 | u64::from(v6), high, low }
    }
}

/// The latest sources that have passed.
#[derive(Debug)]
pub(super) struct SourceCache(Box<[SourceEntry; CACHE_ENTRIES]>);

impl SourceCache {
    pub(super) fn new() -> Self {
        Self(Box::new([SourceEntry::default(); CACHE_ENTRIES]))
    }

    #[inline]
    pub(super) fn knows(&self, epoch: u64, key: AddressKey, port: PortIndex) -> bool {
        let (kept, wanted) = (&self.0[key.place()], SourceEntry::new(epoch, key, port));
        (kept.scope ^ wanted.scope) | (kept.high ^ wanted.high) | (kept.low ^ wanted.low) == 0
    }

    /// Asks the table, and caches a source that passes.
    #[cold]
    pub(super) fn learn(&mut self, epoch: u64, key: AddressKey, port: PortIndex, fib: &Fib) -> bool {
        let fits = fib.leads_through(port, key.addr());
        if fits {
            self.0[key.place()] = SourceEntry::new(epoch, key, port);
        }
        fits
    }
}
