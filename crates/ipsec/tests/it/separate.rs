//! Separate algorithms for encryption and integrity, and AES-CCM, whose ICV has no one length
//! either.

use crate::harness::{Gateway, HEADROOM, PATH_MTU, POLICY, TAILROOM, Tunnel, forwarded, net, pair, set_spd};
use crate::packets::{one_hop_on, sized, v4_with};
use std::collections::HashSet;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Command, Event, Ingress, Item, PolicyBlock, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{
    AesKey, CcmAlgorithm, ChildSaParams, Cipher, EspAlgorithm, IcvLen, InboundSa, Mac, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, Policy, PolicyId};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;

/// Algorithms in every kind of tunnel.
fn tunnels() -> impl Iterator<Item = Tunnel> {
    let others = EspAlgorithm::all().filter(|algorithm| algorithm.aead().is_none());
    others.flat_map(|algorithm| Tunnel::all().map(move |tunnel| Tunnel { algorithm, ..tunnel }))
}

fn two_hops_on(packet: &[u8]) -> Vec<u8> {
    one_hop_on(&one_hop_on(packet))
}

/// Octets of ESP's header and IV, and of the ICV.
fn around(tunnel: &Tunnel) -> (usize, usize) {
    match tunnel.algorithm {
        EspAlgorithm::Separate(algorithm) => (algorithm.before_text(), algorithm.mac.icv_len()),
        EspAlgorithm::Ccm(algorithm) => (16, algorithm.icv.octets()),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn every_size_with_every_algorithm() {
    for tunnel in tunnels() {
        let (mut a, mut b) = pair(&tunnel);
        let mtu = usize::from(a.outbound.inner_mtu());
        let sizes: Vec<usize> = (28..120).chain(mtu - 40..=mtu).collect();
        let mut largest = 0;
        for sizes in sizes.chunks(64) {
            let packets: Vec<_> =
                sizes.iter().map(|size| sized(size % 3 == 0 && *size >= 48, *size)).collect();
            let outer = forwarded(a.outbound(&packets));
            largest = outer.iter().map(Vec::len).max().max(Some(largest)).unwrap();
            let expected: Vec<_> = packets.iter().map(|packet| two_hops_on(packet)).collect();
            assert_eq!(forwarded(b.inbound(&outer)), expected, "{tunnel:?}");
        }
        let path = usize::from(PATH_MTU);
        assert!(largest <= path && largest > path - 16, "{tunnel:?}: {largest}");
    }
}

#[test]
fn every_bit_of_a_packet_counts() {
    for tunnel in tunnels() {
        let (mut a, mut b) = pair(&tunnel);
        let good = forwarded(a.outbound(&[sized(true, 60)])).remove(0);
        let (before, icv) = around(&tunnel);
        let outer = if tunnel.outer_v6 { 40 } else { 20 } + if tunnel.udp { 8 } else { 0 };
        assert!((good.len() - outer - before - icv).is_multiple_of(4));
        // Behind the SPI, which is nobody's when it is another.
        for at in outer + 4..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let verdict = b.inbound(&[bad])[0].0;
            assert!(matches!(verdict, Verdict::Drop(_)), "{tunnel:?}, octet {at}: {verdict:?}");
        }
        assert_eq!(b.inbound.window().high_water_mark(), 0);
        assert_eq!(forwarded(b.inbound(&[good])).len(), 1);
    }
}

/// Nothing is looked at that cannot be a packet of the SA's algorithms.
#[test]
fn packets_too_short_for_their_algorithm_are_refused() {
    for tunnel in tunnels().filter(|tunnel| tunnel.udp && !tunnel.outer_v6) {
        let (mut a, mut b) = pair(&tunnel);
        let good = forwarded(a.outbound(&[sized(false, 100)])).remove(0);
        let (before, icv) = around(&tunnel);
        for esp in 24..before + icv + 40 {
            let fits = match tunnel.algorithm {
                EspAlgorithm::Separate(algorithm) => esp >= before + 4 + icv && algorithm.fits(esp),
                _ => esp >= before + 4 + icv,
            };
            let reason = if fits { DropReason::AuthFailed } else { DropReason::EspTooShort };
            let short = crate::forge::around(&tunnel, &good[28..28 + esp]);
            let earlier = b.dropped_inbound(reason);
            assert_eq!(b.inbound(&[short])[0].0, Verdict::Drop(reason), "{tunnel:?}, {esp} octets");
            assert_eq!(b.dropped_inbound(reason), (earlier.0 + 1, earlier.1 + 1));
        }
        assert_eq!(forwarded(b.inbound(&[good])).len(), 1);
    }
}

#[test]
fn ivs_cannot_be_foretold_and_differ() {
    let separate = |tunnel: &Tunnel| matches!(tunnel.algorithm, EspAlgorithm::Separate(_));
    for tunnel in tunnels().filter(|tunnel| separate(tunnel) && !tunnel.outer_v6 && !tunnel.udp) {
        let (mut a, _) = pair(&tunnel);
        let outer = forwarded(a.outbound(&vec![sized(false, 100); 64]));
        let (before, _) = around(&tunnel);
        let ivs: HashSet<_> = outer.iter().map(|packet| packet[28..20 + before].to_vec()).collect();
        if before == 8 {
            continue;
        }
        assert_eq!(ivs.len(), 64);
        // A number counts up: most octets of it would be the same.
        for at in 0..before - 8 {
            let values: HashSet<_> = ivs.iter().map(|iv| iv[at]).collect();
            assert!(values.len() > 32, "{tunnel:?}, octet {at}: {} values", values.len());
        }
    }
}

#[test]
fn packets_do_not_wait_for_the_schedules_of_keys() {
    for tunnel in tunnels() {
        let params = tunnel.params();
        let unused = |params: &ChildSaParams| {
            Gateway::unused(params, tunnel.library, SequenceBlock::whole(params.esn))
        };
        let (mut a, mut b) = (unused(&params), unused(&params.mirrored()));
        let packets = vec![sized(false, 100); 3];
        for _ in 0..2 {
            let outer = forwarded(a.outbound(&packets));
            assert_eq!(forwarded(b.inbound(&outer)).len(), 3);
            for gateway in [&mut a, &mut b] {
                gateway.plane.drain_events().for_each(drop);
                gateway.expand_keys();
            }
        }
        let events: Vec<Event> = a.plane.drain_events().collect();
        assert_eq!(events, []);
    }
}

/// The same numbers, another end.
#[test]
fn an_sa_that_moves_keeps_its_keys() {
    for tunnel in tunnels().filter(|tunnel| tunnel.udp) {
        let (mut a, mut b) = pair(&tunnel);
        let params = tunnel.params();
        let mut remote = params.remote;
        remote.set_port(61_000);
        let sa = Arc::new(a.outbound.moved(params.local, remote, PATH_MTU).unwrap());
        a.plane.apply(Command::SetOutbound(POLICY, sa));
        let after = forwarded(a.outbound(&[sized(false, 100)]));
        let ports_at = if tunnel.outer_v6 { 40 } else { 20 };
        assert_eq!(after[0][ports_at + 2..ports_at + 4], 61_000u16.to_be_bytes());
        let mut back = after;
        back[0][ports_at + 2..ports_at + 4].copy_from_slice(&4500u16.to_be_bytes());
        assert_eq!(forwarded(b.inbound(&back)).len(), 1);
    }
}

const OTHER: PolicyId = PolicyId(4);

/// A's and B's view of a second SA beside the harness's, for packets to 10.9.0.0/16.
fn beside(tunnel: &Tunnel) -> ChildSaParams {
    let first = tunnel.params();
    ChildSaParams {
        spi_in: Spi(first.spi_in.0 ^ 0x0055_0000),
        spi_out: Spi(first.spi_out.0 ^ 0x0055_0000),
        remote_ts: vec![net("10.9.0.0", "10.9.255.255")],
        ..first
    }
}

fn add(gateway: &mut Gateway, params: &ChildSaParams, library: Library) {
    let inbound = Arc::new(InboundSa::new(params, OTHER, PATH_MTU, library).unwrap());
    let numbers = SequenceBlock::whole(params.esn);
    let outbound = Arc::new(OutboundSa::new(params, OTHER, numbers, PATH_MTU, library).unwrap());
    inbound.expand_key().unwrap();
    outbound.expand_key().unwrap();
    gateway.plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(OTHER))));
    gateway.plane.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
    assert!(gateway.plane.apply(Command::AddInbound(inbound)).is_none());
    assert!(gateway.plane.apply(Command::SetOutbound(OTHER, outbound)).is_none());
}

