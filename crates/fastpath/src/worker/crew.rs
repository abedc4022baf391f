//! Workers that help each other: one SA on many cores.
//!
//! Packets of one SA, of one flow, come by one queue to one worker, its *owner*. It alone takes them from the port and sends
//! them. All between may be done elsewhere: when a whole burst waits at the port and some worker has nothing to do, the owner lays
//! bursts out on its desk as *errands*, unread, takes the next from the port, and works on what nobody has fetched. Who has nothing of
//! its own to do looks at the desks of the others, and takes an errand through its own pipeline: look-up, cipher and all. Numbers and
//! what replay windows say are taken in the order in which errands were laid out (see [`order`](super::order)). What
//! comes back is sent in that order too; and what is to go through the pipeline meanwhile, from the TUN or for the second time, goes to its
//! end, and waits where all errands are out.
//!
//! An SA that one worker knows and the other does not would have packets of one errand put off while those behind them are accepted. So an
//! owner lays out only while all others have applied as many commands as it has, and who has applied more fetches nothing: as commands are
//! the same for all, and none is applied while errands are out, an errand is worked on by those who know what its owner does.
//!
//! So traffic that is spread over queues costs nothing more, and one flow gets every worker that is idle. Errands circulate:
//! nothing is allocated, and a desk holds so many.

use super::channel::Channel;
use super::classify::{Direction, Rules};
use super::drops::WorkerDrop;
use super::order::{Order, Place};
use super::origin::{Context, Kept, Source};
use crate::frame::Frame;
use crate::port::{BURST, FrameBurst};
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use testudo_crypto::{prefetch, prefetch_slice};
use testudo_ipsec::dataplane::{Sources, Verdict};

/// Errands of one worker at most.
pub(super) const ERRANDS: usize = 24;
/// A burst from a port becomes so many errands as a rule at most: one for each way through the pipeline, and some more of what
/// goes through it for the second time.
const OF_BURST: usize = 8;
/// Errands that lie ready for each worker that has nothing to do.
const AHEAD: usize = 4;
/// Octets of a packet that whoever fetches it looks at first.
const HEADERS: usize = 128;
/// So many more full bursts than others find nobody idle before a worker that sleeps is woken.
const STARVED: u32 = 16;

/// The desks of all workers.
#[derive(Debug)]
pub struct Crew {
    desks: Box<[Desk]>,
    /// Workers that are awake and have nothing of their own to do.
    spare: AtomicUsize,
    /// A worker has panicked over an errand.
    broken: AtomicBool,
}

struct Desk {
    /// Errands that anybody may fetch.
    open: ArrayQueue<Box<Errand>>,
    /// Errands that others have worked on.
    done: ArrayQueue<Box<Errand>>,
    /// Wakes the worker.
    channel: OnceLock<Arc<Channel>>,
    asleep: AtomicBool,
    /// Commands that the worker has applied. Who is not there keeps nobody waiting.
    applied: AtomicU64,
    /// In which its errands are numbered.
    numbering: Order,
    /// In which replay windows are asked about them.
    accepting: Order,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desk({} open, {} done)", self.open.len(), self.done.len())
    }
}

/// A burst that anybody may take through the pipeline.
pub(super) struct Errand {
    pub(super) number: u64,
    pub(super) frames: FrameBurst,
    pub(super) task: Task,
    /// Of ICMP errors about its packets.
    pub(super) sources: Sources,
    /// What has become of each packet.
    pub(super) fates: ArrayVec<Fate, BURST>,
    /// Another worker has done it.
    pub(super) foreign: bool,
}

/// What an errand's frames are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// As they came by the port at this place of their owner's.
    Received { place: u8, rules: Rules },
    /// IP packets.
    Packets { source: Source, direction: Direction },
}

impl Task {
    /// Where its packets come from; whether all nodes have them may differ.
    pub(super) fn source(self) -> Source {
        match self {
            Self::Received { place, .. } => Source::Port { place, flooded: false, joined: false },
            Self::Packets { source, .. } => source,
        }
    }
}

/// What has become of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The pipeline did not get it.
    Lost(WorkerDrop),
    /// It did.
    Decided { verdict: Verdict, context: Context },
}

