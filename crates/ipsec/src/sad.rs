//! The inbound half of the SAD: SAs by SPI (RFC 4301 §4.4.2), found in two steps, block of slots
//! and slot.
//!
//! Control allocates blocks and hands them in, so that workers never allocate. Slots are taken from
//! as few blocks as possible, but in each shard.

use crate::sa::InboundSa;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_crypto::prefetch;

/// Bits of an SPI behind its shard and slot.
const TAG_BITS: u32 = 10;
/// Slots of a block, as a power of two.
const SLOTS_PER_BLOCK_BITS: u32 = 6;
const SLOTS_PER_BLOCK: usize = 1 << SLOTS_PER_BLOCK_BITS;
const BLOCKS: usize = 1 << (u32::BITS - TAG_BITS - SLOTS_PER_BLOCK_BITS);

/// Adjacent slots of one shard, all empty at first.
#[derive(Clone, Debug)]
pub struct SlotBlock {
    number: usize,
    slots: [Option<Arc<InboundSa>>; SLOTS_PER_BLOCK],
}

impl SlotBlock {
    /// The empty block with the slot of this SPI.
    pub fn of(spi: Spi) -> Self {
        Self { number: Self::number_of(spi), slots: [const { None }; SLOTS_PER_BLOCK] }
    }

    /// Number of the block with the slot of this SPI.
    pub fn number_of(spi: Spi) -> usize {
        (spi.0 >> (TAG_BITS + SLOTS_PER_BLOCK_BITS)) as usize
    }

    /// Number of the block.
    pub fn number(&self) -> usize {
        self.number
    }
}

fn slot(spi: Spi) -> usize {
    (spi.0 >> TAG_BITS) as usize % SLOTS_PER_BLOCK
}

/// Inbound SAs of one worker.
#[derive(Debug)]
pub(crate) struct Sad {
    blocks: Box<[Option<Box<SlotBlock>>]>,
}

impl Sad {
    pub(crate) fn new() -> Self {
        Self { blocks: (0..BLOCKS).map(|_| None).collect() }
    }

    fn slot_mut(&mut self, spi: Spi) -> Option<&mut Option<Arc<InboundSa>>> {
        self.blocks.get_mut(SlotBlock::number_of(spi))?.as_mut()?.slots.get_mut(slot(spi))
    }

    /// Adds a block. Returns it if it exists already.
    pub(crate) fn add_slots(&mut self, block: Box<SlotBlock>) -> Option<Box<SlotBlock>> {
        match self.blocks.get_mut(block.number) {
            Some(place) if place.is_none() => {
                *place = Some(block);
                None
            }
            _ => Some(block),
        }
    }

    /// Puts an SA into its slot and returns the former one. Returns the SA as an error if its block
    /// does not exist.
    pub(crate) fn insert(&mut self, sa: Arc<InboundSa>) -> Result<Option<Arc<InboundSa>>, Arc<InboundSa>> {
        match self.slot_mut(sa.spi()) {
            Some(slot) => Ok(slot.replace(sa)),
            None => Err(sa),
        }
    }

    /// Removes the SA with exactly this SPI.
    pub(crate) fn remove(&mut self, spi: Spi) -> Option<Arc<InboundSa>> {
        self.slot_mut(spi)?.take_if(|sa| sa.spi() == spi)
    }

    /// Prefetches SAs, step by step: what the next step reads is on its way before the first of it
    /// is needed. The SPIs may be from any sender; each comes with the octets of its packet.
    #[inline]
    pub(crate) fn prefetch(&self, wanted: &[(Spi, u16)]) {
        let slot_of =
            |spi: &Spi| self.blocks.get(SlotBlock::number_of(*spi))?.as_ref()?.slots.get(slot(*spi));
        let spis = || wanted.iter().map(|(spi, _)| spi);
        spis()
            .filter_map(|spi| self.blocks.get(SlotBlock::number_of(*spi)))
            .for_each(|b| prefetch(b, size_of_val(b)));
        spis().filter_map(slot_of).for_each(|slot| prefetch(slot, size_of_val(slot)));
        spis().filter_map(slot_of).flatten().for_each(|sa| sa.prefetch());
        for (spi, len) in wanted {
            if let Some(sa) = slot_of(spi).and_then(Option::as_ref) {
                sa.prefetch_state(usize::from(*len));
            }
        }
    }

    /// The SA with exactly this SPI.
    #[inline]
    pub(crate) fn get(&self, spi: Spi) -> Option<&InboundSa> {
        let block = self.blocks.get(SlotBlock::number_of(spi))?.as_ref()?;
        block.slots.get(slot(spi))?.as_deref().filter(|sa| sa.spi() == spi)
    }
}

#[cfg(test)]
mod tests;
