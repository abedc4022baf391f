//! State shared by the host and the engine's thread: two bounded queues, and a descriptor to wake
//! either.

use super::rule::Electorate;
use super::wire;
use crate::engine::EngineEvent;
use crate::node::NodeId;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bound on the messages that wait to be sent: as many as corosync takes in some milliseconds.
const MAX_OUTGOING_MESSAGES: usize = 64;
/// Bound on their octets.
const MAX_OUTGOING_OCTETS: usize = 1 << 20;
/// Octets of events that wait for the host before no more are read from corosync.
const MAX_EVENT_OCTETS: usize = 4 << 20;
/// A host that has not taken all events for this long is stuck.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);
/// Memory of an event beside its message.
const EVENT_OVERHEAD_OCTETS: usize = 128;

/// State shared by both sides.
pub(super) struct Shared {
    queues: Mutex<Queues>,
    ended: Condvar,
    /// Readable while the host may find an event.
    pub(super) wake_host: EventFd,
    /// Wakes the thread.
    wake_thread: mio::Waker,
}

struct Queues {
    /// Until when the host has taken all events.
    served: Instant,
    /// Encoded messages.
    outgoing: VecDeque<Vec<u8>>,
    outgoing_bytes: usize,
    /// Events with their times.
    events: VecDeque<(Instant, EngineEvent)>,
    events_bytes: usize,
    /// True if a message was returned: the host is woken when there is room.
    refused: bool,
    /// True if the thread reads nothing until the host has taken its events.
    stalled: bool,
    rejoin: bool,
    stop: bool,
    ended: bool,
    /// Whether the witness votes, if there is one.
    witness: Option<bool>,
    /// What does not fit in corosync.conf.
    misfit: Option<String>,
    /// The nodes of corosync.conf.
    nodes: Option<Vec<NodeId>>,
    electorate: Electorate,
    /// The host takes no part any more.
    left: bool,
}

impl Shared {
    pub(super) fn new(wake_thread: mio::Waker, electorate: Electorate) -> std::io::Result<Self> {
        let wake_host = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let queues = Queues {
            served: Instant::now(),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            events: VecDeque::new(),
            events_bytes: 0,
            refused: false,
            stalled: false,
            rejoin: false,
            stop: false,
            ended: false,
            witness: None,
            misfit: None,
            nodes: None,
            electorate,
            left: false,
        };
        Ok(Self { queues: Mutex::new(queues), ended: Condvar::new(), wake_host, wake_thread })
    }

    /// Neither side panics while it holds the lock, and the queues are consistent between any two
    /// steps.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_thread(&self) {
        // The write fails only if the counter is full, and then the thread is awake already.
        let _woken = self.wake_thread.wake();
    }

    // The host's side.

    pub(super) fn offer(&self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        let mut queues = self.lock();
        let full =
            queues.outgoing.len() >= MAX_OUTGOING_MESSAGES || queues.outgoing_bytes >= MAX_OUTGOING_OCTETS;
        if full || queues.ended {
            queues.refused = true;
            return Err(message);
        }
        queues.outgoing_bytes += message.len();
        queues.outgoing.push_back(wire::message(&message));
        let first = queues.outgoing.len() == 1;
        drop(queues);
        if first {
            self.wake_thread();
        }
        Ok(())
    }

    pub(super) fn next_event(&self) -> Option<EngineEvent> {
        let mut queues = self.lock();
        let Some((came, event)) = queues.events.pop_front() else {
            // Under the lock, so that the next event sets it again.
            let _was_unset = self.wake_host.read();
            queues.served = Instant::now();
            return None;
        };
        // A host that never finds the queue empty is still at most some turns late.
        queues.served = queues.served.max(came);
        queues.events_bytes -= cost(&event);
        if queues.stalled && queues.events_bytes <= MAX_EVENT_OCTETS / 2 {
            queues.stalled = false;
            drop(queues);
            self.wake_thread();
        }
        Some(event)
    }

    pub(super) fn rejoin(&self) {
        self.lock().rejoin = true;
        self.wake_thread();
    }

    pub(super) fn witness(&self) -> Option<bool> {
        self.lock().witness
    }

    pub(super) fn misfit(&self) -> Option<String> {
        self.lock().misfit.clone()
    }

    pub(super) fn nodes(&self) -> Option<Vec<NodeId>> {
        self.lock().nodes.clone()
    }

    pub(super) fn set_electorate(&self, electorate: Electorate) {
        self.lock().electorate = electorate;
    }

    pub(super) fn leave(&self) {
        self.lock().left = true;
        self.wake_thread();
    }

    /// Asks the thread to end. Returns true if it has ended within this time.
    pub(super) fn stop(&self, within: Duration) -> bool {
        let mut queues = self.lock();
        queues.stop = true;
        self.wake_thread();
        queues = self
            .ended
            .wait_timeout_while(queues, within, |queues| !queues.ended)
            .map_or_else(|poisoned| poisoned.into_inner().0, |waited| waited.0);
        queues.ended
    }

    fn wake_host(&self) {
        // The write fails only if the counter is full, and then the host is awake already.
        let _woken = self.wake_host.write(1);
    }

    // The thread's side.

    pub(super) fn stopped(&self) -> bool {
        self.lock().stop
    }

    /// True if the host has taken its events lately.
    pub(super) fn served(&self) -> bool {
        self.lock().served.elapsed() < HOST_TIMEOUT
    }

    /// True if the host has enough events for now.
    pub(super) fn stall(&self) -> bool {
        let mut queues = self.lock();
        queues.stalled = queues.events_bytes >= MAX_EVENT_OCTETS;
        queues.stalled
    }

    pub(super) fn tell(&self, events: impl IntoIterator<Item = EngineEvent>) {
        let mut queues = self.lock();
        let before = queues.events.len();
        for event in events {
            // Waiting messages belong to the view before: no member would take them.
            if !matches!(event, EngineEvent::Message { .. } | EngineEvent::Notice(_)) {
                queues.outgoing.clear();
                queues.outgoing_bytes = 0;
            }
            queues.events_bytes += cost(&event);
            queues.events.push_back((Instant::now(), event));
        }
        if queues.events.len() > before {
            self.wake_host();
        }
    }

    pub(super) fn electorate(&self) -> Electorate {
        self.lock().electorate
    }

    pub(super) fn has_left(&self) -> bool {
        self.lock().left
    }

    pub(super) fn set_nodes(&self, nodes: Option<Vec<NodeId>>) {
        self.lock().nodes = nodes;
    }

    pub(super) fn set_witness(&self, witness: Option<bool>) {
        self.lock().witness = witness;
    }

    /// True if that is new, and not `None`.
    pub(super) fn set_misfit(&self, misfit: Option<String>) -> bool {
        let mut queues = self.lock();
        let is_new = misfit.is_some() && queues.misfit != misfit;
        queues.misfit = misfit;
        is_new
    }

    /// True once after each [`Self::rejoin`].
    pub(super) fn take_rejoin(&self) -> bool {
        std::mem::take(&mut self.lock().rejoin)
    }

    pub(super) fn next_outgoing(&self) -> Option<Vec<u8>> {
        let mut queues = self.lock();
        let framed = queues.outgoing.pop_front()?;
        queues.outgoing_bytes -= framed.len() - 1;
        let room = queues.outgoing.len() <= MAX_OUTGOING_MESSAGES / 2
            && queues.outgoing_bytes <= MAX_OUTGOING_OCTETS / 2;
        if room && std::mem::take(&mut queues.refused) {
            self.wake_host();
        }
        Some(framed)
    }

    /// Puts back a message that could not be sent.
    pub(super) fn put_back(&self, framed: Vec<u8>) {
        let mut queues = self.lock();
        queues.outgoing_bytes += framed.len() - 1;
        queues.outgoing.push_front(framed);
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.ended.notify_all();
    }
}

