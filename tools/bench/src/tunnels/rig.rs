//! A hub at work, with a random spoke for each packet.

use super::sites::{self, HOST, Spoke};
use crate::esp::node::{Link, Node, SetupError};
use crate::esp::rig::Fault;
use crate::esp::traffic::{TTL, Template};
use crate::esp::{BURST, BURSTS, Suite};
use crate::stopwatch::Stopwatch;
use testudo_crypto::Library;

/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;

/// The hub, its spokes, and the packets between them.
pub(super) struct Rig {
    hub: Node,
    spokes: Node,
    tunnels: u32,
    random: Random,
}

/// Packets of one size, as they leave their host and as they arrive at another, two hops later.
pub(super) struct Packets {
    sent: Template,
    expected: Template,
}

/// The direction of packets.
#[derive(Clone, Copy, Debug)]
enum Way {
    ToSpoke,
    FromSpoke,
}

impl Packets {
    pub(super) fn of(size: u16) -> Self {
        Self { sent: Template::new(size, TTL), expected: Template::new(size, TTL - 2) }
    }
}

impl Way {
    /// The packet of a template in this direction.
    fn packet(self, template: &mut Template, spoke: Spoke) -> &[u8] {
        match self {
            Self::ToSpoke => template.between(HOST, spoke.inner()),
            Self::FromSpoke => template.between(spoke.inner(), HOST),
        }
    }
}

impl Rig {
    pub(super) fn new(library: Library, suite: Suite, tunnels: u32) -> Result<Self, SetupError> {
        Ok(Self {
            hub: sites::hub(library, suite, tunnels)?,
            spokes: sites::spokes(library, suite, tunnels)?,
            tunnels,
            random: Random(u64::from(tunnels) + 1),
        })
    }

    /// Sends some bursts to spokes and some back. Only the hub's work is measured.
    pub(super) fn run(
        &mut self,
        packets: &mut Packets,
        outward: &mut Stopwatch,
        inward: &mut Stopwatch,
    ) -> Result<(), Fault> {
        let Self { hub, spokes, random, tunnels } = self;
        let Packets { sent, expected } = packets;
        let drawn: Vec<Spoke> = (0..PACKETS).map(|_| Spoke(random.below(*tunnels))).collect();
        arrive(hub, sent, Way::ToSpoke, &drawn)?;
        outward.measure(PACKETS, || turn(hub));
        cross(hub, spokes)?;
        turn(spokes);
        expect(spokes, expected, Way::ToSpoke, &drawn)?;

        arrive(spokes, sent, Way::FromSpoke, &drawn)?;
        turn(spokes);
        cross(spokes, hub)?;
        inward.measure(PACKETS, || turn(hub));
        expect(hub, expected, Way::FromSpoke, &drawn)
    }
}

fn turn(node: &mut Node) {
    (0..BURSTS).for_each(|_| node.turn());
}

/// Packets arrive from the host behind the node.
fn arrive(node: &mut Node, sent: &mut Template, way: Way, drawn: &[Spoke]) -> Result<(), Fault> {
    let mut spokes = drawn.iter();
    spokes.all(|spoke| node.arrive(Link::Lan, way.packet(sent, *spoke))).then_some(()).ok_or(Fault::Full)
}

/// Transfers the outer packets.
fn cross(from: &mut Node, to: &mut Node) -> Result<(), Fault> {
    let mut found = 0;
    from.take_sent(Link::Wan, |packet| {
        found += 1;
        to.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
    })?;
    all("encrypting", found)
}

/// The order is kept, so each packet is known.
fn expect(node: &mut Node, expected: &mut Template, way: Way, drawn: &[Spoke]) -> Result<(), Fault> {
    let (mut found, mut spokes) = (0, drawn.iter());
    node.take_sent(Link::Lan, |packet| {
        found += 1;
        let is_expected = spokes.next().is_some_and(|spoke| way.packet(expected, *spoke) == packet);
        is_expected.then_some(()).ok_or(Fault::Altered)
    })?;
    all("decrypting", found)
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    (found == PACKETS).then_some(()).ok_or(Fault::Lost { gateway, found, expected: PACKETS })
}

/// The same sequence in each run (Steele, Lea and Flood's SplitMix64).
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
        let mut rig = Rig::new(Library::detect(), Suite::AES128GCM16, 700).expect("a rig");
        let [mut outward, mut inward] = [const { Stopwatch::new() }; 2];
        // The same SAs carry packets of one size after another.
        for size in [100, 1420] {
            let mut packets = Packets::of(size);
            for _ in 0..4 {
                rig.run(&mut packets, &mut outward, &mut inward).expect("nothing is lost");
            }
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
