//! What this node publishes: updates are gathered into batches, and batches are kept until they
//! have been delivered here.

use super::frame::SEALING_OCTETS;
use std::collections::VecDeque;
use zeroize::Zeroizing;

/// Names a published update. Later ones have higher tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The length of the longest sealed message. A longer update goes alone.
const MAX_BATCH_OCTETS: usize = 16 << 10;
/// The octets before an entry: its kind and its length.
const ENTRY_HEADER_OCTETS: usize = 5;

/// One entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// An update of the layer above.
    Update(&'a [u8]),
    /// A request for a lease.
    Lease(&'a [u8]),
    /// A step of a change of the roster.
    Roster(&'a [u8]),
}

/// Entries that leave as one message.
#[derive(Clone, Default)]
pub(super) struct Batch {
    pub(super) plain: Zeroizing<Vec<u8>>,
    /// The last update in it, if any.
    pub(super) last: Option<Ticket>,
    /// It is for nodes that are brought up to date, and says nothing new to the others.
    pub(super) bulk: bool,
    /// It is for the present view only: in a later one there may be members that cannot read it.
    only_now: bool,
}

/// Batches in order: the open one, those that are closed, and those that are sent but not delivered
/// here yet.
#[derive(Default)]
pub(super) struct Outbox {
    next: u64,
    open: Batch,
    closed: VecDeque<Batch>,
    /// Each with its serial.
    sent: VecDeque<(u64, Batch)>,
    /// The last update of this node that was delivered here.
    last_delivered: Option<Ticket>,
}

impl Batch {
    fn push(&mut self, kind: u8, bytes: &[u8]) {
        self.plain.push(kind);
        self.plain.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.plain.extend(bytes);
    }
}

/// The entries of a batch; `None` where it cannot be read any further.
pub(super) fn entries(mut plain: &[u8]) -> impl Iterator<Item = Option<Entry<'_>>> {
    let mut read = move || {
        let (head, rest) = plain.split_first_chunk::<ENTRY_HEADER_OCTETS>()?;
        let [kind, len @ ..] = *head;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(len)).ok()?)?;
        plain = rest;
        Some(match kind {
            0 => Entry::Update(bytes),
            1 => Entry::Lease(bytes),
            2 => Entry::Roster(bytes),
            _ => return None,
        })
    };
    let mut broken = plain.is_empty();
    let total = plain.len();
    let mut taken = 0;
    std::iter::from_fn(move || {
        if broken || taken == total {
            return None;
        }
        let entry = read();
        broken = entry.is_none();
        let len = |(Entry::Update(bytes) | Entry::Lease(bytes) | Entry::Roster(bytes))| bytes.len();
        taken += entry.map_or(0, |entry| ENTRY_HEADER_OCTETS + len(entry));
        Some(entry)
    })
}

