//! A simple model of the anti-replay window: a set of numbers.

use std::collections::BTreeSet;

/// The accepted numbers.
#[derive(Debug, Default)]
pub(super) struct Model {
    accepted: BTreeSet<u64>,
    size: u64,
    esn: bool,
}

impl Model {
    pub(super) fn new(size: u32, esn: bool) -> Self {
        Self { accepted: BTreeSet::new(), size: u64::from(size), esn }
    }

    pub(super) fn top(&self) -> u64 {
        self.accepted.last().copied().unwrap_or_default()
    }

    /// True if an authentic packet of this number must be accepted (RFC 4303 §3.4.3). `since` is
    /// the highest number when its burst began, from which the high half of an extended number is
    /// inferred.
    pub(super) fn accepts(&self, sequence: u64, since: u64) -> bool {
        // Appendix A2.2: a number further ahead or back is mistaken for another one, and fails.
        let (least, reach) = if self.esn {
            ((since + 1).saturating_sub(self.span()), since + (1 << 32) - self.span())
        } else {
            (0, u64::from(u32::MAX))
        };
        if sequence == 0 || sequence < least || sequence > reach {
            return false;
        }
        let inside = sequence > self.top() || sequence + self.size > self.top();
        self.size == 0 || inside && !self.accepted.contains(&sequence)
    }

    /// How far back numbers can be told apart; without a window, as far as appendix A2.2 allows.
    fn span(&self) -> u64 {
        if self.size == 0 { 1 << 31 } else { self.size }
    }

    pub(super) fn accept(&mut self, sequence: u64) {
        self.accepted.insert(sequence);
    }
}
