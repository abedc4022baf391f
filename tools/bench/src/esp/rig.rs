//! The two gateways at work: every packet is encrypted by one, decrypted by the other, and compared
//! with the original.

use super::gateway::{Membership, Side};
use super::node::{Link, Node, SetupError};
use super::suite::Around;
use super::traffic::{self, Traffic};
use super::{BURST, BURSTS, Suite};
use crate::stopwatch::Stopwatch;
use testudo_crypto::Library;
use testudo_wire::{esp, ipv4};

/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;

/// Both gateways, and the packets between them.
pub(crate) struct Rig {
    near: Node,
    far: Node,
    /// Packets of a host, used cyclically.
    sent: Vec<Vec<u8>>,
    /// Packets that the other host must receive: the same with two hops less.
    expected: Vec<Vec<u8>>,
    around: Around,
}

/// A packet was not processed correctly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The benchmark needs more room in ports or pools than there is.
    #[error("a port or a pool of frames is full")]
    Full,
    /// The worker did not forward the packet.
    #[error("{found} packets sent by the {gateway} gateway, expected {expected}")]
    Lost { gateway: &'static str, found: usize, expected: usize },
    /// The bare cipher would be measured with lengths that the pipeline does not encrypt.
    #[error("an outer packet of {found} octets, expected {expected}")]
    Length { found: usize, expected: usize },
    /// The decrypted packet differs from the original.
    #[error("a decrypted packet differs from the one sent")]
    Altered,
}

impl Rig {
    /// Two gateways of that membership each.
    pub(crate) fn new(
        library: Library,
        suite: Suite,
        traffic: Traffic,
        membership: Membership,
    ) -> Result<Self, SetupError> {
        let packets = |ttl| traffic.sizes().iter().map(|size| traffic::packet(*size, ttl)).collect();
        let node = |side| Node::new(side, library, suite, membership, traffic.is_jumbo());
        Ok(Self {
            near: node(Side::Near)?,
            far: node(Side::Far)?,
            sent: packets(traffic::TTL),
            expected: packets(traffic::TTL - 2),
            around: suite.around(),
        })
    }

    /// The number of octets encrypted of each packet, in order.
    pub(crate) fn text_lens(&self) -> Vec<usize> {
        self.sent.iter().map(|packet| text_len(packet, self.around)).collect()
    }

    /// Sends some bursts from end to end.
    pub(crate) fn run(&mut self, outward: &mut Stopwatch, inward: &mut Stopwatch) -> Result<(), Fault> {
        self.encrypt(outward)?;
        self.cross()?;
        self.decrypt(inward)
    }

    fn encrypt(&mut self, watch: &mut Stopwatch) -> Result<(), Fault> {
        let Self { near, sent, .. } = self;
        if !sent.iter().cycle().take(PACKETS).all(|packet| near.arrive(Link::Lan, packet)) {
            return Err(Fault::Full);
        }
        watch.measure(PACKETS, || (0..BURSTS).for_each(|_| near.turn()));
        Ok(())
    }

    /// Transfers the outer packets.
    fn cross(&mut self) -> Result<(), Fault> {
        let Around { before, icv, .. } = self.around;
        let whole = |packet: &Vec<u8>| ipv4::HEADER + before + text_len(packet, self.around) + icv;
        let mut lens = self.sent.iter().map(whole).cycle();
        let mut found = 0;
        self.near.take_sent(Link::Wan, |packet| {
            found += 1;
            let expected = lens.next().unwrap_or_default();
            if packet.len() != expected {
                return Err(Fault::Length { found: packet.len(), expected });
            }
            self.far.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
        })?;
        all("encrypting", found)
    }

    fn decrypt(&mut self, watch: &mut Stopwatch) -> Result<(), Fault> {
        let Self { far, expected, .. } = self;
        watch.measure(PACKETS, || (0..BURSTS).for_each(|_| far.turn()));
        let mut found = 0;
        let mut expected = expected.iter().cycle();
        far.take_sent(Link::Lan, |packet| {
            found += 1;
            (Some(packet) == expected.next().map(Vec::as_slice)).then_some(()).ok_or(Fault::Altered)
        })?;
        all("decrypting", found)
    }
}

/// Octets of a packet that are encrypted: padding and trailer fill words and blocks (RFC 4303
/// §2.4).
fn text_len(packet: &[u8], around: Around) -> usize {
    (packet.len() + esp::TRAILER).next_multiple_of(around.align)
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    let lost = Fault::Lost { gateway, found, expected: PACKETS };
    (found == PACKETS).then_some(()).ok_or(lost)
}
