//! ESP and AH that other nodes have relayed by SAs that encrypt their heads. The outer packets are
//! taken off before the burst goes through its stages. So what was relayed passes them beside the
//! packets that came here at once, and each packet passes them once.
//!
//! The rest of such a packet is not authentic yet. The stages open its own SA, as they do for a
//! packet from a port.

use super::Burst;
use crate::dataplane::LocalAddrs;
use crate::dataplane::burst::{Ingress, Item};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::relay::{HEAD_LEN, Relay};
use crate::demux::{self, Form, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::esp::tunnel;
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::sa::{InboundSa, SaKey};
use testudo_base::spi::{RelayKind, Spi};
use testudo_crypto::{Aad, IV_LEN, OpenJob, TAG_LEN, open_burst};
use testudo_wire::esp;
use testudo_wire::packet::PacketBuf;

/// Octets of ESP before the head.
const HEAD_AT: usize = esp::HEADER + IV_LEN;

/// A packet with an encrypted head.
struct Covered<'s> {
    sa: &'s InboundSa,
    sequence: u64,
    /// Its place among the packets that have arrived.
    place: usize,
    /// Its place in the burst.
    at: u8,
    /// The result of cipher and replay window.
    verdict: Result<(), DropReason>,
}

/// Takes off the outer packets.
pub(super) struct Uncoverer<'d> {
    pub(super) relay: &'d Relay,
    pub(super) local: &'d LocalAddrs,
    pub(super) udp_port: u16,
    pub(super) counters: &'d DirectionCounters,
}

/// True for a packet of a relay SA that encrypts heads.
#[inline]
pub(super) fn is_by_head(arrived: &FoundEsp) -> bool {
    Spi(arrived.spi).relay_kind() == Some(RelayKind::Head) && arrived.form == Form::Esp
}

impl Uncoverer<'_> {
    /// Leaves the relayed packets in the burst, and their places in `arrived`. Returns true if some
    /// of them are AH. Those whose relay SA is not known stay as they are.
    #[inline(never)]
    pub(super) fn uncover(&self, burst: &mut [Item<'_>], arrived: &mut Burst<(u8, FoundEsp)>) -> bool {
        let mut refused: u64 = 0;
        let mut covered = self.admit(burst, arrived, &mut refused);
        open(burst, arrived, &mut covered);
        for run in covered.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)) {
            let Some(window) = run.first().map(|covered| &covered.sa.window) else { continue };
            let number = |covered: &Covered<'_>| covered.verdict.is_ok().then_some(covered.sequence);
            window.accept_run(run, number, |covered, reason| covered.verdict = Err(reason));
        }
        let (mut any_ah, mut packets, mut octets) = (false, 0, 0);
        for Covered { sa, place, at, verdict, .. } in covered {
            let Some((item, (_, found))) = burst.get_mut(usize::from(at)).zip(arrived.get_mut(place)) else {
                continue;
            };
            match verdict.and_then(|()| self.strip(&mut item.buf, sa, found)) {
                Ok(()) => {
                    item.ingress = Ingress::Relayed;
                    any_ah |= found.form == Form::Ah;
                    packets += 1;
                    octets += item.buf.len() as u64;
                }
                Err(reason) => {
                    item.refuse(reason, self.counters);
                    refused |= 1 << place;
                }
            }
        }
        // As packets that another pass brings here, they count once more.
        self.counters.relayed_in.add(packets);
        self.counters.received.add(packets);
        self.counters.received_bytes.add(octets);
        if refused != 0 {
            let mut place = 0..;
            arrived.retain(|_| place.next().is_none_or(|place: u32| refused & 1 << place == 0));
        }
        any_ah
    }

    /// Finds the SAs, and checks their windows. `refused` gets the places of the packets that are
    /// dropped.
    fn admit(
        &self,
        burst: &mut [Item<'_>],
        arrived: &[(u8, FoundEsp)],
        refused: &mut u64,
    ) -> Burst<Covered<'_>> {
        let mut covered = Burst::new();
        for (place, (at, found)) in arrived.iter().enumerate() {
            if !is_by_head(found) {
                continue;
            }
            let Some(sa) = self.relay.inbound(Spi(found.spi), RelayKind::Head) else { continue };
            let Some(item) = burst.get_mut(usize::from(*at)) else { continue };
            // Nothing is relayed twice, not even inside itself.
            let checked = match item.ingress.is_relayed() {
                true => Err(DropReason::RelayedStray),
                false => sa.window.check(found.sequence),
            };
            match checked {
                Ok(sequence) => covered.push(Covered { sa, sequence, place, at: *at, verdict: Ok(()) }),
                Err(reason) => {
                    item.refuse(reason, self.counters);
                    *refused |= 1 << place;
                }
            }
        }
        covered
    }

    /// Leaves the relayed packet in the buffer, and its place in `found`.
    #[inline]
    fn strip(&self, buf: &mut PacketBuf<'_>, sa: &InboundSa, found: &mut FoundEsp) -> Result<(), DropReason> {
        let outer = *found;
        let behind = (buf.len() + TAG_LEN).checked_sub(outer.end()).ok_or(DropReason::EspTooShort)?;
        if !(buf.shrink_back(behind) && buf.shrink_front(usize::from(outer.at) + HEAD_AT)) {
            return Err(DropReason::EspTooShort);
        }
        self.find(buf.data(), found)?;
        // Nor does anything but an SA of a peer go by this kind of relay SA.
        if Spi::RELAY.contains(&Spi(found.spi)) {
            return Err(DropReason::RelayedStray);
        }
        let class =
            tunnel::inner_class(sa.copy, outer.class, found.class).ok_or(DropReason::EcnNotCapable)?;
        if class != found.class {
            mark(buf, class)?;
            found.class = class;
        }
        Ok(())
    }

    /// Finds ESP or AH to us: a filter has seen nothing else, and the kernel must not get it.
    #[inline]
    fn find(&self, packet: &[u8], found: &mut FoundEsp) -> Result<(), DropReason> {
        match demux::sort(packet, self.local, self.udp_port, found) {
            Ok(OuterKind::Esp) => Ok(()),
            Ok(OuterKind::Ike | OuterKind::Fragment) => Err(DropReason::RelayedStray),
            Err(DropReason::Malformed) => Err(DropReason::MalformedInner),
            Err(DropReason::NotEsp) => demux::sort_ah(packet, found).map_err(|_| DropReason::RelayedStray),
            Err(_) => Err(DropReason::RelayedStray),
        }
    }
}

