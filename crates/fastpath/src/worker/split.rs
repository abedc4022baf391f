//! Splitting a packet into frames of its own (RFC 791).

use super::drops::WorkerDrop;
use crate::frame::{Frame, FramePool, HEADROOM};
use crate::port::FrameBurst;
use testudo_wire::ipv4;

/// The pieces of an IPv4 packet, each at most `mtu` octets. All or nothing.
pub(super) fn split(frame: &Frame, mtu: u16, pool: &mut FramePool) -> Result<FrameBurst, WorkerDrop> {
    let mut fragments = ipv4::fragment(frame.data(), mtu).map_err(|_| WorkerDrop::NotSplit)?;
    let mut pieces = FrameBurst::new();
    let wanted = fragments.remaining();
    if wanted > pieces.capacity() {
        return Err(WorkerDrop::NotSplit);
    }
    if wanted > pool.available() {
        return Err(WorkerDrop::NoFrame);
    }
    while pieces.len() < wanted {
        let Some(mut piece) = pool.take() else { break };
        let start = usize::from(HEADROOM);
        let written = fragments.write_next(&mut piece.bytes_mut()[start..]);
        let fits = matches!(written, Ok(Some(len)) if piece.set_extent(start, len));
        pieces.push(piece);
        if !fits {
            pieces.drain(..).for_each(|piece| pool.give(piece));
            return Err(WorkerDrop::NotSplit);
        }
    }
    Ok(pieces)
}
