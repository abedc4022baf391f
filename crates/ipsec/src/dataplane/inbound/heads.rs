//! ESP and AH that other nodes have relayed with encrypted heads, or bare. The outer packets are
//! taken off before the burst goes through its stages. So what was relayed passes them beside the
//! packets that came here at once, and each packet passes them once.
//!
//! The rest of such a packet is not authentic yet. The stages open its own SA, as they do for a
//! packet from a port.

use super::{Burst, EspTrain};
use crate::dataplane::LocalAddrs;
use crate::dataplane::burst::{Ingress, Item};
use crate::dataplane::counters::DirectionCounters;
use crate::dataplane::relay::{BEFORE_PACKET, HEAD_LEN, Relay};
use crate::demux::{self, Form, FoundEsp, OuterKind};
use crate::drops::DropReason;
use crate::esp::tunnel;
use crate::inner::Inner;
use crate::packet_selector::Direction;
use crate::sa::{InboundSa, SaKey};
use testudo_base::spi::{RelayKind, Spi};
use testudo_crypto::{Aad, IV_LEN, OpenJob, TAG_LEN, open_burst};
use testudo_wire::packet::PacketBuf;

/// A packet with an encrypted head, or a bare one.
struct Covered<'s> {
    sa: &'s InboundSa,
    /// `None` if it is bare.
    sequence: Option<u64>,
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

/// The kind of a relayed packet that is not encrypted whole.
#[inline]
pub(super) fn kind_of(arrived: &FoundEsp) -> Option<RelayKind> {
    let kind = Spi(arrived.spi).relay_kind().filter(|kind| *kind != RelayKind::Whole);
    kind.filter(|_| arrived.form == Form::Esp)
}

