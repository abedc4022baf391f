//! Packets for the kernel, collected during a turn. TCP segments of one flow that follow each other
//! go to it as one packet.

use super::counters::WorkerCounters;
use super::drops::WorkerDrop;
use super::host::HostPort;
use crate::frame::{Frame, FramePool};
use crate::port::{BURST, FrameBurst};
use crate::tun::MAX_PIECES;
use arrayvec::ArrayVec;
use std::io::{self, IoSlice};
use testudo_wire::offload::{Look, Offload, Train, look};

/// Frames that go to the kernel in one call.
#[derive(Debug)]
struct Load {
    /// `None` for a packet that goes alone.
    train: Option<Train>,
    first: usize,
    last: usize,
}

/// The packets that go to the kernel at the end of the turn.
#[derive(Debug, Default)]
pub(super) struct Outbox(FrameBurst);

impl Outbox {
    /// True if [`Outbox::flush`] must be called before the next packet.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a packet. There must be room.
    #[inline]
    pub(super) fn push(&mut self, frame: Frame) {
        self.0.push(frame);
    }

    /// Drops all packets for this reason.
    #[cold]
    pub(super) fn discard(&mut self, reason: WorkerDrop, pool: &mut FramePool, counters: &WorkerCounters) {
        for frame in self.0.drain(..) {
            counters.count_drop(reason);
            pool.give(frame);
        }
    }

    /// Writes all packets to the kernel, those of each flow in their order.
    pub(super) fn flush<H: HostPort>(
        &mut self,
        host: &mut H,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) {
        let (loads, place) = plan(&self.0);
        for (number, load) in loads.iter().enumerate() {
            let span = load.first..=load.last;
            let members = span.clone().filter(|at| usize::from(place[*at]) == number);
            let count = load.train.map_or(1, |train| train.segments() as u64);
            match write(host, load, members.map(|at| &self.0[at])) {
                Ok(()) => {
                    counters.to_tun.add(1);
                    counters.merged.add(count - 1);
                }
                Err(_) => (0..count).for_each(|_| counters.count_drop(WorkerDrop::TunWriteFailed)),
            }
        }
        self.0.drain(..).for_each(|frame| pool.give(frame));
    }
}

/// Which frames go together in one call, and the load of each frame.
fn plan(frames: &FrameBurst) -> (ArrayVec<Load, BURST>, [u8; BURST]) {
    let mut loads: ArrayVec<Load, BURST> = ArrayVec::new();
    let mut place = [0; BURST];
    // A single packet has no follower.
    let is_one = frames.len() == 1;
    for (at, frame) in frames.iter().enumerate() {
        let packet = frame.data();
        let (flow, segment) = match if is_one { Look::Other } else { look(packet) } {
            Look::Other => (None, None),
            Look::Alone(flow) => (Some(flow), None),
            Look::Mergeable(flow, segment) => (Some(flow), Some((flow, segment))),
        };
        // The latest load of the flow: earlier ones are closed.
        let of_flow = |load: &Load| load.train.is_some_and(|train| Some(train.flow()) == flow.as_ref());
        let former = flow.and_then(|_| loads.iter().rposition(of_flow));
        let joined = former.filter(|former| {
            let load = &mut loads[*former];
            let Some(train) = &mut load.train else { return false };
            let head = frames[load.first].data();
            let joins = segment.is_some_and(|(flow, segment)| train.append(head, &flow, packet, &segment));
            if joins {
                load.last = at;
            } else {
                train.close();
            }
            joins
        });
        let number = joined.unwrap_or_else(|| {
            let train = segment.map(|(flow, segment)| Train::new(flow, segment));
            loads.push(Load { train, first: at, last: at });
            loads.len() - 1
        });
        // Below `BURST`.
        place[at] = number as u8;
    }
    (loads, place)
}

#[inline]
fn write<'a, H: HostPort>(
    host: &mut H,
    load: &Load,
    mut members: impl Iterator<Item = &'a Frame>,
) -> io::Result<()> {
    let Some(head) = members.next() else { return Ok(()) };
    let merged = load.train.filter(|train| train.segments() > 1).and_then(|train| train.headers(head.data()));
    let Some((headers, len, offload)) = merged else {
        return host.write(Offload::None, &[IoSlice::new(head.data())]);
    };
    let mut pieces: ArrayVec<IoSlice<'_>, MAX_PIECES> = ArrayVec::new();
    pieces.push(IoSlice::new(&headers[..len]));
    pieces.extend([head].into_iter().chain(members).map(|frame| IoSlice::new(&frame.data()[len..])));
    host.write(offload, &pieces)
}