impl Errand {
    fn blank() -> Box<Self> {
        Box::new(Self {
            number: 0,
            frames: FrameBurst::new(),
            task: Task::Packets { source: Source::Again, direction: Direction::Inbound },
            sources: Sources { v4: None, v6: None },
            fates: ArrayVec::new(),
            foreign: false,
        })
    }

    /// Asks for what another worker had in its caches: the errand, and where its packets begin.
    fn prefetch(&self) {
        prefetch(self, size_of::<Self>());
        for frame in &self.frames {
            prefetch_slice(frame.data().get(..HEADERS).unwrap_or(frame.data()));
        }
    }
}

impl Crew {
    /// Desks for so many workers.
    pub fn new(workers: usize) -> Arc<Self> {
        let desk = || Desk {
            open: ArrayQueue::new(ERRANDS),
            done: ArrayQueue::new(ERRANDS),
            channel: OnceLock::new(),
            asleep: AtomicBool::new(false),
            applied: AtomicU64::new(u64::MAX),
            numbering: Order::new(),
            accepting: Order::new(),
        };
        let desks = (0..workers).map(|_| desk()).collect();
        Arc::new(Self { desks, spare: AtomicUsize::new(0), broken: AtomicBool::new(false) })
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
pub(super) struct Seat {
    crew: Arc<Crew>,
    place: usize,
    blanks: ArrayVec<Box<Errand>, ERRANDS>,
    /// What has begun and not ended, in order; those that are done are here.
    order: VecDeque<Option<Box<Errand>>>,
    /// Number of the first of these.
    first: u64,
    /// Packets in them.
    packets: usize,
    is_spare: bool,
    starved: u32,
    /// Commands that have been applied, and whether all others are known to have applied as many.
    applied: u64,
    is_in_step: bool,
    /// What waits for errands to come back, as many packets as there are frames at most.
    waiting: VecDeque<Kept>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seat({}: {} errands)", self.place, self.order.len())
    }
}

impl Seat {
    /// Takes a place before the first command comes, for a worker with so many frames. `None` if the crew has no such place, or it is
    /// taken.
    pub(super) fn take(crew: Arc<Crew>, place: usize, channel: &Arc<Channel>, frames: usize) -> Option<Self> {
        let desk = crew.desks.get(place)?;
        desk.channel.set(Arc::clone(channel)).ok()?;
        desk.applied.store(0, Release);
        Some(Self {
            crew,
            place,
            blanks: (0..ERRANDS).map(|_| Errand::blank()).collect(),
            order: VecDeque::with_capacity(ERRANDS),
            first: 0,
            packets: 0,
            is_spare: false,
            starved: 0,
            applied: 0,
            is_in_step: false,
            waiting: VecDeque::with_capacity(frames),
        })
    }

    /// True while errands are out or wait for their turn.
    #[inline]
    pub(super) fn is_stealing(&self) -> bool {
        !self.order.is_empty()
    }

    /// Packets in errands, and those that wait for one.
    pub(super) fn packets(&self) -> usize {
        self.packets + self.waiting.len()
    }

    /// True if another burst from a port finds room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.blanks.len() >= OF_BURST
    }

    /// An errand for these packets. `None` if all are out.
    pub(super) fn blank(
        &mut self,
        frames: &mut FrameBurst,
        task: Task,
        sources: &Sources,
    ) -> Option<Box<Errand>> {
        let mut errand = self.blanks.pop()?;
        (errand.task, errand.sources, errand.foreign) = (task, *sources, false);
        std::mem::swap(&mut errand.frames, frames);
        Some(errand)
    }

    /// True if a burst is to be laid out: because earlier ones are, or because more waits behind it and somebody is idle.
    #[inline]
    pub(super) fn steals(&mut self, is_full: bool) -> bool {
        if self.is_stealing() {
            return true;
        }
        if !is_full {
            self.starved = self.starved.saturating_sub(1);
            return false;
        }
        if self.crew.spare.load(Relaxed) > 0 {
            return self.is_in_step();
        }
        self.starved += 1;
        if self.starved >= STARVED {
            self.starved = 0;
            self.crew.wake_one(self.place);
        }
        false
    }

    /// True if all others have applied the commands that this worker has.
    #[inline]
    fn is_in_step(&mut self) -> bool {
        if !self.is_in_step {
            self.is_in_step = self.crew.desks.iter().all(|desk| desk.applied.load(Acquire) >= self.applied);
        }
        self.is_in_step
    }

