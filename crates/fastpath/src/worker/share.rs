//! What a worker of a crew does: lays bursts out, works on them, ends them in order, and helps others.

use super::classify::Direction;
use super::crew::{Crew, Errand, Seat};
use super::deliver::{Context, Source};
use super::{HostPort, Pipeline, Worker};
use crate::frame::Frame;
use crate::port::{BURST, FrameBurst, Port};
use arrayvec::ArrayVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_ipsec::dataplane::Verdict;

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
    pub fn joining(mut self, crew: Arc<Crew<D::Away>>, place: usize) -> Self {
        let seat = Seat::take(crew, place, &self.delivery.channel);
        assert!(seat.is_some(), "place {place} of the crew is not free");
        self.seat = seat;
        self
    }

    /// True while bursts have begun and not ended.
    #[inline]
    pub(super) fn is_sharing(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::is_sharing)
    }

    /// True if ports may be looked at: what comes finds room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.seat.as_ref().is_none_or(Seat::has_room)
    }

    /// A burst from a port through the pipeline, here or with the help of others.
    #[inline]
    pub(super) fn run_shared(
        &mut self,
        frames: &mut FrameBurst,
        direction: Direction,
        source: Source,
        is_full: bool,
    ) {
        if frames.is_empty() {
            return;
        }
        if self.seat.as_mut().is_some_and(|seat| seat.shares(frames, is_full)) {
            self.begin(frames, direction, source);
        } else {
            self.run_here(frames, direction, source);
        }
    }

    /// The first stage. What it leaves to do is laid out.
    pub(super) fn begin(&mut self, frames: &mut FrameBurst, direction: Direction, source: Source) {
        let errand = self.seat.as_mut().and_then(|seat| seat.blank(frames, source, direction));
        let Some(mut errand) = errand else {
            // It overtakes what is away. Room for it is kept, except where most of what comes has to go twice.
            return self.run_here(frames, direction, source);
        };
        let starts: ArrayVec<u16, BURST> = errand.frames.iter().map(Frame::start).collect();
        let (pipeline, delivery) = (&mut self.pipeline, &self.delivery);
        errand.run(|items, away| {
            *away = match direction {
                Direction::Outbound => pipeline.begin_outbound(items, delivery.error_sources(source)),
                Direction::Inbound => pipeline.begin_inbound(items),
            }
        });
        if errand.verdicts.iter().any(|verdict| *verdict != Verdict::Pending) {
            self.deliver_decided(&mut errand, &starts);
        }
        if let Some(seat) = &mut self.seat {
            match errand.away {
                Some(_) => seat.lay_out(errand),
                None => seat.retire(errand),
            }
        }
    }

    /// What the first stage is done with does not wait for the others.
    fn deliver_decided(&mut self, errand: &mut Errand<D::Away>, starts: &[u16]) {
        let Errand { frames, verdicts, source, direction, .. } = errand;
        let (all, decided) = (std::mem::take(frames), std::mem::take(verdicts));
        for ((frame, verdict), start) in all.into_iter().zip(decided).zip(starts) {
            if verdict == Verdict::Pending {
                frames.push(frame);
                verdicts.push(verdict);
                continue;
            }
            let clear = *direction == Direction::Inbound || frame.start() == *start;
            let context = Context { source: *source, direction: *direction, clear };
            self.delivery.deliver(frame, verdict, context);
        }
    }

    /// Works on what others will hardly come to fetch: the more lies on the desk, the less of it is still in this worker's caches.
    #[inline]
    pub(super) fn work_ahead(&mut self) {
        while let Some(mut errand) = self.seat.as_ref().and_then(Seat::surplus) {
            work::<D>(&mut errand);
            if let Some(seat) = &mut self.seat {
                seat.put_back(errand);
            }
            self.end_next();
        }
    }

    /// Works on what nobody has fetched, and ends what has its turn.
    #[inline]
    pub(super) fn work_off(&mut self) {
        if !self.is_sharing() {
            return;
        }
        while let Some(seat) = &mut self.seat {
            let Some(mut errand) = seat.own() else { break };
            work::<D>(&mut errand);
            seat.put_back(errand);
            self.end_next();
        }
        self.end_next();
    }

    /// Ends the errands whose turn it is.
    fn end_next(&mut self) {
        let Some(seat) = &mut self.seat else { return };
        let by_others = seat.take_in();
        self.delivery.counters.helped_by_others.add(by_others as u64);
        while let Some(mut errand) = self.seat.as_mut().and_then(Seat::next_done) {
            let pipeline = &mut self.pipeline;
            errand.run(|items, away| {
                if let Some(away) = away {
                    pipeline.end(away, items);
                }
            });
            self.deliver_errand(&mut errand);
            if let Some(seat) = &mut self.seat {
                seat.retire(errand);
            }
            self.run_again();
        }
    }

    fn deliver_errand(&mut self, errand: &mut Errand<D::Away>) {
        let Errand { frames, verdicts, source, direction, .. } = errand;
        let context =
            Context { source: *source, direction: *direction, clear: *direction == Direction::Inbound };
        for (frame, verdict) in frames.drain(..).zip(verdicts.drain(..)) {
            self.delivery.deliver(frame, verdict, context);
        }
    }

    /// Does an errand of another worker. False if there is none.
    #[inline]
    pub(super) fn help(&mut self) -> bool {
        let Some(seat) = &self.seat else { return false };
        let Some((place, mut errand)) = seat.foreign() else { return false };
        work::<D>(&mut errand);
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
        while self.is_sharing() {
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
        self.seat = None;
    }
}

/// The middle stage.
fn work<D: Pipeline>(errand: &mut Errand<D::Away>) {
    errand.run(|items, away| {
        if let Some(away) = away {
            D::work(away, items);
        }
    });
}
