//! The two gateways at work: every packet is encrypted by one, decrypted by the other, and compared with what it was.

use super::gateway::{Side, dataplane};
use super::{BURST, BURSTS, Suite, traffic};
use crate::bench::stopwatch::Stopwatch;
use testudo_crypto::{IV_LEN, Library, TAG_LEN};
use testudo_ipsec::dataplane::{Dataplane, Ingress, Item, Verdict};
use testudo_wire::packet::PacketBuf;
use testudo_wire::{esp, ipv4};

/// Octets of a frame, and where the IP packet begins in it: as in the worker.
const FRAME: usize = 2048;
const HEADROOM: usize = 384 + 14;

/// Both ends and the frames between them.
pub(crate) struct Rig {
    near: Dataplane,
    far: Dataplane,
    memory: Vec<u8>,
    /// What a host sends, and what the other must get: two hops later.
    sent: Vec<u8>,
    expected: Vec<u8>,
}

/// A packet did not come out as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The pipeline did something else than to forward it.
    #[error("a packet was not forwarded {0}: {1:?}")]
    Verdict(&'static str, Verdict),
    /// What was decrypted is not what had been encrypted.
    #[error("a decrypted packet differs from the one sent")]
    Altered,
    /// The bare cipher would be measured on something else than what the pipeline encrypts.
    #[error("an outer packet of {found} octets, expected {expected}")]
    Length { found: usize, expected: usize },
}

impl Rig {
    pub(crate) fn new(library: Library, suite: Suite, size: u16) -> Result<Self, testudo_ipsec::Error> {
        Ok(Self {
            near: dataplane(Side::Near, library, suite)?,
            far: dataplane(Side::Far, library, suite)?,
            memory: vec![0; FRAME * BURST * BURSTS],
            sent: traffic::packet(size, traffic::TTL),
            expected: traffic::packet(size, traffic::TTL - 2),
        })
    }

    /// Octets that are encrypted of each packet: padding and trailer end it on a multiple of 4 (RFC 4303 §2.4).
    pub(crate) fn text_len(&self) -> usize {
        (self.sent.len() + esp::TRAILER).next_multiple_of(4)
    }

    /// Sends some bursts from end to end.
    pub(crate) fn run(&mut self, outward: &mut Stopwatch, inward: &mut Stopwatch) -> Result<(), Fault> {
        let outer_len = ipv4::HEADER + esp::HEADER + IV_LEN + self.text_len() + TAG_LEN;
        let Self { near, far, memory, sent, expected } = self;
        let mut items: Vec<Item<'_>> =
            memory.chunks_exact_mut(FRAME).filter_map(|frame| item(frame, sent)).collect();
        outward.measure(items.len(), || items.chunks_mut(BURST).for_each(|burst| near.outbound(burst)));
        all_forwarded("by outbound", &items)?;
        if let Some(odd) = items.iter().find(|item| item.buf.len() != outer_len) {
            return Err(Fault::Length { found: odd.buf.len(), expected: outer_len });
        }

        inward.measure(items.len(), || items.chunks_mut(BURST).for_each(|burst| far.inbound(burst)));
        all_forwarded("by inbound", &items)?;
        if items.iter().any(|item| item.buf.data() != expected) {
            return Err(Fault::Altered);
        }
        Ok(())
    }
}

fn item<'a>(frame: &'a mut [u8], packet: &[u8]) -> Option<Item<'a>> {
    frame.get_mut(HEADROOM..HEADROOM + packet.len())?.copy_from_slice(packet);
    PacketBuf::new(frame, HEADROOM, packet.len()).map(|buf| Item::new(buf, Ingress::Port))
}

fn all_forwarded(stage: &'static str, items: &[Item<'_>]) -> Result<(), Fault> {
    match items.iter().find(|item| item.verdict != Verdict::Forward) {
        Some(item) => Err(Fault::Verdict(stage, item.verdict)),
        None => Ok(()),
    }
}