    /// A command has been applied, while no errands were out.
    pub(super) fn count_command(&mut self) {
        self.applied += 1;
        self.is_in_step = false;
        self.desk().applied.store(self.applied, Release);
    }

    /// True if packets wait, behind which all others belong.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Has packets wait.
    #[cold]
    pub(super) fn put_off(&mut self, frames: &mut FrameBurst, source: Source, direction: Direction) {
        self.waiting.extend(frames.drain(..).map(|frame| (frame, source, direction)));
    }

    /// Takes the next packets of one kind for which there is an errand now.
    pub(super) fn take_waiting(&mut self, burst: &mut FrameBurst) -> Option<(Source, Direction)> {
        if self.blanks.is_empty() {
            return None;
        }
        let &(_, source, direction) = self.waiting.front()?;
        let same = |next: &mut Kept| (next.1, next.2) == (source, direction);
        while !burst.is_full()
            && let Some((frame, ..)) = self.waiting.pop_front_if(same)
        {
            burst.push(frame);
        }
        Some((source, direction))
    }

    /// Takes a packet that will find no errand any more.
    pub(super) fn give_up_waiting(&mut self) -> Option<Frame> {
        self.waiting.pop_front().map(|(frame, ..)| frame)
    }

    /// Lays an errand out.
    pub(super) fn lay_out(&mut self, mut errand: Box<Errand>) {
        errand.number = self.first + self.order.len() as u64;
        self.packets += errand.frames.len();
        self.order.push_back(None);
        // A desk has room for all errands of its worker.
        if let Err(errand) = self.desk().open.push(errand) {
            self.put_back(errand);
        }
    }

    fn desk(&self) -> &Desk {
        &self.crew.desks[self.place]
    }

    /// The next errand that nobody has fetched, if more of them lie there than the others will need soon.
    pub(super) fn surplus(&self) -> Option<Box<Errand>> {
        let enough = AHEAD * self.crew.spare.load(Relaxed);
        if self.desk().open.len() > enough { self.own() } else { None }
    }

    /// The next errand that nobody has fetched.
    pub(super) fn own(&self) -> Option<Box<Errand>> {
        self.desk().open.pop()
    }

    /// An errand of somebody else who has heard of all that this worker has.
    pub(super) fn foreign(&self) -> Option<(usize, Box<Errand>)> {
        let others = self.crew.desks.iter().enumerate().filter(|(place, _)| *place != self.place);
        // Asked first: what its owner has applied since, this worker had applied before the owner laid it out.
        let mut known = others.filter(|(_, desk)| desk.applied.load(Acquire) >= self.applied);
        let (place, errand) = known.find_map(|(place, desk)| Some((place, desk.open.pop()?)))?;
        errand.prefetch();
        Some((place, errand))
    }

    /// The turns of an errand of the desk at this place: to number its packets, and to accept them.
    pub(super) fn turns(&self, place: usize, number: u64) -> [Place<'_>; 2] {
        let Desk { numbering, accepting, .. } = &self.crew.desks[place];
        [numbering, accepting].map(|order| Place::new(order, number, &self.crew.broken))
    }

    /// This worker's place.
    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// Gives an errand back to its owner.
    pub(super) fn give_back(&self, place: usize, mut errand: Box<Errand>) {
        errand.foreign = true;
        // A desk has room for all errands of its worker.
        let refused = self.crew.desks[place].done.push(errand);
        debug_assert!(refused.is_ok(), "more errands than there are");
    }

    /// Puts an errand that has been worked on where its turn will find it.
    pub(super) fn put_back(&mut self, errand: Box<Errand>) {
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
    pub(super) fn next_done(&mut self) -> Option<Box<Errand>> {
        self.order.front()?.as_ref()?;
        let errand = self.order.pop_front()??;
        self.first += 1;
        self.packets -= errand.frames.len();
        Some(errand)
    }

    /// Brings an errand back into circulation.
    pub(super) fn retire(&mut self, mut errand: Box<Errand>) {
        errand.frames.clear();
        errand.fates.clear();
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

impl Drop for Seat {
    fn drop(&mut self) {
        self.set_spare(false);
        self.desk().applied.store(u64::MAX, Release);
    }
}
