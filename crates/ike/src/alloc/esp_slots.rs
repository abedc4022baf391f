//! The slots of ESP SPIs: drawn at random from as few blocks as possible, resting after use.
//!
//! The first block of a shard is random, and so is the slot within a block: after a restart, or on
//! another node, a former SPI leads to another SA no more often than by chance. One block is filled
//! before the next is begun, which keeps the tables small that are indexed by slots, here and in
//! the data plane.

use crate::output::Time;
use crate::suite::Entropy;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_base::spi::{Shard, Spi};

/// Slots of a block: one word of bits.
const BLOCK: u16 = 64;
const BLOCKS: u16 = Spi::SLOTS as u16 / BLOCK;

/// The used and resting slots of every shard. A shard without SPIs takes no memory.
#[derive(Debug, Default)]
pub struct EspSlots {
    shards: BTreeMap<u8, ShardSlots>,
    resting: VecDeque<(Time, Spi)>,
}

#[derive(Debug, Default)]
struct ShardSlots {
    /// The block that is filled first, drawn with the first slot.
    start: Option<u8>,
    /// Blocks by number. A missing block is free.
    blocks: BTreeMap<u16, SlotBlock>,
}

/// A bit for each slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotBlock {
    /// Slots that are not free: in use or resting.
    taken: u64,
    resting: u64,
}

impl EspSlots {
    /// How long a slot rests after use: packets of the old SA that are still under way must not
    /// meet a new SA.
    pub const REST: Duration = Duration::from_secs(300);

    /// Takes a free slot of `shard`. `None` if all are in use or resting.
    pub fn allocate(&mut self, now: Time, shard: Shard, entropy: &mut dyn Entropy) -> Option<Spi> {
        self.wake(now);
        let slots = self.shards.entry(shard.0).or_default();
        let mut random = [0; 4];
        entropy.fill(&mut random);
        let [start, choice, tag @ ..] = random;
        let start = *slots.start.get_or_insert(start);
        let slot = slots.free(shard, start.into(), choice.into())?;
        let spi = Spi::from_parts(shard, slot, u16::from_be_bytes(tag) & 0x3ff)?;
        slots.take(slot);
        Some(spi)
    }

    /// Marks the slot of an SPI that another node chose as in use. Returns false if it is in use
    /// already. A resting slot stops resting: another node has completed what this one had given
    /// up, and the end of the rest must not free it.
    pub fn claim(&mut self, spi: Spi) -> bool {
        let block =
            self.shards.entry(spi.shard().0).or_default().blocks.entry(number(spi.slot())).or_default();
        let slot = bit(spi.slot());
        let rested = block.resting & slot != 0;
        let claimed = rested || block.taken & slot == 0;
        block.taken |= slot;
        block.resting &= !slot;
        if rested {
            let same = |other: Spi| (other.shard(), other.slot()) == (spi.shard(), spi.slot());
            self.resting.retain(|(_, other)| !same(*other));
        }
        claimed
    }

    /// Gives a slot back; it becomes free after [`EspSlots::REST`]. An SPI that is not in use is
    /// ignored.
    pub fn release(&mut self, now: Time, spi: Spi) {
        let Some(block) = self.block_mut(spi) else { return };
        let slot = bit(spi.slot());
        if block.taken & slot != 0 && block.resting & slot == 0 {
            block.resting |= slot;
            self.resting.push_back((Time(now.0.saturating_add(Self::REST)), spi));
        }
    }

    fn wake(&mut self, now: Time) {
        while let Some((_, spi)) = self.resting.pop_front_if(|(until, _)| *until <= now) {
            if let Some(block) = self.block_mut(spi) {
                block.taken &= !bit(spi.slot());
                block.resting &= !bit(spi.slot());
            }
        }
    }

    fn block_mut(&mut self, spi: Spi) -> Option<&mut SlotBlock> {
        self.shards.get_mut(&spi.shard().0)?.blocks.get_mut(&number(spi.slot()))
    }
}

impl ShardSlots {
    /// A free slot of the first block, from `start` on, that has one; `choice` picks it. Slot 0 of
    /// shard 0 is not returned: it has the reserved values and those of relay SAs.
    fn free(&self, shard: Shard, start: u16, choice: u16) -> Option<u16> {
        (0..BLOCKS).map(|n| (start + n) % BLOCKS).find_map(|number| {
            let taken = self.blocks.get(&number).map_or(0, |block| block.taken);
            if taken == u64::MAX {
                return None;
            }
            let mut slots = (0..BLOCK).map(|n| number * BLOCK + (choice + n) % BLOCK);
            slots.find(|slot| taken & bit(*slot) == 0 && Spi::from_parts(shard, *slot, 0).is_some())
        })
    }

