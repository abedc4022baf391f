//! Messages for the engine, in order. They wait here while it takes none.

use std::collections::VecDeque;
use std::time::Duration;
use testudo_ike::output::Time;

/// The engine is tried again after this long, unless the host says earlier that it is ready.
const ENGINE_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EngineQueue {
    messages: VecDeque<Vec<u8>>,
    /// The engine has refused a message. It is offered again then.
    retry: Option<Time>,
}

impl EngineQueue {
    /// Adds a message behind the others.
    pub(super) fn push(&mut self, message: Vec<u8>) {
        self.messages.push_back(message);
    }

    /// Adds a message before the others.
    pub(super) fn push_first(&mut self, message: Vec<u8>) {
        self.messages.push_front(message);
    }

    /// The next message, if the engine is not busy.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        if self.is_busy() { None } else { self.messages.pop_front() }
    }

    /// The engine has refused a message. It is offered again, before the others.
    pub(super) fn refused(&mut self, now: Time, message: Vec<u8>) {
        self.push_first(message);
        self.retry = Some(now.plus(ENGINE_RETRY_INTERVAL));
    }

    /// The engine takes messages again.
    pub(super) fn ready(&mut self) {
        self.retry = None;
    }

    /// True from a refusal until the engine is tried again.
    pub(super) fn is_busy(&self) -> bool {
        self.retry.is_some()
    }

    /// The view is over: the messages are of no use.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.retry
    }

    /// Time has passed: the engine may be tried again.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.retry = self.retry.filter(|at| *at > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_message_is_offered_again_first_and_after_a_while() {
        let mut queue = EngineQueue::default();
        [1, 2, 3].into_iter().for_each(|number| queue.push(vec![number]));
        let refused = queue.pop().unwrap();
        let now = Time(Duration::from_secs(1));
        queue.refused(now, refused);
        assert_eq!((queue.is_busy(), queue.pop()), (true, None));
        queue.handle_timeout(now);
        assert_eq!(queue.pop(), None, "it is too early");
        let at = queue.next_timeout().unwrap();
        queue.handle_timeout(at);
        assert_eq!((queue.next_timeout(), queue.pop()), (None, Some(vec![1])));
        queue.refused(at, vec![1]);
        queue.ready();
        assert_eq!([queue.pop(), queue.pop()], [Some(vec![1]), Some(vec![2])]);
        queue.refused(at, vec![2]);
        queue.clear();
        assert_eq!((queue.is_busy(), queue.pop()), (false, None));
    }
}
