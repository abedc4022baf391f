//! Rate limits of log lines that strangers can cause: one line a reason and second.

use super::stats::Discard;
use super::table::hash;
use crate::output::Time;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// Bound on the refusals that are told apart by their text: a misconfigured peer must not hide
/// behind one that guesses keys.
const TEXTS: usize = 16;

/// When each reason was last logged, and how many lines were left out since.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLimit {
    reasons: [Slot; Discard::ALL.len()],
    /// The same for texts, by their hash.
    texts: Vec<(u64, Slot)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    next: Time,
    left_out: u64,
}

impl Slot {
    fn admit(&mut self, now: Time) -> Option<u64> {
        if now < self.next {
            self.left_out += 1;
            return None;
        }
        self.next = now.plus(INTERVAL);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl LogLimit {
    /// `Some` if a line may be logged now, with the number of lines that were left out before it.
    pub(crate) fn admit(&mut self, now: Time, reason: Discard) -> Option<u64> {
        self.reasons.get_mut(reason as usize)?.admit(now)
    }

    /// [`Self::admit`] for a refused or silent initiator, where each text counts separately. If a
    /// second has brought too many texts, which a stranger can arrange, the others share one line.
    pub(crate) fn admit_refusal(&mut self, now: Time, why: &str) -> Option<u64> {
        let hash = hash(&why);
        if let Some((_, slot)) = self.texts.iter_mut().find(|(text, _)| *text == hash) {
            return slot.admit(now);
        }
        let over = self.texts.iter().position(|(_, slot)| slot.next <= now);
        match over.filter(|_| self.texts.len() == TEXTS) {
            Some(over) => drop(self.texts.swap_remove(over)),
            None if self.texts.len() == TEXTS => return self.admit(now, Discard::Refused),
            None => {}
        }
        let mut slot = Slot::default();
        let admitted = slot.admit(now);
        self.texts.push((hash, slot));
        admitted
    }
}

/// Rate limit of all answers to messages of unknown IKE SAs and versions together (RFC 7296
/// §2.21.4).
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
    fn each_text_of_a_refusal_has_its_line_but_not_any_number_of_them() {
        let mut limit = LogLimit::default();
        let at = |millis| Time(Duration::from_millis(millis));
        assert_eq!(limit.admit_refusal(at(0), "wrong key"), Some(0));
        assert_eq!(limit.admit_refusal(at(1), "wrong key"), None);
        assert_eq!(limit.admit_refusal(at(2), "wrong identity"), Some(0));
        assert_eq!(limit.admit_refusal(at(1000), "wrong key"), Some(1));
        for second in 2..5 {
            let names = (0..1000).map(|n| format!("no such identity: {second}.{n}"));
            let lines = names.filter_map(|name| limit.admit_refusal(at(second * 1000), &name));
            assert_eq!(lines.count(), TEXTS + 1, "second {second}");
            assert!(limit.texts.len() <= TEXTS);
        }
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
