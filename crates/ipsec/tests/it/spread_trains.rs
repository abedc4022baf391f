//! Trains of spread SAs: packets with the headers of the first, which still have lanes of their own.

use crate::cluster::{OTHER_NODE, verdicts};
use crate::harness::{Tunnel, Way, run};
use crate::packets::{v4, v6};
use crate::spread::{half, in_session, key, sender};
use crate::transport::with_options;
use testudo_base::lane::{self, Spread};
use testudo_ipsec::dataplane::{Ingress, Item, Sources, Verdict};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::udp;

/// Octets on both sides of a packet in its frame.
const ROOM: usize = 128;

fn is_here(by: Spread, packet: &[u8]) -> bool {
    half().contains(lane::of_packet(key(), by, packet))
}

/// No other node has them: what is left to the carrier of the lane would be lost.
#[test]
fn a_train_that_only_this_node_has_goes_out_whatever_its_lanes() {
    for by in [Spread::SessionHash, Spread::PacketHash] {
        let mut node = sender(&Tunnel::default(), by, half());
        for session in 0..20 {
            let train: Vec<_> = (0..10).map(|number| in_session(session, number, 100)).collect();
            for ingress in [Ingress::Host, Ingress::HostJoined, Ingress::Piece, Ingress::PortJoined] {
                let found = verdicts(&run(&mut node.plane, Way::Outbound, ingress, &train));
                assert_eq!(found, [Verdict::Forward; 10], "{ingress:?} by {by:?}");
            }
        }
    }
}

/// The filter has counted them: each has a lane of its own, which nothing in the packet shows.
#[test]
fn packets_in_turn_go_by_the_lanes_that_the_filter_has_found() {
    for by in [Spread::PacketRr, Spread::PacketSqf] {
        let mut node = sender(&Tunnel::default(), by, half());
        let lanes = [1, 2, 3, 3, 4, 255, 0];
        let mut frames = lanes.map(|lane| {
            let packet = in_session(7, 1, 100);
            [&[0; ROOM - 1][..], &[lane], &packet, &[0; ROOM]].concat()
        });
        let items = frames.iter_mut().map(|frame| {
            let len = frame.len() - 2 * ROOM;
            Item::new(PacketBuf::new(frame, ROOM, len).unwrap(), Ingress::InTurn)
        });
        let mut items: Vec<Item<'_>> = items.collect();
        node.plane.outbound(&mut items, &Sources::default());
        let found: Vec<Verdict> = items.iter().map(|item| item.verdict).collect();
        let here = |lane: u8| if lane % 2 == 1 { Verdict::Forward } else { OTHER_NODE };
        assert_eq!(found, lanes.map(here), "{by:?}");
    }
}

/// The lane does not read the ports of a packet without eight octets behind its header, so such a
/// packet is of another lane than the rest of its train.
#[test]
fn a_short_packet_does_not_decide_for_its_train() {
    let datagram = |session: u16, len: usize| {
        let header = udp::header(1000 + session, 2000, len as u16);
        [&header[..], &[7; 100]].concat()[..len].to_vec()
    };
    type Build = fn(&[u8]) -> Vec<u8>;
    let kinds: [Build; 3] = [
        |payload| v4(Protocol::UDP, payload),
        |payload| with_options(&v4(Protocol::UDP, payload), &[1; 8]),
        |payload| v6(Protocol::UDP, payload),
    ];
    for build in kinds {
        let mut node = sender(&Tunnel::default(), Spread::SessionHash, half());
        let mut unlike = 0;
        for session in 0..20 {
            let train = [4, 100, 7, 8, 50, 4].map(|len| build(&datagram(session, len)));
            let here = train.each_ref().map(|packet| is_here(Spread::SessionHash, packet));
            unlike += usize::from(here[0] != here[1]);
            let found = verdicts(&run(&mut node.plane, Way::Outbound, Ingress::Flooded, &train));
            assert_eq!(found, here.map(|here| if here { Verdict::Forward } else { OTHER_NODE }));
        }
        assert!(unlike > 0);
    }
}