fn cost(event: &EngineEvent) -> usize {
    match event {
        EngineEvent::Message { bytes, .. } => bytes.len() + EVENT_OVERHEAD_OCTETS,
        EngineEvent::View(_) | EngineEvent::Down { .. } | EngineEvent::PutOut | EngineEvent::Notice(_) => {
            EVENT_OVERHEAD_OCTETS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Majorities, QuorumRule};
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    fn shared() -> (mio::Poll, Shared) {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let electorate = Electorate { nodes: Majorities::of(&[]), number: 0, rule: QuorumRule::Majority };
        (poll, Shared::new(waker, electorate).unwrap())
    }

    fn is_woken(shared: &Shared) -> bool {
        let mut fds = [PollFd::new(shared.wake_host.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn refused_messages_are_requested_again_when_there_is_room() {
        let (_poll, shared) = shared();
        let taken = (0..).take_while(|_| shared.offer(vec![1; 100]).is_ok()).count();
        assert_eq!(taken, MAX_OUTGOING_MESSAGES);
        assert_eq!(shared.offer(vec![2]), Err(vec![2]));
        assert_eq!(shared.next_event(), None);
        for _ in 0..MAX_OUTGOING_MESSAGES / 2 - 1 {
            shared.next_outgoing().unwrap();
        }
        assert!(!is_woken(&shared));
        let last = shared.next_outgoing().unwrap();
        assert!(is_woken(&shared));
        assert_eq!(shared.next_event(), None);
        assert!(!is_woken(&shared));
        // A few large ones fill it too.
        shared.put_back(last);
        let taken = (0..).take_while(|_| shared.offer(vec![1; MAX_OUTGOING_OCTETS / 8]).is_ok()).count();
        assert_eq!(taken, 8);
    }

    #[test]
    fn a_host_that_always_has_more_to_fetch_is_served_as_late_as_that_is_old() {
        let (_poll, shared) = shared();
        let long_ago = Instant::now().checked_sub(2 * HOST_TIMEOUT).unwrap();
        let notice = || EngineEvent::Notice(String::new());
        shared.tell([notice(), notice(), notice()]);
        shared.lock().served = long_ago;
        shared.lock().events[0].0 = long_ago;
        shared.next_event().unwrap();
        assert!(!shared.served(), "what it has fetched is old");
        shared.next_event().unwrap();
        assert!(shared.served(), "another event waits");
    }

    #[test]
    fn a_view_makes_what_waits_obsolete_and_the_host_bounds_what_is_fetched() {
        let (_poll, shared) = shared();
        shared.offer(vec![1]).unwrap();
        shared.tell([EngineEvent::Down { reason: String::new() }]);
        assert_eq!(shared.next_outgoing(), None);
        assert!(is_woken(&shared));
        let from = NodeId::new(1).unwrap();
        let message = || EngineEvent::Message { from, bytes: vec![0; MAX_EVENT_OCTETS / 4] };
        shared.tell([message(), message(), message()]);
        assert!(!shared.stall());
        shared.tell([message()]);
        assert!(shared.stall());
        assert_eq!(std::iter::from_fn(|| shared.next_event()).count(), 5);
        assert!(!shared.stall());
    }
}