    fn take(&mut self, slot: u16) {
        self.blocks.entry(number(slot)).or_default().taken |= bit(slot);
    }
}

/// The block of a slot.
fn number(slot: u16) -> u16 {
    slot / BLOCK
}

fn bit(slot: u16) -> u64 {
    1 << (slot % BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Always draws slot 0, so that the search past used slots is exercised too.
    struct Constant;

    impl Entropy for Constant {
        fn fill(&mut self, out: &mut [u8]) {
            out.fill(0);
        }
    }

    #[test]
    fn a_slot_rests_after_use() {
        let mut slots = EspSlots::default();
        let start = Time::default();
        let first = slots.allocate(start, Shard(7), &mut Constant).unwrap();
        assert_eq!((first.shard(), first.slot()), (Shard(7), 0));
        slots.release(start, first);
        slots.release(start, first);
        let second = slots.allocate(start, Shard(7), &mut Constant).unwrap();
        assert_eq!(second.slot(), 1, "slot 0 rests");
        let later = Time(EspSlots::REST);
        assert_eq!(slots.allocate(later, Shard(7), &mut Constant).unwrap(), first);
        assert_eq!(slots.allocate(later, Shard(7), &mut Constant).unwrap().slot(), 2, "slot 1 is in use");
    }

    #[test]
    fn a_full_shard_refuses_and_reserved_values_are_never_given() {
        let mut slots = EspSlots::default();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(spi) = slots.allocate(Time::default(), Shard(0), &mut Constant) {
            assert!(spi.0 >= 1024 && !Spi::RELAY.contains(&spi));
            assert!(seen.insert(spi.slot()));
        }
        assert_eq!(
            seen.len(),
            Spi::SLOTS - 1,
            "slot 0 of shard 0 holds reserved values and those of relay SAs"
        );
        assert!(slots.allocate(Time::default(), Shard(1), &mut Constant).is_some());
    }

    #[test]
    fn a_claimed_slot_is_not_given_out() {
        let mut slots = EspSlots::default();
        let foreign = Spi::from_parts(Shard(3), 0, 77).unwrap();
        assert!(slots.claim(foreign));
        assert!(!slots.claim(foreign));
        assert_eq!(slots.allocate(Time::default(), Shard(3), &mut Constant).unwrap().slot(), 1);
    }

    #[test]
    fn a_resting_slot_that_is_claimed_is_in_use_until_it_is_released() {
        let mut slots = EspSlots::default();
        let start = Time::default();
        let spi = slots.allocate(start, Shard(7), &mut Constant).unwrap();
        slots.release(start, spi);
        assert!(slots.claim(spi), "another node has gone on with it");
        let later = Time(EspSlots::REST);
        assert_ne!(
            slots.allocate(later, Shard(7), &mut Constant).unwrap().slot(),
            spi.slot(),
            "its SA lives"
        );
        slots.release(later, spi);
        let rested = Time(2 * EspSlots::REST);
        let almost = Time(rested.0.saturating_sub(Duration::from_secs(1)));
        assert_ne!(
            slots.allocate(almost, Shard(7), &mut Constant).unwrap().slot(),
            spi.slot(),
            "it rests anew"
        );
        assert_eq!(slots.allocate(rested, Shard(7), &mut Constant).unwrap().slot(), spi.slot());
    }

    /// Draws a different value each time.
    struct Counter(u8);

    impl Entropy for Counter {
        fn fill(&mut self, out: &mut [u8]) {
            for octet in out {
                self.0 = self.0.wrapping_mul(5).wrapping_add(77);
                *octet = self.0;
            }
        }
    }

    #[test]
    fn a_block_is_filled_before_another_is_begun() {
        let (mut slots, mut entropy) = (EspSlots::default(), Counter(3));
        let mut drawn = Vec::new();
        for taken in 1..=200 {
            let spi = slots.allocate(Time::default(), Shard(9), &mut entropy).unwrap();
            drawn.push(spi.slot());
            assert_eq!(slots.shards[&9].blocks.len(), usize::div_ceil(taken, BLOCK.into()));
        }
        assert_ne!(drawn.first().map(|slot| number(*slot)), Some(0), "the first block is a random one");
        assert!(!drawn.is_sorted(), "slots come in no order");
        // A rested slot is used again before a further block is.
        let spi = Spi::from_parts(Shard(9), drawn[0], 0).unwrap();
        slots.release(Time::default(), spi);
        assert_eq!(slots.allocate(Time(EspSlots::REST), Shard(9), &mut entropy).unwrap().slot(), drawn[0]);
    }
}