/// Marks a packet for congestion.
#[cold]
fn mark(buf: &mut PacketBuf<'_>, class: u8) -> Result<(), DropReason> {
    let inner = Inner::parse(buf.data(), Direction::In).map_err(|_| DropReason::MalformedInner)?;
    inner.set_class(buf.data_mut(), class);
    Ok(())
}

/// Verifies and decrypts the heads.
fn open(burst: &mut [Item<'_>], arrived: &[(u8, FoundEsp)], covered: &mut [Covered<'_>]) {
    let mut jobs: Burst<OpenJob<'_>> = Burst::new();
    let mut left = covered.iter_mut().peekable();
    for (at, item) in burst.iter_mut().enumerate() {
        let Some(covered) = left.next_if(|covered| usize::from(covered.at) == at) else {
            continue;
        };
        let found = arrived.get(covered.place).map(|(_, found)| found);
        match found.and_then(|found| job(item.buf.data_mut(), covered, found)) {
            Some(job) => jobs.push(job),
            None => covered.verdict = Err(DropReason::EspTooShort),
        }
    }
    open_burst(&mut jobs);
    let opened = covered.iter_mut().filter(|covered| covered.verdict.is_ok());
    for (covered, job) in opened.zip(&jobs) {
        if !job.ok {
            covered.verdict = Err(covered.sa.window.blame(covered.sequence));
        }
    }
}

/// The cipher's job. `None` if the packet is too short.
#[inline]
fn job<'a>(packet: &'a mut [u8], covered: &Covered<'a>, found: &FoundEsp) -> Option<OpenJob<'a>> {
    let Covered { sa, sequence, .. } = covered;
    let SaKey::Aead(key) = &sa.key else { return None };
    let esp = packet.get_mut(usize::from(found.at)..found.end())?;
    let (before, body) = esp.split_first_chunk_mut::<HEAD_AT>()?;
    let (_, iv) = before.split_last_chunk::<IV_LEN>()?;
    let (packet, tag) = body.split_last_chunk_mut::<TAG_LEN>()?;
    let head_len = packet.len().min(HEAD_LEN);
    let (text, _) = packet.split_at_mut_checked(head_len)?;
    let aad = Aad::of_esp(sa.spi.0, *sequence, sa.esn);
    Some(OpenJob { key, iv: *iv, aad, text, tag, ok: false })
}
