//! Outbound SAs by policy.

use crate::sa::OutboundSa;
use crate::spd::{PolicyId, Spd};
use std::cell::Cell;
use std::sync::Arc;

/// A place for the outbound SA of every policy of an SPD. Allocated by control, used by a worker.
#[derive(Debug)]
pub struct OutboundTable {
    places: Box<[Place]>,
}

/// The SA of one policy.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) sa: Option<Arc<OutboundSa>>,
    /// When control was last told that the SA is missing.
    pub(super) told: Cell<Option<u64>>,
    /// When control was last told that its sequence numbers run low.
    pub(super) low_told: Cell<Option<u64>>,
}

impl OutboundTable {
    /// An empty table of the right size.
    pub fn for_spd(spd: &Spd) -> Self {
        Self { places: (0..spd.table_len()).map(|_| Place::default()).collect() }
    }

    #[inline]
    pub(super) fn get(&self, policy: PolicyId) -> Option<&Place> {
        self.places.get(policy.index())
    }

    #[inline]
    pub(super) fn sa(&self, policy: PolicyId) -> Option<&OutboundSa> {
        self.get(policy)?.sa.as_deref()
    }

    pub(super) fn get_mut(&mut self, policy: PolicyId) -> Option<&mut Place> {
        self.places.get_mut(policy.index())
    }

    /// Moves the SAs of policies that both tables know.
    pub(super) fn take_from(&mut self, old: &mut Self) {
        for (new, old) in self.places.iter_mut().zip(&mut old.places) {
            *new = std::mem::take(old);
        }
    }
}
