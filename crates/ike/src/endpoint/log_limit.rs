//! One line a reason and second for what strangers can cause, so that they cannot fill the log.

use super::stats::Discard;
use crate::output::Time;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// When each reason was last logged, and how many lines were left out since.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLimit([Slot; Discard::ALL.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    next: Time,
    left_out: u64,
}

impl LogLimit {
    /// `Some` if a line may be logged now, with the number of those that were left out before it.
    pub(crate) fn admit(&mut self, now: Time, reason: Discard) -> Option<u64> {
        let slot = self.0.get_mut(reason as usize)?;
        if now < slot.next {
            slot.left_out += 1;
            return None;
        }
        slot.next = now.plus(INTERVAL);
        Some(std::mem::take(&mut slot.left_out))
    }
}

/// At most so many answers a second to messages of unknown IKE SAs and versions, to all together (RFC 7296 §2.21.4).
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerLimit {
    second: u64,
    sent: u32,
}

impl AnswerLimit {
    const PER_SECOND: u32 = 100;

    /// Takes one of this second's answers, if any is left.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        if self.second != now.0.as_secs() {
            *self = Self { second: now.0.as_secs(), sent: 0 };
        }
        let left = self.sent < Self::PER_SECOND;
        self.sent += u32::from(left);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_line_a_reason() {
        let mut limit = LogLimit::default();
        let at = |millis| Time(Duration::from_millis(millis));
        assert_eq!(limit.admit(at(0), Discard::Integrity), Some(0));
        assert_eq!(limit.admit(at(1), Discard::Integrity), None);
        assert_eq!(limit.admit(at(1), Discard::Malformed), Some(0), "another reason");
        assert_eq!(limit.admit(at(999), Discard::Integrity), None);
        assert_eq!(limit.admit(at(1000), Discard::Integrity), Some(2));
    }

    #[test]
    fn answers_run_out_within_a_second() {
        let mut limit = AnswerLimit::default();
        let now = Time(Duration::from_millis(1500));
        let taken = (0..1000).filter(|_| limit.take(now)).count();
        assert_eq!(taken, AnswerLimit::PER_SECOND as usize);
        assert!(limit.take(Time(Duration::from_millis(2000))));
    }
}
