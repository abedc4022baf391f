//! Splitting a packet at its source (RFC 8200 §4.5).

use super::{HEADER, Ipv6};
use crate::Error;
use crate::ip::Protocol;

/// Octets of the fragment header.
pub(crate) const FRAGMENT_HEADER: usize = 8;
/// Headers of each fragment.
const HEADERS: usize = HEADER + FRAGMENT_HEADER;
/// The flag "more fragments".
const MORE: u16 = 1;

/// Prepares to split `packet`, one of our own, into pieces of at most `mtu` octets. `id` must
/// differ from that of any other packet between the same two addresses that may still be on its
/// way.
///
/// Refused if the packet has extension headers, as a fragment has, or `mtu` leaves no room for
/// eight octets of payload.
pub fn fragment(packet: &[u8], mtu: u16, id: u32) -> Result<Fragments<'_>, Error> {
    let packet = Ipv6::parse(packet)?;
    let room = usize::from(mtu).saturating_sub(HEADERS);
    if packet.next_header().is_extension() || room < 8 {
        return Err(Error::Unfragmentable);
    }
    Ok(Fragments { packet, room, id, done: 0 })
}

/// The fragments that are still to be written.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    packet: Ipv6<'a>,
    /// Octets of payload that a fragment has room for, at least eight.
    room: usize,
    id: u32,
    /// Octets of payload already written, a multiple of eight before the end.
    done: usize,
}

impl Fragments<'_> {
    /// How many fragments are still to be written.
    pub fn remaining(&self) -> usize {
        let left = self.left().len();
        // All but the last carry a multiple of eight octets; the last may use the room to its end.
        left.saturating_sub(self.room).div_ceil(self.room & !7) + usize::from(left > 0)
    }

    fn left(&self) -> &[u8] {
        self.packet.payload().get(self.done..).unwrap_or_default()
    }

    /// Writes the next fragment to the front of `out` and returns its octets; `None` when all are
    /// written.
    ///
    /// If `out` is too small nothing happens, and the same fragment can be asked for again.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        let left = self.left();
        if left.is_empty() {
            return Ok(None);
        }
        let last = left.len() <= self.room;
        let len = if last { left.len() } else { self.room & !7 };
        let (found, expected) = (out.len(), HEADERS + len);
        let no_room = Error::NoRoom { found, expected };
        let (fixed, rest) = out.split_first_chunk_mut::<HEADER>().ok_or(no_room)?;
        let (header, rest) = rest.split_first_chunk_mut::<FRAGMENT_HEADER>().ok_or(no_room)?;
        let (payload, piece) = (rest.get_mut(..len).ok_or(no_room)?, left.get(..len).ok_or(no_room)?);
        payload.copy_from_slice(piece);
        *fixed = *self.packet.fixed;
        fixed[4..6].copy_from_slice(&((FRAGMENT_HEADER + len) as u16).to_be_bytes());
        fixed[6] = Protocol::FRAGMENT.0;
        // The offset is a multiple of eight, so that it stands where it belongs: offset:13 | 0:2 |
        // M:1.
        let field = self.done as u16 | if last { 0 } else { MORE };
        header[..2].copy_from_slice(&[self.packet.next_header().0, 0]);
        header[2..4].copy_from_slice(&field.to_be_bytes());
        header[4..].copy_from_slice(&self.id.to_be_bytes());
        self.done += len;
        Ok(Some(expected))
    }
}

#[cfg(test)]
mod tests;
