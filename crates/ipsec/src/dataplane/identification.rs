//! Identifications of outer IPv4 headers. Fragments of two packets with one identification could
//! not be told apart. So each worker has identifications of its own, and reuses one as late as
//! possible.

use super::BURST;

/// As many consecutive ones as a burst needs.
const SPAN_LEN: u16 = BURST as u16;
/// Number of spans. A worker has every n-th of them.
const SPANS: u16 = (u16::MAX / SPAN_LEN) + 1;

/// The identifications of one worker.
#[derive(Debug)]
pub(super) struct Identifications {
    first: u16,
    step: u16,
    span: u16,
    used: u16,
}

impl Identifications {
    /// The identifications of one worker of `workers`.
    pub(super) fn new(worker: u8, workers: u8) -> Self {
        // A worker's number is below 64, which is also the bound on workers.
        let step = u16::from(workers.max(worker + 1));
        Self { first: worker.into(), step, span: worker.into(), used: 0 }
    }

    /// Takes this many more, at most a burst's: they follow the returned one.
    #[inline]
    pub(super) fn take(&mut self, count: u16) -> u16 {
        if self.used + count > SPAN_LEN {
            let next = self.span + self.step;
            self.span = if next < SPANS { next } else { self.first };
            self.used = 0;
        }
        let before = (self.span * SPAN_LEN + self.used).wrapping_sub(1);
        self.used += count;
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Takes identifications until one comes again.
    fn round(mut ids: Identifications, counts: &[u16]) -> HashSet<u16> {
        let mut seen = HashSet::new();
        for count in counts.iter().cycle() {
            let before = ids.take(*count);
            for id in (1..=*count).map(|n| before.wrapping_add(n)) {
                if !seen.insert(id) {
                    return seen;
                }
            }
        }
        seen
    }

    #[test]
    fn one_worker_has_all_and_uses_each_before_one_comes_again() {
        assert_eq!(round(Identifications::new(0, 1), &[64]).len(), 1 << 16);
        assert_eq!(round(Identifications::new(0, 1), &[1]).len(), 1 << 16);
        assert!(round(Identifications::new(0, 1), &[33, 5, 60, 1]).len() > 1 << 15, "few are left out");
    }

    #[test]
    fn no_two_workers_have_one_in_common() {
        for workers in [2, 3, 7, 64] {
            let mut all = HashSet::new();
            for worker in 0..workers {
                let own = round(Identifications::new(worker, workers), &[64, 7, 1]);
                assert!(own.len() > (1 << 15) / usize::from(workers), "{worker} of {workers}");
                assert!(own.into_iter().all(|id| all.insert(id)), "{worker} of {workers} has another's");
            }
        }
    }
}
