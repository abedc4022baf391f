//! A hub at work, with a spoke drawn for each packet.

use super::sites::{self, HOST, Spoke};
use crate::bench::esp::node::{Link, Node, SetupError};
use crate::bench::esp::rig::Fault;
use crate::bench::esp::{BURST, BURSTS, Suite, traffic};
use crate::bench::stopwatch::Stopwatch;
use testudo_crypto::Library;

/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;

/// The hub, its spokes, and what passes between them.
pub(super) struct Rig {
    hub: Node,
    spokes: Node,
    tunnels: u32,
    size: u16,
    random: Random,
}

impl Rig {
    pub(super) fn new(library: Library, suite: Suite, tunnels: u32, size: u16) -> Result<Self, SetupError> {
        Ok(Self {
            hub: sites::hub(library, suite, tunnels)?,
            spokes: sites::spokes(library, suite, tunnels)?,
            tunnels,
            size,
            random: Random(u64::from(tunnels) + 1),
        })
    }

    /// Sends some bursts to spokes and some back. Only what the hub does is measured.
    pub(super) fn run(&mut self, outward: &mut Stopwatch, inward: &mut Stopwatch) -> Result<(), Fault> {
        let Self { hub, spokes, random, .. } = self;
        let (tunnels, size) = (self.tunnels, self.size);
        let drawn: Vec<Spoke> = (0..PACKETS).map(|_| Spoke(random.below(tunnels))).collect();
        let packets = |to_spoke: bool, ttl| {
            drawn.iter().map(move |spoke| {
                let (src, dst) = if to_spoke { (HOST, spoke.inner()) } else { (spoke.inner(), HOST) };
                traffic::between((src, dst), size, ttl)
            })
        };
        arrive(hub, Link::Lan, packets(true, traffic::TTL))?;
        outward.measure(PACKETS, || turn(hub));
        cross(hub, spokes)?;
        turn(spokes);
        expect(spokes, "decrypting", packets(true, traffic::TTL - 2))?;

        arrive(spokes, Link::Lan, packets(false, traffic::TTL))?;
        turn(spokes);
        cross(spokes, hub)?;
        inward.measure(PACKETS, || turn(hub));
        expect(hub, "decrypting", packets(false, traffic::TTL - 2))
    }
}

fn turn(node: &mut Node) {
    (0..BURSTS).for_each(|_| node.turn());
}

fn arrive(node: &mut Node, link: Link, mut packets: impl Iterator<Item = Vec<u8>>) -> Result<(), Fault> {
    packets.all(|packet| node.arrive(link, &packet)).then_some(()).ok_or(Fault::Full)
}

/// Carries the outer packets from one end to the other.
fn cross(from: &mut Node, to: &mut Node) -> Result<(), Fault> {
    let mut found = 0;
    from.take_sent(Link::Wan, |packet| {
        found += 1;
        to.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
    })?;
    all("encrypting", found)
}

/// Order is kept, so each packet is known.
fn expect(
    node: &mut Node,
    gateway: &'static str,
    packets: impl Iterator<Item = Vec<u8>>,
) -> Result<(), Fault> {
    let (mut found, mut expected) = (0, packets);
    node.take_sent(Link::Lan, |packet| {
        found += 1;
        (expected.next().as_deref() == Some(packet)).then_some(()).ok_or(Fault::Altered)
    })?;
    all(gateway, found)
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    (found == PACKETS).then_some(()).ok_or(Fault::Lost { gateway, found, expected: PACKETS })
}

/// The same numbers in each run (Steele, Lea and Flood's SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(bound)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_all_spokes_come_through() {
        let mut rig = Rig::new(Library::detect(), Suite::AES128GCM16, 700, 100).expect("a rig");
        let [mut outward, mut inward] = [const { Stopwatch::new() }; 2];
        for _ in 0..8 {
            rig.run(&mut outward, &mut inward).expect("nothing is lost");
        }
        assert_eq!((outward.packets(), inward.packets()), (8 * PACKETS as u64, 8 * PACKETS as u64));
    }

    #[test]
    fn spokes_are_drawn_alike() {
        let mut random = Random(1);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
