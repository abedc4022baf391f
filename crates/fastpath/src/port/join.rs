//! Packets that the kernel delivers in several chunks, joined in a jumbo frame: all of a packet or
//! nothing. So is a packet that fills its one chunk and leaves no room for a trailer.

use crate::filter::STAMP_LEN;
use crate::frame::{Frame, FramePool};

/// The packet that is being received. Its chunks follow each other, but a burst may end between
/// them.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    begun: Option<Begun>,
    lost: u64,
}

#[derive(Debug)]
enum Begun {
    Into(Frame),
    /// The packet is lost; its remaining chunks are dropped.
    Losing,
}

impl Joiner {
    /// Number of lost packets: longer than a jumbo frame, with a chunk that was not ours to read,
    /// or without a free frame.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes the next chunk of a packet; without `more` it is the last one. Returns the packet when
    /// it is whole.
    #[inline]
    pub(super) fn add(&mut self, piece: Frame, more: bool, pool: &mut FramePool) -> Option<Frame> {
        if self.begun.is_none() && !more && piece.has_trailer_room() {
            Some(piece)
        } else {
            self.join(piece, more, pool)
        }
    }

    /// Drops the packet, because one of its chunks was not ours to read.
    pub(super) fn spoil(&mut self, more: bool, pool: &mut FramePool) {
        if let Some(Begun::Into(frame)) = self.begun.take() {
            pool.give(frame);
        }
        self.go_on(Begun::Losing, more);
    }

    fn join(&mut self, piece: Frame, more: bool, pool: &mut FramePool) -> Option<Frame> {
        let begun = match self.begun.take() {
            None => pool.take_jumbo().and_then(|frame| keep(frame, |frame| begin(frame, &piece), pool)),
            Some(Begun::Losing) => None,
            Some(Begun::Into(frame)) => keep(frame, |frame| append(frame, piece.data()), pool),
        };
        pool.give(piece);
        self.go_on(begun.map_or(Begun::Losing, Begun::Into), more)
    }

    fn go_on(&mut self, begun: Begun, more: bool) -> Option<Frame> {
        match begun {
            begun if more => self.begun = Some(begun),
            Begun::Into(frame) => return Some(frame),
            Begun::Losing => self.lost += 1,
        }
        None
    }

    /// Returns its frames to the pool.
    pub(super) fn close(self, pool: &mut FramePool) {
        if let Some(Begun::Into(frame)) = self.begun {
            pool.give(frame);
        }
    }
}

/// Keeps the frame if `copy` found room in it; otherwise returns it to the pool.
fn keep(mut frame: Frame, copy: impl FnOnce(&mut Frame) -> bool, pool: &mut FramePool) -> Option<Frame> {
    if copy(&mut frame) {
        return Some(frame);
    }
    pool.give(frame);
    None
}

/// Copies the first part of a packet, and the stamp that the filter has written before it.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`set_extent` has checked what is copied"))]
fn begin(frame: &mut Frame, piece: &Frame) -> bool {
    let start = usize::from(piece.start());
    let Some(stamp) = start.checked_sub(STAMP_LEN) else { return false };
    let end = start + usize::from(piece.len());
    let fits = frame.set_extent(start, usize::from(piece.len()));
    if fits {
        frame.bytes_mut()[stamp..end].copy_from_slice(&piece.bytes()[stamp..end]);
    }
    fits
}

