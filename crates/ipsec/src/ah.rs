//! AH in both modes: adding it to packets, verifying and removing it (RFC 4302 §3.1).

use crate::demux::FoundEsp;
use crate::drops::DropReason;
use crate::esp::transport::{self, Gap};
use crate::esp::{Marks, Outer};
use crate::sa::Mode;
use testudo_crypto::mac::MacKey;
use testudo_wire::ah::{self, Ah};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::seam::Seam;

/// Adds AH to a packet that has grown by [`Outer::prefix_len`] at its front: behind an outer
/// header, or in transport mode behind the headers that routers read. `high`: upper half of an
/// extended sequence number (§3.3.3.2.2). `None` if AH cannot cover the packet, which the planner
/// has ruled out.
pub(crate) fn protect(
    packet: &mut [u8],
    outer: &Outer,
    key: &MacKey,
    high: Option<u32>,
    spi: u32,
    next: Protocol,
    marks: &Marks,
) -> Option<()> {
    let own = outer.prefix_len();
    let total = u16::try_from(packet.len()).ok()?;
    let at = if outer.is_transport() {
        let seam = Seam::find(packet.get(own..)?).ok()?;
        packet.copy_within(own..own + seam.offset(), 0);
        seam.name(packet, Protocol::AH, total).then_some(seam.offset())?
    } else {
        outer.write_any(packet.get_mut(..own)?, total, marks);
        outer.header_len()
    };
    let len = usize::from(outer.sizes().before_text);
    if !ah::write(packet.get_mut(at..at + len)?, next, spi, marks.sequence as u32) {
        return None;
    }
    let icv_len = key.mac().icv_len();
    let mut message = key.begin();
    ah::cover(packet, at, icv_len, |octets| message.push(octets)).ok()?;
    if let Some(high) = high {
        message.push(&high.to_be_bytes());
    }
    let icv_at = at + ah::HEADER;
    message.seal(packet.get_mut(icv_at..icv_at + icv_len)?).then_some(())
}

/// Verifies a packet in which AH was found. `Ok(false)` if it is not authentic.
pub(crate) fn is_authentic(
    packet: &[u8],
    arrived: &FoundEsp,
    key: &MacKey,
    high: Option<u32>,
) -> Result<bool, DropReason> {
    let icv_len = key.mac().icv_len();
    let at = usize::from(arrived.at);
    let header = packet.get(at..).and_then(|octets| Ah::parse(octets).ok());
    let icv = header.and_then(|header| header.icv.get(..icv_len)).ok_or(DropReason::AhTooShort)?;
    let mut message = key.begin();
    ah::cover(packet, at, icv_len, |octets| message.push(octets)).map_err(|_| DropReason::AhNotCovered)?;
    if let Some(high) = high {
        message.push(&high.to_be_bytes());
    }
    Ok(message.verify(icv))
}

/// Removes AH from an authentic packet, which becomes again what its sender protected. Returns its
/// version, or another next header.
pub(crate) fn decapsulate(
    buf: &mut PacketBuf<'_>,
    arrived: &FoundEsp,
    mode: Mode,
) -> Result<Protocol, DropReason> {
    let (at, end) = (usize::from(arrived.at), arrived.end());
    let header = buf.data().get(at..end).and_then(|octets| Ah::parse(octets).ok());
    let (next, rest) = header.map(|ah| (ah.next, ah.payload.len())).ok_or(DropReason::AhTooShort)?;
    let (own, behind) = (end - rest - at, buf.len() - end);
    if mode == Mode::Tunnel {
        let fits = buf.shrink_back(behind) && buf.shrink_front(at + own);
        let known = matches!(next, Protocol::IPV4 | Protocol::IPV6);
        return if fits && known { Ok(next) } else { Err(DropReason::BadNextHeader) };
    }
    transport::join(buf, next, Gap { at, len: own, behind })
}
