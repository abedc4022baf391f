//! host - first node - carrier - peer - host: every packet reaches the first node, which does not
//! carry the tunnel.

use super::super::gateway::{Membership, Side, relaying};
use super::super::node::{Link, Node, SetupError};
use super::super::rig::Fault;
use super::super::traffic::{self, DESTINATION, SOURCE, Template, Traffic};
use super::super::{BURST, BURSTS, Suite};
use crate::stopwatch::Stopwatch;
use testudo_base::spi::RelayKind;
use testudo_crypto::Library;

/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;

/// Two nodes of a cluster, the peer, and the packets of both hosts.
pub(crate) struct RelayLine {
    first: Node,
    carrier: Node,
    peer: Node,
    ways: [Way; 2],
}

/// The packets of one direction.
struct Way {
    /// Used cyclically.
    sent: Vec<Vec<u8>>,
    /// The same behind both gateways.
    expected: Vec<Vec<u8>>,
}

impl RelayLine {
    /// A line whose nodes relay by these kinds of SAs.
    pub(crate) fn new(
        library: Library,
        suite: Suite,
        traffic: Traffic,
        kinds: &[RelayKind],
    ) -> Result<Self, SetupError> {
        let way = |src, dst| {
            let packets = |ttl: u8| {
                let packet = |size: &u16| Template::new(*size, ttl).between(src, dst).to_vec();
                traffic.sizes().iter().map(packet).collect()
            };
            Way { sent: packets(traffic::TTL), expected: packets(traffic::TTL - 2) }
        };
        let [first, carrier] = [false, true].map(|carries| {
            let (pipeline, neighbour) = relaying(library, suite, kinds, carries)?;
            Node::relaying(pipeline, neighbour)
        });
        Ok(Self {
            first: first?,
            carrier: carrier?,
            peer: Node::new(Side::Far, library, suite, Membership::Home, true)?,
            ways: [way(SOURCE, DESTINATION), way(DESTINATION, SOURCE)],
        })
    }

    /// Sends some bursts from end to end in both directions. Measures, by direction, the first node
    /// and the carrier.
    pub(crate) fn run(&mut self, watches: &mut [[Stopwatch; 2]; 2]) -> Result<(), Fault> {
        let Self { first, carrier, peer, ways: [out, back] } = self;
        let [[out_first, out_carrier], [back_first, back_carrier]] = watches;
        bring(first, Link::Lan, &out.sent)?;
        out_first.measure(PACKETS, || (0..BURSTS).for_each(|_| first.turn()));
        cross("relaying", first, carrier)?;
        out_carrier.measure(PACKETS, || (0..BURSTS).for_each(|_| carrier.turn()));
        cross("carrying", carrier, peer)?;
        (0..BURSTS).for_each(|_| peer.turn());
        expect("decrypting", peer, &out.expected)?;

        bring(peer, Link::Lan, &back.sent)?;
        (0..BURSTS).for_each(|_| peer.turn());
        cross("encrypting", peer, first)?;
        back_first.measure(PACKETS, || (0..BURSTS).for_each(|_| first.turn()));
        cross("relaying", first, carrier)?;
        back_carrier.measure(PACKETS, || (0..BURSTS).for_each(|_| carrier.turn()));
        expect("carrying", carrier, &back.expected)
    }
}

fn bring(node: &mut Node, link: Link, packets: &[Vec<u8>]) -> Result<(), Fault> {
    let all = packets.iter().cycle().take(PACKETS).all(|packet| node.arrive(link, packet));
    all.then_some(()).ok_or(Fault::Full)
}

/// Transfers what one gateway has sent to another one.
fn cross(gateway: &'static str, from: &mut Node, to: &mut Node) -> Result<(), Fault> {
    let mut found = 0;
    from.take_sent(Link::Wan, |packet| {
        found += 1;
        to.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
    })?;
    all(gateway, found)
}

fn expect(gateway: &'static str, node: &mut Node, packets: &[Vec<u8>]) -> Result<(), Fault> {
    let (mut found, mut expected) = (0, packets.iter().cycle());
    node.take_sent(Link::Lan, |packet| {
        found += 1;
        (Some(packet) == expected.next().map(Vec::as_slice)).then_some(()).ok_or(Fault::Altered)
    })?;
    all(gateway, found)
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    let lost = Fault::Lost { gateway, found, expected: PACKETS };
    (found == PACKETS).then_some(()).ok_or(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_comes_out_behind_both_nodes_in_both_directions() {
        let kinds = [&RelayKind::SAS[..], &[RelayKind::Whole]];
        for (size, kinds) in [64, 1420].into_iter().zip(kinds) {
            let (library, suite) = (Library::detect(), Suite::AES128GCM16);
            let mut line = RelayLine::new(library, suite, Traffic::of(size), kinds).expect("nodes");
            let mut watches = [const { [const { Stopwatch::new() }; 2] }; 2];
            for _ in 0..3 {
                line.run(&mut watches).expect("no packet is lost");
            }
            assert!(watches.iter().flatten().all(|watch| watch.packets() == 3 * PACKETS as u64));
        }
    }
}
