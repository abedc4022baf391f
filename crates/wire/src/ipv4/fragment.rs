//! Splitting a packet into fragments (RFC 791 §2.3, §3.2).

use super::{HEADER, Ipv4, MF, options};
use crate::Error;
use crate::checksum::Sum;

/// Prepares to split `packet`, which may itself be a fragment, into pieces of at most `mtu` octets.
///
/// Refused if Don't Fragment is set or `mtu` leaves no room for eight octets of payload.
pub fn fragment(packet: &[u8], mtu: u16) -> Result<Fragments<'_>, Error> {
    let packet = Ipv4::parse(packet)?;
    let mut repeated = [0; options::MAX_LEN];
    let repeated_len = options::copied(packet.options(), &mut repeated);
    let mtu = usize::from(mtu);
    let smallest = packet.header_len() + 8;
    if packet.df() || mtu < smallest {
        return Err(Error::Unfragmentable);
    }
    Ok(Fragments { packet, mtu, done: 0, repeated, repeated_len })
}

/// The fragments that are still to be written.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    packet: Ipv4<'a>,
    mtu: usize,
    /// Octets of payload already written, a multiple of eight.
    done: usize,
    /// Options of all fragments after the first.
    repeated: [u8; options::MAX_LEN],
    repeated_len: usize,
}

impl Fragments<'_> {
    /// How many fragments are still to be written.
    pub fn remaining(&self) -> usize {
        let (mut done, mut count) = (self.done, 0);
        while let Some(len) = self.payload_at(done) {
            done += len;
            count += 1;
            if len == 0 {
                break;
            }
        }
        count
    }

    /// Octets of the next fragment; `None` when all are written.
    pub fn next_len(&self) -> Option<usize> {
        Some(HEADER + self.options_at(self.done).len() + self.payload_at(self.done)?)
    }

    /// Writes the next fragment to the front of `out` and returns its octets; `None` when all are
    /// written.
    ///
    /// If `out` is too small nothing happens, and the same fragment can be asked for again.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<usize>, Error> {
        let Some(payload_len) = self.payload_at(self.done) else {
            return Ok(None);
        };
        let options = self.options_at(self.done);
        let (header_len, found) = (HEADER + options.len(), out.len());
        let expected = header_len + payload_len;
        let no_room = Error::NoRoom { found, expected };
        let out = out.get_mut(..expected).ok_or(no_room)?;
        let (fixed, rest) = out.split_first_chunk_mut::<HEADER>().ok_or(no_room)?;
        let (options_out, payload_out) = rest.split_at_mut_checked(options.len()).ok_or(no_room)?;
        let payload = self.packet.payload().get(self.done..self.done + payload_len).ok_or(no_room)?;
        options_out.copy_from_slice(options);
        payload_out.copy_from_slice(payload);
        *fixed = self.header_at(header_len, payload_len);
        let checksum = Sum::new().bytes(fixed).bytes(options_out).finish();
        fixed[10..12].copy_from_slice(&checksum.to_be_bytes());
        // An empty payload is one fragment, not none.
        self.done = if payload_len == 0 { usize::MAX } else { self.done + payload_len };
        Ok(Some(expected))
    }

    /// The fixed part, its checksum zero.
    fn header_at(&self, header_len: usize, payload_len: usize) -> [u8; HEADER] {
        let mut fixed = *self.packet.fixed;
        let last = self.done + payload_len == self.packet.payload().len();
        // At most 8191 units: offset and length of a whole packet fit 16 bits, but a fragment's may
        // lie beyond and wrap, which a receiver refuses itself.
        let offset = ((self.packet.fragment_offset() + self.done) / 8) as u16 & super::OFFSET;
        let flags = if !last || self.packet.mf() { MF } else { 0 };
        fixed[0] = 0x40 | (header_len / 4) as u8;
        fixed[2..4].copy_from_slice(&((header_len + payload_len) as u16).to_be_bytes());
        fixed[6..8].copy_from_slice(&(flags | offset).to_be_bytes());
        fixed[10..12].fill(0);
        fixed
    }

    /// Octets of payload in the fragment that begins at `done`.
    fn payload_at(&self, done: usize) -> Option<usize> {
        let left = self.packet.payload().len().checked_sub(done)?;
        if left == 0 && done > 0 {
            return None;
        }
        let room = self.mtu - HEADER - self.options_at(done).len();
        Some(if left <= room { left } else { room & !7 })
    }

    fn options_at(&self, done: usize) -> &[u8] {
        if done == 0 { self.packet.options() } else { self.repeated.get(..self.repeated_len).unwrap_or(&[]) }
    }
}

#[cfg(test)]
mod tests;
