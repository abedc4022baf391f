//! Splitting a packet into frames of its own (RFC 791; RFC 8200 §4.5).

use super::drops::WorkerDrop;
use crate::frame::{Frame, FramePool, HEADROOM};
use crate::port::FrameBurst;
use std::hash::{BuildHasher, RandomState};
use testudo_wire::{Error, ip, ipv4, ipv6};

/// Allots the identifications of IPv6 packets that are fragmented here. They start at a random
/// value, so that a stranger cannot guess them (RFC 7739 §5.1), and repeat after 2^26 packets. The
/// top six bits are the worker's number, so no two workers have an identification in common.
#[derive(Debug)]
pub(super) struct FragmentIds {
    worker: u32,
    next: u32,
}

/// Bits of an identification that count up; the others are the worker's number.
const COUNTER_BITS: u32 = 26;

impl FragmentIds {
    pub(super) fn new(worker: u8) -> Self {
        Self { worker: u32::from(worker) << COUNTER_BITS, next: RandomState::new().hash_one(()) as u32 }
    }

    fn next(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.worker | self.next & ((1 << COUNTER_BITS) - 1)
    }
}

/// Splits a packet into pieces of at most `mtu` octets. All or nothing.
pub(super) fn split(
    frame: &Frame,
    mtu: u16,
    ids: &mut FragmentIds,
    pool: &mut FramePool,
) -> Result<FrameBurst, WorkerDrop> {
    let refused = |_| WorkerDrop::NotSplit;
    if ip::version(frame.data()) == Some(6) {
        let mut fragments = ipv6::fragment(frame.data(), mtu, ids.next()).map_err(refused)?;
        fill(fragments.remaining(), mtu, pool, |out| fragments.write_next(out))
    } else {
        let mut fragments = ipv4::fragment(frame.data(), mtu).map_err(refused)?;
        fill(fragments.remaining(), mtu, pool, |out| fragments.write_next(out))
    }
}

/// Takes as many frames as are wanted, each for a packet of that length, and has `write` fill them.
fn fill(
    wanted: usize,
    len: u16,
    pool: &mut FramePool,
    mut write_next: impl FnMut(&mut [u8]) -> Result<Option<usize>, Error>,
) -> Result<FrameBurst, WorkerDrop> {
    let mut pieces = FrameBurst::new();
    if wanted > pieces.capacity() {
        return Err(WorkerDrop::NotSplit);
    }
    while pieces.len() < wanted {
        let Some(mut piece) = pool.take_for(len.into()) else {
            return Err(give_back(pieces, pool, WorkerDrop::NoFrame));
        };
        let start = usize::from(HEADROOM);
        let written = write_next(&mut piece.bytes_mut()[start..]);
        let fits = matches!(written, Ok(Some(len)) if piece.set_extent(start, len));
        pieces.push(piece);
        if !fits {
            return Err(give_back(pieces, pool, WorkerDrop::NotSplit));
        }
    }
    Ok(pieces)
}

fn give_back(pieces: FrameBurst, pool: &mut FramePool, reason: WorkerDrop) -> WorkerDrop {
    pieces.into_iter().for_each(|piece| pool.give(piece));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_no_identification_in_common() {
        for worker in [0, 1, 63] {
            let mut ids = FragmentIds { next: u32::MAX - 2, ..FragmentIds::new(worker) };
            let first = ids.next();
            assert!((0..5).all(|_| ids.next() >> COUNTER_BITS == u32::from(worker)));
            assert!(first >> COUNTER_BITS == u32::from(worker) && first != ids.next());
        }
    }
}
