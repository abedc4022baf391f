//! The inbound half of the SAD: SAs by SPI (RFC 4301 §4.4.2), in two steps, share and slot.
//!
//! A share's slots are allocated by control and handed in, so that workers never allocate.

use crate::sa::InboundSa;
use crate::spi::{Share, Spi};
use std::sync::Arc;

/// Slots of one share, all empty at first.
#[derive(Debug)]
pub struct SlotTable {
    share: Share,
    slots: Box<[Option<Arc<InboundSa>>]>,
}

impl SlotTable {
    /// An empty table.
    pub fn new(share: Share) -> Self {
        Self { share, slots: (0..Spi::SLOTS).map(|_| None).collect() }
    }

    /// Whose slots these are.
    pub fn share(&self) -> Share {
        self.share
    }

    fn slot_mut(&mut self, spi: Spi) -> Option<&mut Option<Arc<InboundSa>>> {
        self.slots.get_mut(usize::from(spi.slot()))
    }
}

/// Inbound SAs of one worker.
#[derive(Debug)]
pub(crate) struct Sad {
    shares: [Option<Box<SlotTable>>; 256],
}

impl Sad {
    pub(crate) fn new() -> Self {
        Self { shares: [const { None }; 256] }
    }

    fn share_mut(&mut self, share: Share) -> Option<&mut Option<Box<SlotTable>>> {
        self.shares.get_mut(usize::from(share.0))
    }

    /// Adds the slots of a share. Gives them back if the share has some already.
    pub(crate) fn add_share(&mut self, table: Box<SlotTable>) -> Option<Box<SlotTable>> {
        match self.share_mut(table.share) {
            Some(place) if place.is_none() => {
                *place = Some(table);
                None
            }
            _ => Some(table),
        }
    }

    /// Puts an SA into its slot and returns what was there. Gives the SA back if its share has no slots.
    pub(crate) fn insert(&mut self, sa: Arc<InboundSa>) -> Result<Option<Arc<InboundSa>>, Arc<InboundSa>> {
        let table = self.share_mut(sa.spi().share()).and_then(Option::as_mut);
        match table.and_then(|table| table.slot_mut(sa.spi())) {
            Some(slot) => Ok(slot.replace(sa)),
            None => Err(sa),
        }
    }

    /// Takes the SA with exactly this SPI out.
    pub(crate) fn remove(&mut self, spi: Spi) -> Option<Arc<InboundSa>> {
        let slot = self.share_mut(spi.share())?.as_mut()?.slot_mut(spi)?;
        slot.take_if(|sa| sa.spi() == spi)
    }

    /// The SA with exactly this SPI.
    #[inline]
    pub(crate) fn get(&self, spi: Spi) -> Option<&InboundSa> {
        let table = self.shares.get(usize::from(spi.share().0))?.as_ref()?;
        table.slots.get(usize::from(spi.slot()))?.as_deref().filter(|sa| sa.spi() == spi)
    }
}

#[cfg(test)]
#[path = "sad_tests.rs"]
mod tests;
