//! The slots of ESP SPIs: taken at random, resting after use, one table a share.

use crate::output::Time;
use crate::suite::Entropy;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_ipsec::spi::{Share, Spi};

const WORDS: usize = Spi::SLOTS / 64;
/// Tries at random before the table is searched from a random start.
const RANDOM_TRIES: usize = 8;

/// The used and resting slots of every share. A share without SPIs costs nothing.
#[derive(Debug, Default)]
pub struct EspSlots {
    shares: BTreeMap<u8, Box<ShareSlots>>,
    resting: VecDeque<(Time, Spi)>,
}

#[derive(Debug)]
struct ShareSlots {
    /// Not free: in use or resting.
    taken: Bits,
    resting: Bits,
}

#[derive(Debug)]
struct Bits([u64; WORDS]);

impl EspSlots {
    /// How long a slot rests after use: packets of the old SA that are still under way must not meet a new one.
    pub const REST: Duration = Duration::from_secs(300);

    /// Takes a free slot of `share` at random. `None` if all are in use or resting.
    pub fn allocate(&mut self, now: Time, share: Share, entropy: &mut dyn Entropy) -> Option<Spi> {
        self.wake(now);
        let slots = self.share(share);
        let mut random = [0; 4];
        let mut found = None;
        for _ in 0..RANDOM_TRIES {
            entropy.fill(&mut random);
            let slot = slot_of(random);
            if slots.is_free(share, slot) {
                found = Some(slot);
                break;
            }
        }
        let slot = found.or_else(|| {
            let start = usize::from(slot_of(random));
            (0..Spi::SLOTS)
                .map(|i| ((start + i) % Spi::SLOTS) as u16)
                .find(|&slot| slots.is_free(share, slot))
        })?;
        let tag = u16::from_be_bytes([random[2], random[3]]) & 0x3ff;
        let spi = Spi::from_parts(share, slot, tag)?;
        slots.taken.set(slot, true);
        Some(spi)
    }

    /// Marks the slot of an SPI that another node chose as in use. False if it is not free.
    pub fn claim(&mut self, spi: Spi) -> bool {
        let slots = self.share(spi.share());
        let free = slots.is_free(spi.share(), spi.slot());
        slots.taken.set(spi.slot(), true);
        free
    }

    /// Gives a slot back; it becomes free after [`EspSlots::REST`]. An SPI that is not in use is ignored.
    pub fn release(&mut self, now: Time, spi: Spi) {
        let slots = self.share(spi.share());
        if slots.taken.get(spi.slot()) && !slots.resting.get(spi.slot()) {
            slots.resting.set(spi.slot(), true);
            self.resting.push_back((Time(now.0.saturating_add(Self::REST)), spi));
        }
    }

    fn wake(&mut self, now: Time) {
        while let Some(&(until, spi)) = self.resting.front() {
            if until > now {
                break;
            }
            self.resting.pop_front();
            let slots = self.share(spi.share());
            slots.taken.set(spi.slot(), false);
            slots.resting.set(spi.slot(), false);
        }
    }

    fn share(&mut self, share: Share) -> &mut ShareSlots {
        self.shares
            .entry(share.0)
            .or_insert_with(|| Box::new(ShareSlots { taken: Bits([0; WORDS]), resting: Bits([0; WORDS]) }))
    }
}

impl ShareSlots {
    /// Not taken, and not among the reserved values whatever the tag (slot 0 of share 0 reaches below 256).
    fn is_free(&self, share: Share, slot: u16) -> bool {
        Spi::from_parts(share, slot, 0).is_some() && !self.taken.get(slot)
    }
}

impl Bits {
    fn get(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot) / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn set(&mut self, slot: u16, on: bool) {
        if let Some(word) = self.0.get_mut(usize::from(slot) / 64) {
            let bit = 1 << (slot % 64);
            *word = if on { *word | bit } else { *word & !bit };
        }
    }
}

fn slot_of(random: [u8; 4]) -> u16 {
    u16::from_be_bytes([random[0], random[1]]) & (Spi::SLOTS - 1) as u16
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
        let first = slots.allocate(start, Share(7), &mut Constant).unwrap();
        assert_eq!((first.share(), first.slot()), (Share(7), 0));
        slots.release(start, first);
        slots.release(start, first);
        let second = slots.allocate(start, Share(7), &mut Constant).unwrap();
        assert_eq!(second.slot(), 1, "slot 0 rests");
        let later = Time(EspSlots::REST);
        assert_eq!(slots.allocate(later, Share(7), &mut Constant).unwrap(), first);
        assert_eq!(slots.allocate(later, Share(7), &mut Constant).unwrap().slot(), 2, "slot 1 is in use");
    }

    #[test]
    fn a_full_share_refuses_and_reserved_values_are_never_given() {
        let mut slots = EspSlots::default();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(spi) = slots.allocate(Time::default(), Share(0), &mut Constant) {
            assert!(spi.0 >= 256);
            assert!(seen.insert(spi.slot()));
        }
        assert_eq!(seen.len(), Spi::SLOTS - 1, "slot 0 of share 0 holds reserved values");
        assert!(slots.allocate(Time::default(), Share(1), &mut Constant).is_some());
    }

    #[test]
    fn a_claimed_slot_is_not_given_out() {
        let mut slots = EspSlots::default();
        let foreign = Spi::from_parts(Share(3), 0, 77).unwrap();
        assert!(slots.claim(foreign));
        assert!(!slots.claim(foreign));
        assert_eq!(slots.allocate(Time::default(), Share(3), &mut Constant).unwrap().slot(), 1);
    }
}
