//! What a worker of a crew does: lays bursts out, works on them, sends them in order, and helps others.

use super::classify::{Arrived, Direction};
use super::crew::{Crew, Errand, Fate, Seat, Task};
use super::deliver::Delivery;
use super::drops::WorkerDrop;
use super::origin::{Context, Source};
use super::{HostPort, Outcome, Pipeline, Worker};
use crate::frame::Frame;
use crate::port::{BURST, FrameBurst, Port};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_ipsec::dataplane::{Item, Turn, Verdict};

/// How long a worker that ends waits for errands that others have.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Turns in a row in which there is nothing to do but to wait for others, before the processor is left to them: about as long as
/// they need for a burst.
const PATIENCE: u32 = 4096;
/// Looks at what others have before the processor is left to them.
const LOOKS: u32 = 1000;

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// The worker as a member of a crew, at a place of its own.
    ///
    /// # Panics
    /// If the crew has no such place, or it is taken.
    #[must_use]
    pub fn joining(mut self, crew: Arc<Crew>, place: usize) -> Self {
        let seat = Seat::take(crew, place, &self.delivery.channel, self.delivery.pool.total());
        assert!(seat.is_some(), "place {place} of the crew is not free");
        self.seat = seat;
        self
    }

    /// True while errands are out.
    #[inline]
    pub(super) fn is_stealing(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::is_stealing)
    }

    /// True if ports may be looked at: what comes finds room, and does not go far ahead of pieces.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let is_apart = self.is_stealing() && self.delivery.is_splitting();
        self.seat.as_ref().is_none_or(Seat::has_room) && !is_apart
    }

    /// Lays a burst from a port out, unread, if that is of use. False if it is still there.
    #[inline]
    pub(super) fn steals(&mut self, received: &mut FrameBurst, place: usize) -> bool {
        let is_full = received.is_full() && !self.delivery.is_splitting();
        if !self.seat.as_mut().is_some_and(|seat| seat.steals(is_full)) {
            return false;
        }
        // There are at most `MOST_PORTS`.
        let (place, rules) = (place as u8, self.rules(place));
        self.lay_out(received, Task::Received { place, rules })
    }

    /// Lays out what belongs behind all that is out already. Room for it is kept, except where most of what comes has to go twice: then it
    /// waits.
    pub(super) fn begin(&mut self, frames: &mut FrameBurst, direction: Direction, source: Source) {
        let is_backed_up = self.seat.as_ref().is_some_and(Seat::is_backed_up);
        if (is_backed_up || !self.lay_out(frames, Task::Packets { source, direction }))
            && let Some(seat) = &mut self.seat
        {
            seat.put_off(frames, source, direction);
        }
    }

    /// Lays out what waits, as far as errands have come back.
    #[inline]
    fn catch_up(&mut self) {
        let mut burst = FrameBurst::new();
        while let Some((source, direction)) =
            self.seat.as_mut().and_then(|seat| seat.take_waiting(&mut burst))
        {
            self.lay_out(&mut burst, Task::Packets { source, direction });
        }
    }

    fn lay_out(&mut self, frames: &mut FrameBurst, task: Task) -> bool {
        let Some(seat) = &mut self.seat else { return false };
        let sources = self.delivery.error_sources(task.source());
        let Some(errand) = seat.blank(frames, task, sources) else { return false };
        seat.lay_out(errand);
        true
    }

    /// Works on what others will hardly come to fetch: the more lies on the desk, the less of it is still in this worker's caches.
    #[inline]
    pub(super) fn work_ahead(&mut self) {
        while let Some(errand) = self.seat.as_ref().and_then(Seat::surplus) {
            self.work_on_own(errand);
        }
    }

    /// Works on what nobody has fetched, and ends what has its turn.
    #[inline]
    pub(super) fn work_off(&mut self) {
        if !self.is_stealing() {
            return;
        }
        while let Some(errand) = self.seat.as_ref().and_then(Seat::own) {
            self.work_on_own(errand);
        }
        self.end_next();
    }

    fn work_on_own(&mut self, mut errand: Box<Errand>) {
        if let Some(seat) = &mut self.seat {
            work(&mut errand, seat, seat.place(), (&mut self.pipeline, &mut self.delivery));
            seat.put_back(errand);
        }
        self.end_next();
    }

    /// Sends on the errands whose turn it is.
    fn end_next(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        let by_others = seat.take_in();
        self.delivery.counters.helped_by_others.add(by_others as u64);
        while let Some(mut errand) = self.seat.as_mut().and_then(Seat::next_done) {
            let (mut early, source) = (FrameBurst::new(), errand.task.source());
            self.deliver_errand(&mut errand, &mut early);
            if let Some(seat) = &mut self.seat {
                seat.retire(errand);
            }
            self.catch_up();
            self.run_here(&mut early, Direction::Inbound, source);
            self.run_again();
        }
    }

    /// `early` gets what a helper has not found the SA of. This worker knows it no better, but counts what it holds.
    fn deliver_errand(&mut self, errand: &mut Errand, early: &mut FrameBurst) {
        let Errand { frames, fates, foreign, .. } = errand;
        for (frame, fate) in frames.drain(..).zip(fates.drain(..)) {
            match fate {
                Fate::Lost(reason) => self.delivery.discard(frame, reason),
                Fate::Decided { verdict: Verdict::Early(_), .. } if *foreign => early.push(frame),
                Fate::Decided { verdict, context } => {
                    self.delivery.deliver(frame, verdict, context, &self.pipeline);
                }
            }
        }
    }

    /// Does an errand of another worker. False if there is none.
    #[inline]
    pub(super) fn help(&mut self) -> bool {
        let Some(seat) = &self.seat else { return false };
        let Some((place, mut errand)) = seat.foreign() else { return false };
        work(&mut errand, seat, place, (&mut self.pipeline, &mut self.delivery));
        if let Some((packets, octets)) = early_of(&errand) {
            self.pipeline.pass_early(packets, octets);
        }
        self.delivery.counters.helped_others.add(errand.frames.len() as u64);
        seat.give_back(place, errand);
        true
    }

    /// Others have what there is to do. From time to time the processor is left to them: they may have none.
    pub(super) fn wait_for_others(&mut self) {
        self.waited = self.waited.wrapping_add(1);
        if self.waited.is_multiple_of(PATIENCE) {
            std::thread::yield_now();
        }
    }

    /// Ends everything that has begun: what comes now must not meet it.
    #[cold]
    pub(super) fn end_all(&mut self, patience: Option<Duration>) {
        let begun = Instant::now();
        let mut looks = 0;
        while self.is_stealing() {
            self.work_off();
            let stopped = self.delivery.channel.is_stopped();
            let limit = if stopped { Some(LAST_WAIT) } else { patience };
            if limit.is_some_and(|limit| begun.elapsed() > limit) {
                return;
            }
            looks += 1;
            match looks % LOOKS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Brings home what can be had of what has begun.
    pub(super) fn leave_crew(&mut self) {
        self.end_all(Some(LAST_WAIT));
        while let Some(frame) = self.seat.as_mut().and_then(Seat::give_up_waiting) {
            self.delivery.discard(frame, WorkerDrop::Resubmitted);
        }
        self.seat = None;
    }
}

/// Packets whose SA nobody has heard of, and their octets: they wait at the owner, who asks for it once more.
fn early_of(errand: &Errand) -> Option<(u64, u64)> {
    let is_early = |fate: &Fate| matches!(fate, Fate::Decided { verdict: Verdict::Early(_), .. });
    let early = errand.frames.iter().zip(&errand.fates).filter(|(_, fate)| is_early(fate));
    early.map(|(frame, _)| (1, u64::from(frame.len()))).reduce(|all, one| (all.0 + one.0, all.1 + one.1))
}

/// An errand of the desk at that place through a pipeline.
pub(super) fn work<P: Port, H: HostPort, D: Pipeline>(
    errand: &mut Errand,
    seat: &Seat,
    place: usize,
    (pipeline, delivery): (&mut D, &mut Delivery<P, H>),
) {
    sort(errand, delivery);
    let [mut numbering, mut accepting] = seat.turns(place, errand.number);
    let Errand { frames, fates, sources, .. } = errand;
    let (mut outbound, mut inbound, mut clear) = (Burst::new(), Burst::new(), Burst::new());
    for (frame, fate) in frames.iter_mut().zip(fates.iter()) {
        match fate {
            Fate::Lost(_) => {}
            Fate::Decided { context: Context { source, direction, .. }, .. } => {
                let item = Item::new(frame.packet(), source.ingress());
                match direction {
                    Direction::Outbound => outbound.push(item),
                    Direction::Inbound => inbound.push(item),
                    Direction::Clear => clear.push(item),
                }
            }
        }
    }
    // Who has nothing to number, or to accept, waits for nobody.
    if inbound.is_empty() {
        accepting.end();
    }
    if !outbound.is_empty() {
        pipeline.outbound_in_turn(&mut outbound, sources, &mut numbering);
    }
    numbering.end();
    if !inbound.is_empty() {
        pipeline.inbound_in_turn(&mut inbound, &mut accepting);
    }
    accepting.end();
    if !clear.is_empty() {
        pipeline.judge(&mut clear, sources);
    }
    let [mut outbound, mut inbound, mut clear] =
        [outbound, inbound, clear].map(|burst| outcomes(burst).into_iter());
    for (frame, fate) in frames.iter_mut().zip(fates) {
        let Fate::Decided { verdict, context } = fate else { continue };
        let outcome = match context.direction {
            Direction::Outbound => outbound.next(),
            Direction::Inbound => inbound.next(),
            Direction::Clear => clear.next(),
        };
        let Some(outcome) = outcome else { continue };
        context.clear = context.direction != Direction::Outbound || frame.start() == outcome.start;
        context.inside = outcome.inside;
        *verdict = outcome.verdict;
        let fits = frame.set_extent(outcome.start.into(), outcome.len.into());
        debug_assert!(fits, "the pipeline works inside the frame");
    }
}

type Burst<T> = ArrayVec<T, BURST>;

fn outcomes(items: Burst<Item<'_>>) -> Burst<Outcome> {
    items.iter().map(Outcome::of).collect()
}

/// Which way each frame goes.
fn sort<P: Port, H: HostPort>(errand: &mut Errand, delivery: &mut Delivery<P, H>) {
    let Errand { frames, task, fates, .. } = errand;
    let pending = |source, direction| {
        let context = Context { source, direction, clear: false, inside: None };
        Fate::Decided { verdict: Verdict::Pending, context }
    };
    *fates = match *task {
        Task::Packets { source, direction } => frames.iter().map(|_| pending(source, direction)).collect(),
        Task::Received { place, rules } => {
            let from = |flooded| Source::Port { place, flooded, joined: false };
            let fate = |frame: &mut Frame| match delivery.admit(frame, rules) {
                Ok(Arrived::Inbound) => pending(from(false), Direction::Inbound),
                Ok(Arrived::Clear) => pending(from(false), Direction::Clear),
                Ok(Arrived::Outbound) => pending(from(false), Direction::Outbound),
                Ok(Arrived::OutboundFlooded) => pending(from(true), Direction::Outbound),
                Err(reason) => Fate::Lost(reason),
            };
            frames.iter_mut().map(fate).collect()
        }
    };
}
