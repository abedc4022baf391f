//! ESP in transport mode (RFC 4303 §3.1.1): the packet keeps its IP header, and that header's
//! payload is encrypted.

use super::{Marks, Outer};
use crate::demux::{Form, FoundEsp};
use crate::drops::DropReason;
use crate::sa::Around;
use testudo_wire::fragment::Fragment;
use testudo_wire::ip::{self, Protocol};
use testudo_wire::packet::PacketBuf;
use testudo_wire::seam::Seam;
use testudo_wire::{esp, udp};

/// Puts ESP behind the IP header of a packet that has grown at both ends, to `total` octets.
/// Returns the offset of the part to encrypt. `None` if it is no IP packet, which the planner has
/// ruled out.
#[cold]
pub(crate) fn encapsulate(packet: &mut [u8], outer: &Outer, total: u16, marks: &Marks) -> Option<usize> {
    let own = outer.prefix_len();
    let seam = Seam::find(packet.get(own..)?).ok()?;
    let head = seam.offset();
    packet.copy_within(own..own + head, 0);
    let (headers, rest) = packet.split_at_mut_checked(head)?;
    if !seam.name(headers, outer.protocol(), total) {
        return None;
    }
    outer.write_behind_header(rest.get_mut(..own)?, total.checked_sub(head as u16)?, marks);
    Some(head + own)
}

/// Removes ESP from a decrypted packet, which becomes again what its sender protected. Returns its
/// version, as in a tunnel's trailer.
#[cold]
pub(crate) fn decapsulate(
    buf: &mut PacketBuf<'_>,
    arrived: &FoundEsp,
    around: Around,
) -> Result<Protocol, DropReason> {
    let (start, text_end) = (usize::from(arrived.at), arrived.end() - usize::from(around.icv));
    let text_at = start + usize::from(around.before_text);
    let text = buf.data().get(text_at..text_end).ok_or(DropReason::EspTooShort)?;
    let (payload, next) = esp::split_trailer(text).map_err(|_| DropReason::BadPadding)?;
    let end = text_at + payload.len();
    if next == Protocol::NO_NEXT {
        return Err(DropReason::Dummy);
    }
    let head = start - if arrived.form == Form::EspInUdp { udp::HEADER } else { 0 };
    join(buf, next, Gap { at: head, len: text_at - head, behind: buf.len() - end })
}

/// What ESP or AH leaves behind in a packet.
pub(crate) struct Gap {
    /// Where its header was: behind those of the packet.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Octets at the end: trailer and ICV.
    pub(crate) behind: usize,
}

/// Joins the headers with what they carry, of protocol `next`; answers the packet's version, as in
/// a tunnel's trailer.
#[cold]
pub(crate) fn join(buf: &mut PacketBuf<'_>, next: Protocol, gap: Gap) -> Result<Protocol, DropReason> {
    let seam = Seam::at(buf.data(), gap.at).ok_or(DropReason::MalformedInner)?;
    buf.data_mut().copy_within(..gap.at, gap.len);
    let fits = buf.shrink_back(gap.behind) && buf.shrink_front(gap.len);
    // At most as many as before.
    let total = buf.len() as u16;
    if !fits || !seam.name(buf.data_mut(), next, total) {
        return Err(DropReason::MalformedInner);
    }
    match Fragment::parse(buf.data()) {
        Ok(None) if ip::version(buf.data()) == Some(4) => Ok(Protocol::IPV4),
        Ok(None) => Ok(Protocol::IPV6),
        Ok(Some(_)) => Err(DropReason::FragmentInside),
        Err(_) => Err(DropReason::MalformedInner),
    }
}