/// Copies the next part of a packet.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`set_extent` has checked what is copied"))]
fn append(frame: &mut Frame, octets: &[u8]) -> bool {
    let (start, len) = (usize::from(frame.start()), usize::from(frame.len()));
    let fits = frame.set_extent(start, len + octets.len());
    if fits {
        frame.data_mut()[len..].copy_from_slice(octets);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ChunkSize, HEADROOM, JUMBO};

    const STAMP: [u8; STAMP_LEN] = [0x54, 1, 7, 0];

    fn pool() -> FramePool {
        FramePool::with_jumbo(16, 2, ChunkSize::K4).unwrap()
    }

    /// A packet in pieces as the kernel makes them: the first behind the headroom and the stamp,
    /// later ones anywhere.
    fn pieces(pool: &mut FramePool, packet: &[u8], room: usize) -> Vec<Frame> {
        let part = |octets: &[u8]| {
            let mut frame = pool.take().unwrap();
            let start = usize::from(HEADROOM);
            frame.bytes_mut()[start - STAMP_LEN..start].copy_from_slice(&STAMP);
            assert!(frame.fill(octets));
            frame
        };
        packet.chunks(room).map(part).collect()
    }

    /// The longest packet that has room for a trailer in one chunk.
    const LONGEST: usize = ROOM - 50;
    /// What a chunk holds behind the headroom.
    const ROOM: usize = 4096 - HEADROOM as usize;

    fn packet(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn add_all(joiner: &mut Joiner, frames: Vec<Frame>, pool: &mut FramePool) -> Option<Frame> {
        let last = frames.len() - 1;
        let mut whole = None;
        for (at, frame) in frames.into_iter().enumerate() {
            assert!(whole.is_none());
            whole = joiner.add(frame, at < last, pool);
        }
        whole
    }

    #[test]
    fn a_packet_of_any_length_is_whole_with_its_stamp() {
        let (mut pool, mut joiner) = (pool(), Joiner::default());
        let longest = JUMBO - usize::from(HEADROOM);
        for len in [1, LONGEST, LONGEST + 1, ROOM - 1, ROOM, ROOM + 1, 9014, 12_000, longest] {
            let expected = packet(len);
            let frames = pieces(&mut pool, &expected, ROOM);
            let whole = add_all(&mut joiner, frames, &mut pool).expect("a packet");
            assert_eq!(whole.data(), expected);
            assert!(whole.has_trailer_room() || len == longest, "{len}");
            assert_eq!(whole.is_jumbo(), len > LONGEST, "{len}");
            let start = usize::from(whole.start());
            assert_eq!(whole.bytes()[start - STAMP_LEN..start], STAMP);
            pool.give(whole);
        }
        assert_eq!((joiner.lost(), pool.available()), (0, pool.total()));
    }

    #[test]
    fn too_long_a_packet_is_lost_whole_and_the_next_is_not() {
        let (mut pool, mut joiner) = (pool(), Joiner::default());
        let frames = pieces(&mut pool, &packet(JUMBO - usize::from(HEADROOM) + 1), ROOM);
        assert!(add_all(&mut joiner, frames, &mut pool).is_none());
        assert_eq!((joiner.lost(), pool.available()), (1, pool.total()));
        let frames = pieces(&mut pool, &packet(5000), ROOM);
        let whole = add_all(&mut joiner, frames, &mut pool).expect("a packet");
        pool.give(whole);
    }

    #[test]
    fn without_a_free_frame_a_packet_is_lost_whole() {
        let (mut pool, mut joiner) = (pool(), Joiner::default());
        let taken = [pool.take_jumbo().unwrap(), pool.take_jumbo().unwrap()];
        let mut frames = pieces(&mut pool, &packet(9000), ROOM).into_iter();
        assert!(joiner.add(frames.next().unwrap(), true, &mut pool).is_none());
        // A frame that becomes free meanwhile does not make half a packet of it.
        taken.into_iter().for_each(|frame| pool.give(frame));
        assert!(joiner.add(frames.next().unwrap(), true, &mut pool).is_none());
        assert!(joiner.add(frames.next().unwrap(), false, &mut pool).is_none());
        assert_eq!((joiner.lost(), pool.available()), (1, pool.total()));
    }

    #[test]
    fn a_spoilt_packet_is_lost_whole() {
        let (mut pool, mut joiner) = (pool(), Joiner::default());
        for at in 0..3 {
            let frames = pieces(&mut pool, &packet(9000), ROOM);
            for (number, frame) in frames.into_iter().enumerate() {
                let more = number < 2;
                if number == at {
                    joiner.spoil(more, &mut pool);
                    pool.give(frame);
                } else {
                    assert!(joiner.add(frame, more, &mut pool).is_none());
                }
            }
            assert_eq!((joiner.lost(), pool.available()), (at as u64 + 1, pool.total()));
        }
    }

    #[test]
    fn closing_in_the_middle_of_a_packet_loses_no_frame() {
        let (mut pool, mut joiner) = (pool(), Joiner::default());
        let first = pieces(&mut pool, &packet(3000), ROOM).remove(0);
        assert!(joiner.add(first, true, &mut pool).is_none());
        joiner.close(&mut pool);
        assert_eq!(pool.available(), pool.total());
    }
}
