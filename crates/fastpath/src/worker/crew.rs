//! Workers that help each other: one SA on many cores.
//!
//! Packets of one SA, of one flow, come by one queue to one worker, its *owner*. It alone reads them, numbers them, checks
//! replays and sends, so that their order and what must not repeat need no lock. What may be done elsewhere is the cipher (see
//! `testudo_ipsec::dataplane::Away`): when a whole burst waits at the port and some worker has nothing to do, the owner lays bursts out
//! on its desk as *errands*, takes the next from the port, and works on what nobody has fetched. Who has nothing of its own to do
//! looks at the desks of the others. What comes back is ended and sent in the order in which it was laid out, and what is to go through the
//! pipeline meanwhile, from the TUN or for the second time, goes to the end of that order: its numbers are later ones.
//!
//! So traffic that is spread over queues costs nothing more, and one flow gets every worker that is idle. Errands circulate:
//! nothing is allocated, and a desk holds so many.

use super::Outcome;
use super::channel::Channel;
use super::classify::Direction;
use super::deliver::Source;
use crate::port::{BURST, FrameBurst};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use testudo_crypto::{prefetch, prefetch_slice};
use testudo_ipsec::dataplane::{Item, Verdict};

/// Errands of one worker at most.
pub(super) const ERRANDS: usize = 24;
/// A burst from a port becomes so many errands as a rule at most: one for each way through the pipeline, and some more of what
/// goes through it for the second time.
const OF_BURST: usize = 8;
/// Errands that lie ready for each worker that has nothing to do.
const AHEAD: usize = 4;
/// Octets of a packet, on average, from which on others are asked: with shorter ones the cipher takes less time than its packets and
/// what is known of them need from one processor's caches to another's. `testudo bench cores` shows it.
const WORTH: usize = 512;
/// Octets that are looked at of each packet besides the cipher.
const HEADERS: usize = 128;
const TRAILER: usize = 32;
/// So many more full bursts than others find nobody idle before a worker that sleeps is woken.
const STARVED: u32 = 16;

/// The desks of all workers.
#[derive(Debug)]
pub struct Crew<A> {
    desks: Box<[Desk<A>]>,
    /// Workers that are awake and have nothing of their own to do.
    spare: AtomicUsize,
}

struct Desk<A> {
    /// Errands that anybody may fetch.
    open: ArrayQueue<Box<Errand<A>>>,
    /// Errands that others have worked on.
    done: ArrayQueue<Box<Errand<A>>>,
    /// Wakes the worker.
    channel: OnceLock<Arc<Channel>>,
    asleep: AtomicBool,
}

impl<A> std::fmt::Debug for Desk<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desk({} open, {} done)", self.open.len(), self.done.len())
    }
}

/// A burst whose cipher anybody may do.
pub(super) struct Errand<A> {
    pub(super) number: u64,
    pub(super) frames: FrameBurst,
    pub(super) verdicts: ArrayVec<Verdict, BURST>,
    /// What the pipeline has begun.
    pub(super) away: Option<A>,
    pub(super) source: Source,
    pub(super) direction: Direction,
}

impl<A> Errand<A> {
    fn blank() -> Box<Self> {
        Box::new(Self {
            number: 0,
            frames: FrameBurst::new(),
            verdicts: ArrayVec::new(),
            away: None,
            source: Source::Again,
            direction: Direction::Inbound,
        })
    }

    /// Asks for what another worker had in its caches: the errand, and where its packets begin.
    fn prefetch(&self) {
        prefetch(self, size_of::<Self>());
        for frame in &self.frames {
            let (head, tail) = frame.data().split_at(HEADERS.min(frame.len().into()));
            prefetch_slice(head);
            // ESP has its padding, which tells where the inner packet ends, at the end.
            prefetch_slice(tail.last_chunk::<TRAILER>().map_or(tail, |end| end));
        }
    }