/// Every other packet of a burst is for an AEAD, and some of each are forged: each gets the verdict
/// that is its own.
#[test]
fn bursts_may_mix_algorithms() {
    let separate = EspAlgorithm::separate(Cipher::Aes192Cbc, Mac::HmacSha256_128);
    let ccm = EspAlgorithm::Ccm(CcmAlgorithm { key: AesKey::Aes256, icv: IcvLen::Eight });
    for (first, second) in [
        (EspAlgorithm::Aes128Gcm16, separate),
        (separate, EspAlgorithm::Aes256Gcm16),
        (ccm, separate),
        (EspAlgorithm::Aes128Gcm16, ccm),
    ] {
        for library in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
            let [first, second] =
                [first, second].map(|algorithm| Tunnel { algorithm, library, ..Tunnel::default() });
            let (mut a, mut b) = pair(&first);
            let other = beside(&second);
            add(&mut a, &other, library);
            add(&mut b, &other.mirrored(), library);
            let policy = |params: &ChildSaParams, id| Policy {
                priority: 0,
                local: params.local_ts.clone(),
                remote: params.remote_ts.clone(),
                action: Action::Protect(id),
            };
            set_spd(&mut a.plane, vec![policy(&first.params(), POLICY), policy(&other, OTHER)]);
            let (back, other_back) = (first.params().mirrored(), other.mirrored());
            set_spd(&mut b.plane, vec![policy(&back, POLICY), policy(&other_back, OTHER)]);
            let packet = |at: usize| {
                let dst = if at.is_multiple_of(2) { [10, 2, 0, 2] } else { [10, 9, 0, 2] };
                v4_with(|f| f.dst = dst.into(), Protocol(99), &vec![at as u8; 10 + at * 17])
            };
            let packets: Vec<_> = (0..64).map(packet).collect();
            let mut outer = forwarded(a.outbound(&packets));
            let forged = |at: usize| at % 7 == 3;
            for (_, packet) in outer.iter_mut().enumerate().filter(|(at, _)| forged(*at)) {
                *packet.last_mut().unwrap() ^= 1;
            }
            for (at, (verdict, found)) in b.inbound(&outer).into_iter().enumerate() {
                if forged(at) {
                    assert_eq!(verdict, Verdict::Drop(DropReason::AuthFailed));
                } else {
                    assert_eq!((verdict, found), (Verdict::Forward, two_hops_on(&packets[at])));
                }
            }
        }
    }
}

#[test]
fn no_packet_costs_an_allocation() {
    for tunnel in tunnels() {
        let (mut a, mut b) = pair(&tunnel);
        let packets: Vec<_> = (40..104).map(|len| sized(false, len)).collect();
        // A thread's own data is allocated with its first burst.
        forwarded(a.outbound(&packets));
        let mut frames: Vec<Vec<u8>> =
            packets.iter().map(|p| [&[0; HEADROOM][..], p, &[0; TAILROOM]].concat()).collect();
        let mut items: Vec<Item<'_>> = frames
            .iter_mut()
            .zip(&packets)
            .map(|(frame, p)| Item::new(PacketBuf::new(frame, HEADROOM, p.len()).unwrap(), Ingress::Port))
            .collect();
        let info = allocation_counter::measure(|| {
            a.plane.outbound(&mut items, &Sources::default());
            b.plane.inbound(&mut items);
        });
        assert_eq!(info.count_total, 0, "{tunnel:?}");
        assert_eq!(b.plane.counters().totals().inbound.forwarded, 64);
    }
}