impl Outbox {
    /// Adds an update to the open batch.
    pub(super) fn publish(&mut self, update: &[u8]) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.add(0, update);
        self.open.last = Some(ticket);
        ticket
    }

    /// Adds an update that says nothing new to nodes that hold the state. It is a batch of its own.
    pub(super) fn publish_bulk(&mut self, update: &[u8]) -> Ticket {
        self.close();
        self.open.bulk = true;
        let ticket = self.publish(update);
        self.close();
        ticket
    }

    /// Adds a request for a lease.
    pub(super) fn lease(&mut self, bytes: &[u8]) {
        self.add(1, bytes);
    }

    /// Adds a step of a change of the roster. It is a batch of its own.
    pub(super) fn roster(&mut self, bytes: &[u8]) {
        self.close();
        self.open.only_now = true;
        self.add(2, bytes);
        self.close();
    }

    fn add(&mut self, kind: u8, bytes: &[u8]) {
        if self.open.plain.len() + ENTRY_HEADER_OCTETS + bytes.len() + SEALING_OCTETS > MAX_BATCH_OCTETS {
            self.close();
        }
        self.open.push(kind, bytes);
    }

    /// Nothing more goes into the open batch.
    pub(super) fn close(&mut self) {
        if !self.open.plain.is_empty() {
            self.closed.push_back(std::mem::take(&mut self.open));
        }
    }

    /// The next closed batch, which counts as sent with this serial.
    pub(super) fn send(&mut self, serial: u64) -> Option<&Batch> {
        let batch = self.closed.pop_front()?;
        self.sent.push_back((serial, batch));
        self.sent.back().map(|(_, batch)| batch)
    }

    /// The message with this serial has been delivered here. Gives the last update in it.
    pub(super) fn delivered(&mut self, serial: u64) -> Option<Ticket> {
        let at = self.sent.iter().position(|(sent, _)| *sent == serial)?;
        let (_, batch) = self.sent.remove(at)?;
        // An engine has changed the order of our messages. Those that this one has overtaken are
        // ignored when they come, and so go out again.
        let overtaken: Vec<_> = self.sent.drain(..at).collect();
        overtaken.into_iter().rev().for_each(|(_, batch)| self.closed.push_front(batch));
        self.last_delivered = batch.last.or(self.last_delivered);
        batch.last
    }

    /// The last update of this node that was delivered here, as long as it counts.
    pub(super) fn last_delivered(&self) -> Option<Ticket> {
        self.last_delivered
    }

    /// A view is over: what was sent in it and not delivered goes out again, before all else.
    pub(super) fn again(&mut self) {
        while let Some((_, batch)) = self.sent.pop_back() {
            self.closed.push_front(batch);
        }
        self.closed.retain(|batch| !batch.only_now);
    }

    /// Forgets all batches: they tell of a state that is void.
    pub(super) fn clear(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    /// The number of batches that are sent and not delivered here.
    pub(super) fn in_flight(&self) -> usize {
        self.sent.len()
    }

    /// The number of batches that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.closed.len() + usize::from(!self.open.plain.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn updates(batch: &Batch) -> Vec<Vec<u8>> {
        let read = |entry| match entry {
            Some(Entry::Update(bytes)) => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        entries(&batch.plain).map(read).collect()
    }

    proptest! {
        #[test]
        fn batches_hold_what_was_published_in_order_and_within_bounds(
            lengths in prop::collection::vec(0_usize..40_000, 0..30),
        ) {
            let mut outbox = Outbox::default();
            let published: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(index, len)| vec![index as u8; *len]).collect();
            let tickets: Vec<Ticket> = published.iter().map(|update| outbox.publish(update)).collect();
            prop_assert!(tickets.windows(2).all(|pair| pair[0] < pair[1]));
            outbox.close();
            let mut out = Vec::new();
            let mut serial = 0;
            while let Some(batch) = outbox.send(serial) {
                let held = updates(batch);
                prop_assert!(batch.plain.len() + SEALING_OCTETS <= MAX_BATCH_OCTETS || held.len() == 1);
                out.extend(held);
                prop_assert_eq!(batch.last, tickets.get(out.len() - 1).copied());
                serial += 1;
            }
            prop_assert_eq!(out, published);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let read: Vec<_> = entries(&bytes).collect();
            prop_assert!(read.iter().rev().skip(1).all(Option::is_some), "nothing follows what is broken");
        }
    }

    #[test]
    fn a_sealed_message_is_filled_up_to_its_longest() {
        let room = MAX_BATCH_OCTETS - SEALING_OCTETS - 2 * ENTRY_HEADER_OCTETS - 100;
        for (octets, batches) in [(room, 1), (room + 1, 2)] {
            let mut outbox = Outbox::default();
            outbox.publish(&[1; 100]);
            outbox.publish(&vec![2; octets]);
            assert_eq!(outbox.waiting(), batches);
        }
    }

    #[test]
    fn a_step_of_a_change_of_the_roster_is_for_one_view() {
        let mut outbox = Outbox::default();
        outbox.publish(&[1]);
        outbox.roster(&[2]);
        outbox.publish(&[3]);
        outbox.roster(&[4]);
        outbox.close();
        let sent = outbox.send(0).map(updates).unwrap();
        let step = outbox.send(1).map(|batch| batch.plain.clone()).unwrap();
        assert_eq!(sent, [[1]]);
        assert_eq!(entries(&step).collect::<Vec<_>>(), [Some(Entry::Roster(&[2]))]);
        outbox.again();
        let again: Vec<_> = std::iter::from_fn(|| outbox.send(9).map(updates)).collect();
        assert_eq!(again, [[[1]], [[3]]]);
    }

    #[test]
    fn what_was_not_delivered_goes_out_again_in_order() {
        let mut outbox = Outbox::default();
        for update in [b"a", b"b", b"c"] {
            outbox.publish(update);
            outbox.close();
        }
        outbox.send(0);
        outbox.send(1);
        assert_eq!(outbox.delivered(0), Some(Ticket(1)));
        assert_eq!((outbox.delivered(0), outbox.last_delivered()), (None, Some(Ticket(1))));
        outbox.again();
        let again: Vec<_> = (0..2).map(|serial| updates(outbox.send(serial).unwrap())).collect();
        assert_eq!(again, [[b"b".to_vec()], [b"c".to_vec()]]);
        assert_eq!((outbox.in_flight(), outbox.waiting()), (2, 0));
        outbox.roster(b"closed");
        assert_eq!(outbox.waiting(), 1);
        outbox.lease(b"open");
        assert_eq!(outbox.waiting(), 2);
        outbox.clear();
        assert_eq!((outbox.in_flight(), outbox.last_delivered()), (0, None));
        assert_eq!(outbox.publish(b"d"), Ticket(4), "tickets are not used again");
    }
}
