//! Cuts the stream into packets.

use super::{MAX_PACKET, MAX_READ};
use crate::Error;
use zeroize::{Zeroize, Zeroizing};

/// Octets received and not consumed yet. They may hold secrets, so consumed octets are wiped.
#[derive(Default)]
pub struct Deframer {
    buffer: Zeroizing<Vec<u8>>,
    /// Number of consumed octets at the start of `buffer`.
    consumed: usize,
}

impl Deframer {
    /// Most octets buffered: a packet with its length field, and one read after it.
    pub const MAX_BUFFER: usize = MAX_PACKET + 4 + MAX_READ;

    /// Appends octets from the stream.
    ///
    /// # Errors
    ///
    /// [`Error::Flood`] if more than [`Self::MAX_BUFFER`] octets would be buffered.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let needed = self.len().saturating_add(bytes.len());
        if needed > Self::MAX_BUFFER {
            return Err(Error::Flood { found: needed, most: Self::MAX_BUFFER });
        }
        if self.buffer.len().saturating_add(bytes.len()) > self.buffer.capacity() {
            // A Vec that reallocates by itself leaves its old copy in memory, not wiped.
            let mut fresh = Zeroizing::new(Vec::with_capacity(needed.next_power_of_two()));
            fresh.extend_from_slice(self.pending());
            self.buffer = fresh;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole packet without its length field.
    pub fn next_packet(&mut self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let Some((field, rest)) = self.pending().split_first_chunk::<4>() else { return Ok(None) };
        let found = u32::from_be_bytes(*field);
        let len = usize::try_from(found).unwrap_or(usize::MAX);
        if len == 0 || len > MAX_PACKET {
            return Err(Error::PacketLength { found: found.into() });
        }
        let Some(packet) = rest.get(..len) else { return Ok(None) };
        let packet = Zeroizing::new(packet.to_vec());
        self.consumed += 4 + len;
        if self.is_empty() {
            self.buffer.zeroize();
            self.consumed = 0;
        }
        Ok(Some(packet))
    }

    /// Buffered octets.
    pub fn len(&self) -> usize {
        self.pending().len()
    }

    /// True if nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.pending().is_empty()
    }

    fn pending(&self) -> &[u8] {
        self.buffer.get(self.consumed..).unwrap_or_default()
    }
}