impl Uncoverer<'_> {
    /// Leaves the relayed packets in the burst, and their places in `arrived`. Returns true if some
    /// of them are AH. Those whose relay SA is not known stay as they are.
    #[inline(never)]
    pub(super) fn uncover(&self, burst: &mut [Item<'_>], arrived: &mut Burst<(u8, FoundEsp)>) -> bool {
        let mut refused: u64 = 0;
        let mut covered = self.admit(burst, arrived, &mut refused);
        if covered.iter().any(|covered| covered.sequence.is_some()) {
            open(burst, arrived, &mut covered);
            accept(&mut covered);
        }
        let (mut any_ah, mut packets, mut octets) = (false, 0, 0);
        let mut train = EspTrain::default();
        for covered in covered {
            let place = covered.place;
            let item = burst.get_mut(usize::from(covered.at));
            let Some((item, (_, found))) = item.zip(arrived.get_mut(place)) else { continue };
            let stripped =
                covered.verdict.and_then(|()| self.strip(&mut item.buf, &covered, found, &mut train));
            match stripped {
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
            let Some(kind) = kind_of(found) else { continue };
            let spi = Spi(found.spi).with_relay_kind(RelayKind::Head);
            let Some(sa) = self.relay.inbound(spi, RelayKind::Head) else { continue };
            let Some(item) = burst.get_mut(usize::from(*at)) else { continue };
            // A node relays what it had from another, never what that one sent.
            let checked = match (item.ingress.is_relayed(), kind) {
                (true, _) => Err(DropReason::RelayedStray),
                (false, RelayKind::Bare) => Ok(None),
                (false, _) => sa.window.check(found.sequence).map(Some),
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
    fn strip(
        &self,
        buf: &mut PacketBuf<'_>,
        covered: &Covered<'_>,
        found: &mut FoundEsp,
        train: &mut EspTrain,
    ) -> Result<(), DropReason> {
        let outer = *found;
        let is_bare = covered.sequence.is_none();
        let icv_len = if is_bare { 0 } else { TAG_LEN };
        let behind = (buf.len() + icv_len).checked_sub(outer.end()).ok_or(DropReason::EspTooShort)?;
        if !(buf.shrink_back(behind) && buf.shrink_front(usize::from(outer.at) + BEFORE_PACKET)) {
            return Err(DropReason::EspTooShort);
        }
        match train.next(buf.data()) {
            Some(next) => *found = next,
            None => self.find(buf.data(), found, train)?,
        }
        // A bare packet must not tell where a peer is.
        if is_bare && found.form == Form::EspInUdp {
            return Err(DropReason::RelayedStray);
        }
        let class = tunnel::inner_class(covered.sa.copy, outer.class, found.class)
            .ok_or(DropReason::EcnNotCapable)?;
        if class != found.class {
            mark(buf, class)?;
            found.class = class;
        }
        Ok(())
    }

    /// Finds ESP or AH to us: a filter has seen nothing else, and the kernel must not get it.
    fn find(&self, packet: &[u8], found: &mut FoundEsp, train: &mut EspTrain) -> Result<(), DropReason> {
        match demux::sort(packet, self.local, self.udp_port, found) {
            Ok(OuterKind::Esp) => {}
            Ok(OuterKind::Ike | OuterKind::Fragment) => return Err(DropReason::RelayedStray),
            Err(DropReason::Malformed) => return Err(DropReason::MalformedInner),
            Err(DropReason::NotEsp) => {
                demux::sort_ah(packet, found).map_err(|_| DropReason::RelayedStray)?;
            }
            Err(_) => return Err(DropReason::RelayedStray),
        }
        // Nor does anything but an SA of a peer go by this kind of relay SA.
        if Spi::RELAY.contains(&Spi(found.spi)) {
            return Err(DropReason::RelayedStray);
        }
        if found.form == Form::Esp {
            train.follow(packet, found);
        }
        Ok(())
    }
}

/// Marks a packet for congestion.
#[cold]
fn mark(buf: &mut PacketBuf<'_>, class: u8) -> Result<(), DropReason> {
    let inner = Inner::parse(buf.data(), Direction::In).map_err(|_| DropReason::MalformedInner)?;
    inner.set_class(buf.data_mut(), class);
    Ok(())
}

/// Takes the authentic packets into the windows of their relay SAs.
fn accept(covered: &mut [Covered<'_>]) {
    for run in covered.chunk_by_mut(|a, b| std::ptr::eq(a.sa, b.sa)) {
        let Some(window) = run.first().map(|covered| &covered.sa.window) else { continue };
        let number = |covered: &Covered<'_>| covered.sequence.filter(|_| covered.verdict.is_ok());
        window.accept_run(run, number, |covered, reason| covered.verdict = Err(reason));
    }
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
        let Some(sequence) = covered.sequence else { continue };
        match found.and_then(|found| job(item.buf.data_mut(), covered.sa, sequence, found)) {
            Some(job) => jobs.push(job),
            None => covered.verdict = Err(DropReason::EspTooShort),
        }
    }
    open_burst(&mut jobs);
    let opened = covered.iter_mut().filter(|covered| covered.verdict.is_ok());
    let numbered = opened.filter_map(|covered| covered.sequence.map(|sequence| (covered, sequence)));
    for ((covered, sequence), job) in numbered.zip(&jobs) {
        if !job.ok {
            covered.verdict = Err(covered.sa.window.blame(sequence));
        }
    }
}

/// The cipher's job. `None` if the packet is too short.
#[inline]
fn job<'a>(packet: &'a mut [u8], sa: &'a InboundSa, sequence: u64, found: &FoundEsp) -> Option<OpenJob<'a>> {
    let SaKey::Aead(key) = &sa.key else { return None };
    let esp = packet.get_mut(usize::from(found.at)..found.end())?;
    let (before, body) = esp.split_first_chunk_mut::<BEFORE_PACKET>()?;
    let (_, iv) = before.split_last_chunk::<IV_LEN>()?;
    let (packet, tag) = body.split_last_chunk_mut::<TAG_LEN>()?;
    let head_len = packet.len().min(HEAD_LEN);
    let (text, _) = packet.split_at_mut_checked(head_len)?;
    let aad = Aad::of_esp(sa.spi.0, sequence, sa.esn);
    Some(OpenJob { key, iv: *iv, aad, text, tag, ok: false })
}
