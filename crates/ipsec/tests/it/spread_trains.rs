//! Trains of spread SAs: packets with the headers of the first, which still have lanes of their own.

use crate::cluster::{OTHER_NODE, verdicts};
use crate::harness::{Tunnel, Way, run};
use crate::packets::{v4, v6};
use crate::spread::{half, in_session, key, sender};
use crate::transport::with_options;
use testudo_base::lane::{self, Spread};
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_wire::ip::Protocol;
use testudo_wire::udp;

fn is_here(by: Spread, packet: &[u8]) -> bool {
    half().contains(lane::of_packet(key(), by, packet))
}

/// No other node has them: what is left to the carrier of the lane would be lost.
#[test]
fn a_train_that_only_this_node_has_goes_out_whatever_its_lanes() {
    for by in [Spread::Session, Spread::Packet] {
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
        let mut node = sender(&Tunnel::default(), Spread::Session, half());
        let mut unlike = 0;
        for session in 0..20 {
            let train = [4, 100, 7, 8, 50, 4].map(|len| build(&datagram(session, len)));
            let here = train.each_ref().map(|packet| is_here(Spread::Session, packet));
            unlike += usize::from(here[0] != here[1]);
            let found = verdicts(&run(&mut node.plane, Way::Outbound, Ingress::Flooded, &train));
            assert_eq!(found, here.map(|here| if here { Verdict::Forward } else { OTHER_NODE }));
        }
        assert!(unlike > 0);
    }
}
