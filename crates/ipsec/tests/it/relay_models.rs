//! Two nodes of a cluster that relay packets to each other, against the one gateway that they are
//! together: whatever a packet is and whichever node it reaches.

use crate::cluster::verdicts;
use crate::harness::{SPI_A, Tunnel, Way, run};
use crate::packets::{v4_with, v6_with};
use crate::relay_nodes::{Found, PEER, Setting, TRAP_HOME, destination};
use proptest::prelude::*;
use std::net::IpAddr;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ipsec::dataplane::{Dataplane, Ingress, Verdict};
use testudo_wire::ip::Protocol;

/// A burst, and the node that it reaches.
type Burst<T> = (usize, Vec<T>);

fn settings() -> impl Strategy<Value = Setting> {
    let mtus = prop::sample::select(vec![0, 1280, 1500]);
    (0usize..8, any::<bool>(), mtus, any::<bool>()).prop_map(|(bits, net_v6, net_mtu, older)| Setting {
        tunnel: Tunnel::all().nth(bits).unwrap(),
        net_v6,
        net_mtu,
        older,
    })
}

/// Clear packets of every fate, around the MTU among them.
fn clear() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![0usize..60, 1380usize..1500];
    let v4 = (2u8..7, 0u8..4, any::<bool>(), len.clone()).prop_map(|(net, ttl, df, len)| {
        v4_with(|f| (f.dst, f.ttl, f.df) = ([10, net, 0, 2].into(), ttl, df), Protocol(99), &vec![7; len])
    });
    let v6 = (2u16..4, 0u8..4, len).prop_map(|(net, ttl, len)| {
        v6_with(
            |f| (f.dst, f.hop_limit) = (format!("2001:db8:{net}::2").parse().unwrap(), ttl),
            Protocol(99),
            &vec![7; len],
        )
    });
    prop_oneof![4 => v4, 2 => v6, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

/// Whether each node has one of the shards in question, and bursts with the node that each reaches.
fn bursts() -> impl Strategy<Value = (bool, bool, Vec<Burst<Vec<u8>>>)> {
    let burst = (0usize..2, prop::collection::vec(clear(), 1..70));
    (any::<bool>(), any::<bool>(), prop::collection::vec(burst, 1..4))
}

fn shards(first: bool, second: bool) -> ShardSet {
    let sets = [(first, SPI_A.shard()), (second, Shard(SPI_A.shard().0 + 1)), (first, TRAP_HOME)];
    sets.into_iter().filter(|(here, _)| *here).map(|(_, shard)| shard).collect()
}

/// Opens the packets for the peer.
fn opened(peer: &mut Dataplane, sent: &[Found], to: IpAddr) -> Vec<Found> {
    let packets: Vec<Vec<u8>> = sent
        .iter()
        .filter(|(verdict, packet)| {
            matches!(verdict, Verdict::Forward | Verdict::ForwardInPieces { .. }) && destination(packet) == to
        })
        .map(|(_, packet)| packet.clone())
        .collect();
    run(peer, Way::Inbound, Ingress::Port, &packets)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Clear packets of any kind and size, whichever node each burst reaches.
    #[test]
    fn a_clear_packet_comes_out_once_as_from_one_gateway(
        setting in settings(), (first, second, bursts) in bursts(), joined in any::<bool>()
    ) {
        let (mut whole, mut cluster) = (setting.whole(), setting.cluster(shards(first, second)));
        let (mut peer, mut peer_of_whole) = (setting.peer(), setting.peer());
        let to = setting.tunnel.outer(PEER);
        let ingress = if joined { Ingress::PortJoined } else { Ingress::Port };
        for (node, packets) in bursts {
            let expected = run(&mut whole, Way::Outbound, ingress, &packets);
            let (found, _) = cluster.take(node, Way::Outbound, ingress, &packets);
            // Packets stay behind pieces of earlier ones only at the node that splits these.
            let is_behind = |found: &Found| found.0 == Verdict::Behind;
            let (found, expected): (Vec<Found>, Vec<Found>) = found
                .into_iter()
                .zip(expected)
                .filter(|(found, expected)| !is_behind(found) && !is_behind(expected))
                .unzip();
            prop_assert_eq!(verdicts(&found), verdicts(&expected));
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert!(found.0 != Verdict::Reply || found.1 == expected.1);
            }
            prop_assert_eq!(opened(&mut peer, &found, to), opened(&mut peer_of_whole, &expected, to));
        }
    }

    /// ESP in any order, with copies, whichever node each burst reaches.
    #[test]
    fn an_esp_packet_comes_out_once_as_from_one_gateway(
        setting in settings(),
        (first, second) in any::<(bool, bool)>(),
        bursts in prop::collection::vec((0usize..2, prop::collection::vec((2u8..4, 0usize..1400, any::<bool>()), 1..70)), 1..4)
    ) {
        let (mut whole, mut cluster) = (setting.whole(), setting.cluster(shards(first, second)));
        let mut peer = setting.peer();
        for (node, packets) in bursts {
            let inner = |(net, len): (u8, usize)| {
                let ends = ([10, net, 0, 2].into(), [10, 1, 0, 9].into());
                v4_with(|f| (f.src, f.dst) = ends, Protocol(99), &vec![7; len])
            };
            let inners: Vec<_> = packets.iter().map(|(net, len, _)| inner((*net, *len))).collect();
            let sealed = run(&mut peer, Way::Outbound, Ingress::Port, &inners);
            let mut sent = Vec::new();
            for ((_, packet), (.., twice)) in sealed.into_iter().zip(&packets) {
                sent.extend(std::iter::repeat_n(packet, 1 + usize::from(*twice)));
            }
            let expected = run(&mut whole, Way::Inbound, Ingress::Port, &sent);
            let (found, _) = cluster.take(node, Way::Inbound, Ingress::Port, &sent);
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found.0, expected.0);
                if found.0 == Verdict::Forward {
                    prop_assert_eq!(&found.1, &expected.1);
                }
            }
        }
    }
}
