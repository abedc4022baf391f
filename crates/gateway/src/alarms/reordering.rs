//! Sudden reordering: many packets of an SA come behind later ones.

use std::time::Duration;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_ike::output::ChildSaId;

/// Parts of the second that is judged.
const SLOTS: u64 = 4;
const SLOT: Duration = Duration::from_millis(1000 / SLOTS);
/// Of the packets of a second, one in so many is late where reordering is sudden.
const LATE_SHARE: u32 = 5;

/// What an SA has received in the last second, and how much of it was late.
///
/// A quarter of a second alone would not do: a short burst of late packets would be a large part of
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    slots: [Slot; SLOTS as usize],
    /// Number of the latest part, from the start of the clock.
    latest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    received: u32,
    late: u32,
    /// Of the late ones, those that have been told.
    told: u32,
}

/// Many of the last second's packets were late.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sudden {
    received: u32,
    late: u32,
    /// Of the late ones, those that have not been told before.
    fresh: u32,
}

impl Lateness {
    /// Adds the packets since the last call.
    pub(super) fn add(&mut self, now: Duration, received: u64, late: u64) -> Option<Sudden> {
        let latest = u64::try_from(now.as_millis() / SLOT.as_millis()).unwrap_or(u64::MAX);
        for passed in (self.latest.saturating_add(1)..=latest).take(SLOTS as usize) {
            *self.slot(passed)? = Slot::default();
        }
        self.latest = self.latest.max(latest);
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let slot = self.slot(self.latest)?;
        slot.received = slot.received.saturating_add(small(received));
        slot.late = slot.late.saturating_add(small(late));
        if late == 0 {
            return None;
        }
        let sum = |of: fn(&Slot) -> u32| self.slots.iter().map(of).fold(0, u32::saturating_add);
        let (received, late) = (sum(|slot| slot.received), sum(|slot| slot.late));
        if late.saturating_mul(LATE_SHARE) < received {
            return None;
        }
        let fresh = sum(|slot| slot.late - slot.told);
        self.slots.iter_mut().for_each(|slot| slot.told = slot.late);
        Some(Sudden { received, late, fresh })
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut((number % SLOTS) as usize)
    }
}

impl Sudden {
    pub(super) fn sighting(&self, child: ChildSaId) -> Sighting {
        let Self { received, late, fresh } = self;
        let evidence = format!("{late} of {received} packets came behind later ones");
        let subject = Subject::ChildSa(child.0);
        Sighting { evidence, ..Sighting::of(Kind::Reordering, subject, (*fresh).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn late_packets_are_told_once_and_those_of_the_second_before_too() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.add(at(0), 1000, 0), None);
        assert_eq!(lateness.add(at(250), 100, 100), None, "100 of 1100");
        let sudden = |received, late, fresh| Some(Sudden { received, late, fresh });
        assert_eq!(lateness.add(at(500), 200, 160), sudden(1300, 260, 260));
        assert_eq!(lateness.add(at(510), 10, 10), sudden(1310, 270, 10));
        assert_eq!(lateness.add(at(1000), 10, 1), sudden(320, 271, 1), "the first part is over");
        assert_eq!(lateness.add(at(5000), 4, 1), sudden(4, 1, 1));
        assert_eq!(lateness.add(at(5250), 2, 0), None, "nothing new");
    }

    #[test]
    fn a_burst_in_a_busy_second_is_not_sudden() {
        let mut lateness = Lateness::default();
        let quarters: Vec<bool> = (0..40)
            .map(|n| lateness.add(at(n * 250), 25_000, if n % 8 == 5 { 10_000 } else { 0 }).is_some())
            .collect();
        assert!(!quarters.contains(&true), "{quarters:?}");
    }

    #[test]
    fn no_count_and_no_time_is_too_large() {
        let mut lateness = Lateness::default();
        lateness.add(Duration::MAX, u64::MAX, u64::MAX);
        let sudden = lateness.add(Duration::MAX, u64::MAX, u64::MAX);
        assert_eq!(sudden.map(|sudden| sudden.late), Some(u32::MAX));
        assert!(lateness.add(at(0), 1, 1).is_some(), "a clock that goes back");
    }
}
