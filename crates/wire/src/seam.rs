//! The place of IPsec in a packet that keeps its own header: transport mode (RFC 4303 §3.1.1, RFC
//! 4302 §3.1.1).

use crate::Error;
use crate::ip::{self, Protocol};
use crate::ipv4::{self, Ipv4, Ipv4Mut};
use crate::ipv6::{self, Ipv6, Ipv6Mut, MAX_EXTENSIONS};

/// Offset of the protocol in an IPv4 header.
const PROTOCOL_AT: usize = 9;
/// Offset of the next header in an IPv6 header.
const NEXT_HEADER_AT: usize = 6;

/// A place between two headers of a packet: behind the headers that stay in clear, before the
/// protected ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seam {
    at: u16,
    named_at: u16,
}

impl Seam {
    /// The place for the IPsec header of a packet that has none: behind the IPv4 header, or behind
    /// the IPv6 headers that routers read (hop-by-hop options, routing, fragment, and options
    /// before a routing header). Headers that only the destination reads are protected.
    pub fn find(packet: &[u8]) -> Result<Self, Error> {
        match ip::version(packet) {
            Some(4) => Ok(Self::behind_v4(&Ipv4::parse(packet)?)),
            _ => Self::find_v6(&Ipv6::parse(packet)?),
        }
    }

    /// The seam with a header at offset `at`. `None` if no header begins there.
    pub fn at(packet: &[u8], at: usize) -> Option<Self> {
        match ip::version(packet) {
            Some(4) => Some(Self::behind_v4(&Ipv4::parse(packet).ok()?)).filter(|seam| seam.offset() == at),
            _ => {
                let mut seams = Seams::of(&Ipv6::parse(packet).ok()?);
                seams.find_map(|step| step.ok().map(|(seam, _)| seam).filter(|seam| seam.offset() == at))
            }
        }
    }

    fn behind_v4(packet: &Ipv4<'_>) -> Self {
        // At most 60.
        Self { at: packet.header_len() as u16, named_at: PROTOCOL_AT as u16 }
    }

    fn find_v6(packet: &Ipv6<'_>) -> Result<Self, Error> {
        let mut found = Self { at: ipv6::HEADER as u16, named_at: NEXT_HEADER_AT as u16 };
        let mut before = None;
        for step in Seams::of(packet) {
            let (seam, next) = step?;
            if before.is_some_and(|before| before != Protocol::DEST_OPTIONS) {
                found = seam;
            }
            before = Some(next);
        }
        Ok(found)
    }

    /// Octets of the headers before it.
    #[inline]
    pub fn offset(&self) -> usize {
        self.at.into()
    }

    /// The protocol that the headers before it name.
    #[inline]
    pub fn protocol(&self, packet: &[u8]) -> Option<Protocol> {
        packet.get(usize::from(self.named_at)).copied().map(Protocol)
    }

    /// Makes the headers before it name `next`, in a packet of `total` octets. Returns false, and
    /// changes nothing, if these are not the headers in which it was found.
    #[inline]
    #[must_use]
    pub fn name(&self, headers: &mut [u8], next: Protocol, total: u16) -> bool {
        if ip::version(headers) == Some(4) {
            return match Ipv4Mut::new(headers) {
                Some(mut ip) => {
                    ip.set_protocol(next);
                    ip.set_total_len(total);
                    true
                }
                None => false,
            };
        }
        let Some(payload) = total.checked_sub(ipv6::HEADER as u16) else { return false };
        let Some(octet) = headers.get_mut(usize::from(self.named_at)) else { return false };
        *octet = next.0;
        match Ipv6Mut::new(headers) {
            Some(mut ip) => {
                ip.set_payload_len(payload);
                true
            }
            None => false,
        }
    }
}

/// The seams of an IPv6 packet, each with the header behind it, up to the first one that is no
/// extension header.
struct Seams<'a> {
    packet: Ipv6<'a>,
    next: Option<(Seam, Protocol)>,
    left: usize,
}

impl<'a> Seams<'a> {
    fn of(packet: &Ipv6<'a>) -> Self {
        let first = Seam { at: ipv6::HEADER as u16, named_at: NEXT_HEADER_AT as u16 };
        Self { packet: *packet, next: Some((first, packet.next_header())), left: MAX_EXTENSIONS }
    }

    /// The seam behind the extension header at `seam`.
    fn behind(&mut self, seam: Seam, header: Protocol) -> Result<(Seam, Protocol), Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::TooManyHeaders)?;
        let left = self.packet.payload().get(seam.offset() - ipv6::HEADER..).unwrap_or_default();
        let truncated = |expected| Error::Truncated { found: left.len(), expected };
        let &[next, words, ..] = left.first_chunk::<8>().ok_or(truncated(8))?;
        let len = if header == Protocol::FRAGMENT { 8 } else { (usize::from(words) + 1) * 8 };
        if left.len() < len {
            return Err(truncated(len));
        }
        // Inside the payload, whose length has 16 bits; only a packet of more octets than that ends
        // beyond.
        let at = u16::try_from(seam.offset() + len).map_err(|_| Error::TooManyHeaders)?;
        Ok((Seam { at, named_at: seam.at }, Protocol(next)))
    }
}

impl Iterator for Seams<'_> {
    type Item = Result<(Seam, Protocol), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (seam, header) = self.next.take()?;
        if header.is_extension() {
            match self.behind(seam, header) {
                Ok(next) => self.next = Some(next),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok((seam, header)))
    }
}

const _: () = assert!(ipv4::HEADER > PROTOCOL_AT && ipv6::HEADER > NEXT_HEADER_AT);

#[cfg(test)]
mod tests;