    /// A stage of the pipeline on the packets.
    pub(super) fn run(&mut self, stage: impl FnOnce(&mut [Item<'_>], &mut Option<A>)) {
        let Self { frames, verdicts, away, source, .. } = self;
        let ingress = source.ingress();
        let item = |(frame, verdict): (_, &Verdict)| {
            let frame: &mut crate::frame::Frame = frame;
            Item { buf: frame.packet(), ingress, verdict: *verdict }
        };
        let mut items: ArrayVec<Item<'_>, BURST> = frames.iter_mut().zip(verdicts.iter()).map(item).collect();
        stage(&mut items, away);
        let outcomes: ArrayVec<Outcome, BURST> = items.iter().map(Outcome::of).collect();
        drop(items);
        for ((frame, verdict), outcome) in frames.iter_mut().zip(verdicts).zip(outcomes) {
            *verdict = outcome.verdict;
            let fits = frame.set_extent(outcome.start.into(), outcome.len.into());
            debug_assert!(fits, "the pipeline works inside the frame");
        }
    }
}

/// True if the cipher of these packets is worth asking others.
fn are_worth_it(frames: &FrameBurst) -> bool {
    let octets: usize = frames.iter().map(|frame| usize::from(frame.len())).sum();
    octets >= WORTH * frames.len()
}

impl<A> Crew<A> {
    /// Desks for so many workers.
    pub fn new(workers: usize) -> Arc<Self> {
        let desk = || Desk {
            open: ArrayQueue::new(ERRANDS),
            done: ArrayQueue::new(ERRANDS),
            channel: OnceLock::new(),
            asleep: AtomicBool::new(false),
        };
        Arc::new(Self { desks: (0..workers).map(|_| desk()).collect(), spare: AtomicUsize::new(0) })
    }

    /// Wakes a worker that sleeps, other than the one at this place.
    #[cold]
    fn wake_one(&self, place: usize) {
        let others = self.desks.iter().enumerate().filter(|(other, _)| *other != place);
        let asleep = others.map(|(_, desk)| desk).find(|desk| desk.asleep.load(Acquire));
        if let Some(channel) = asleep.and_then(|desk| desk.channel.get()) {
            channel.wake_worker();
        }
    }
}

/// A worker's place in a crew, and what it has laid out.
pub(super) struct Seat<A> {
    crew: Arc<Crew<A>>,
    place: usize,
    blanks: Vec<Box<Errand<A>>>,
    /// What has begun and not ended, in order; those that are done are here.
    order: VecDeque<Option<Box<Errand<A>>>>,
    /// Number of the first of these.
    first: u64,
    /// Packets in them.
    packets: usize,
    is_spare: bool,
    starved: u32,
}

impl<A> std::fmt::Debug for Seat<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat({}: {} errands)", self.place, self.order.len())
    }
}

impl<A> Seat<A> {
    /// Takes a place. `None` if the crew has no such place, or it is taken.
    pub(super) fn take(crew: Arc<Crew<A>>, place: usize, channel: &Arc<Channel>) -> Option<Self> {
        crew.desks.get(place)?.channel.set(Arc::clone(channel)).ok()?;
        Some(Self {
            crew,
            place,
            blanks: (0..ERRANDS).map(|_| Errand::blank()).collect(),
            order: VecDeque::with_capacity(ERRANDS),
            first: 0,
            packets: 0,
            is_spare: false,
            starved: 0,
        })
    }

    /// True while errands are out or wait for their turn.
    #[inline]
    pub(super) fn is_sharing(&self) -> bool {
        !self.order.is_empty()
    }

    /// Packets in errands.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }

    /// True if another burst from a port finds room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.blanks.len() >= OF_BURST
    }

    /// An errand for these packets.
    pub(super) fn blank(
        &mut self,
        frames: &mut FrameBurst,
        source: Source,
        direction: Direction,
    ) -> Option<Box<Errand<A>>> {
        let mut errand = self.blanks.pop()?;
        (errand.source, errand.direction) = (source, direction);
        errand.verdicts = frames.iter().map(|_| Verdict::Pending).collect();
        std::mem::swap(&mut errand.frames, frames);
        Some(errand)
    }

    /// True if a burst is to be laid out: because earlier ones are, or because more waits behind it, somebody is idle, and its packets
    /// are long.
    #[inline]
    pub(super) fn shares(&mut self, frames: &FrameBurst, is_full: bool) -> bool {
        if self.is_sharing() {
            return true;
        }
        if !is_full || !are_worth_it(frames) {
            self.starved = self.starved.saturating_sub(1);
            return false;
        }
        if self.crew.spare.load(Relaxed) > 0 {
            return true;
        }
        self.starved += 1;
        if self.starved >= STARVED {
            self.starved = 0;
            self.crew.wake_one(self.place);
        }
        false
    }

    /// Lays out what has begun.
    pub(super) fn lay_out(&mut self, mut errand: Box<Errand<A>>) {
        errand.number = self.first + self.order.len() as u64;
        self.packets += errand.frames.len();
        self.order.push_back(None);
        // A desk has room for all errands of its worker.
        if let Err(errand) = self.desk().open.push(errand) {
            self.put_back(errand);
        }
    }

    fn desk(&self) -> &Desk<A> {
        &self.crew.desks[self.place]
    }

    /// The next errand that nobody has fetched, if more of them lie there than the others will need soon.
    pub(super) fn surplus(&self) -> Option<Box<Errand<A>>> {
        let enough = AHEAD * self.crew.spare.load(Relaxed);
        if self.desk().open.len() > enough { self.own() } else { None }
    }

    /// The next errand that nobody has fetched.
    pub(super) fn own(&self) -> Option<Box<Errand<A>>> {
        self.desk().open.pop()
    }

    /// An errand of somebody else.
    pub(super) fn foreign(&self) -> Option<(usize, Box<Errand<A>>)> {
        let others = (0..self.crew.desks.len()).filter(|place| *place != self.place);
        let (place, errand) =
            others.into_iter().find_map(|place| Some((place, self.crew.desks[place].open.pop()?)))?;
        errand.prefetch();
        Some((place, errand))
    }

    /// Gives an errand back to its owner.
    pub(super) fn give_back(&self, place: usize, errand: Box<Errand<A>>) {
        // A desk has room for all errands of its worker.
        let refused = self.crew.desks[place].done.push(errand);
        debug_assert!(refused.is_ok(), "more errands than there are");
    }

    /// Puts an errand that has been worked on where its turn will find it.
    pub(super) fn put_back(&mut self, errand: Box<Errand<A>>) {
        let at = errand.number - self.first;
        if let Some(slot) = self.order.get_mut(at as usize) {
            *slot = Some(errand);
        }
    }

    /// Takes in what others have done. Answers how many packets.
    pub(super) fn take_in(&mut self) -> usize {
        let mut packets = 0;
        while let Some(errand) = self.desk().done.pop() {
            packets += errand.frames.len();
            errand.prefetch();
            self.put_back(errand);
        }
        packets
    }

    /// The errand whose turn it is, if it has been worked on.
    pub(super) fn next_done(&mut self) -> Option<Box<Errand<A>>> {
        self.order.front()?.as_ref()?;
        let errand = self.order.pop_front()??;
        self.first += 1;
        self.packets -= errand.frames.len();
        Some(errand)
    }

    /// Brings an errand back into circulation.
    pub(super) fn retire(&mut self, mut errand: Box<Errand<A>>) {
        errand.away = None;
        errand.frames.clear();
        self.blanks.push(errand);
    }

    /// Tells the others whether this worker has something of its own to do.
    #[inline]
    pub(super) fn set_spare(&mut self, is_spare: bool) {
        if self.is_spare != is_spare {
            self.is_spare = is_spare;
            match is_spare {
                true => self.crew.spare.fetch_add(1, AcqRel),
                false => self.crew.spare.fetch_sub(1, AcqRel),
            };
        }
    }

    /// The worker is about to sleep, or has woken up.
    pub(super) fn set_asleep(&mut self, is_asleep: bool) {
        if is_asleep {
            self.set_spare(false);
        }
        self.desk().asleep.store(is_asleep, Release);
    }
}

impl<A> Drop for Seat<A> {
    fn drop(&mut self) {
        self.set_spare(false);
    }
}
