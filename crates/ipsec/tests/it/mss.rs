//! How far the MSS of TCP connections is lowered, as an SA's setting has it.

use crate::cluster::peer;
use crate::harness::{Gateway, PATH_MTU, POLICY, Tunnel, forwarded, pair};
use crate::spread::{member, set_stripes, stripe};
use crate::transport;
use crate::tunnel::{mss_of, syn};
use proptest::prelude::*;
use std::num::NonZeroU16;
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::shard::ShardSet;
use testudo_ipsec::dataplane::Command;
use testudo_ipsec::sa::{EspAlgorithm, Mac, Mss};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::tcp::Tcp;

/// SYN, SYN and ACK, ACK.
const FLAGS: [u8; 3] = [0x02, 0x12, 0x10];

fn at_most(octets: u16) -> Mss {
    Mss::AtMost(NonZeroU16::new(octets).unwrap())
}

fn set(gateway: &Gateway, mss: Mss) {
    gateway.inbound.set_mss(mss);
    gateway.outbound.set_mss(mss);
}

/// What a segment says behind a gateway where `fits` octets fit.
fn expected(mss: Mss, fits: u16, flags: u8, from: u16) -> u16 {
    match mss {
        _ if flags & 0x02 == 0 => from,
        Mss::Off => from,
        Mss::Auto => from.min(fits),
        Mss::AtMost(octets) => from.min(octets.get()).min(fits),
    }
}

fn setting() -> impl Strategy<Value = Mss> {
    let number = prop_oneof![Mss::MIN..=Mss::MAX, 1300..1500_u16].prop_map(at_most);
    prop_oneof![Just(Mss::Auto), Just(Mss::Off), number]
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    let ah = (0..Mac::ALL.len()).prop_map(|at| EspAlgorithm::Ah(Mac::ALL[at]));
    let algorithm = prop_oneof![Just(Tunnel::default().algorithm), ah];
    (0..8_usize, algorithm).prop_map(|(at, algorithm)| {
        let tunnel = Tunnel::all().nth(at).unwrap();
        Tunnel { algorithm, udp: tunnel.udp && !algorithm.is_ah(), ..tunnel }
    })
}

proptest! {
    /// Each end does as it is set, whatever the other does.
    #[test]
    fn each_end_does_as_it_is_set(
        tunnel in tunnel(),
        near in setting(),
        far in setting(),
        is_v6 in any::<bool>(),
        flags in prop::sample::select(&FLAGS[..]),
        from in prop_oneof![any::<u16>(), 1300..1500_u16],
    ) {
        let (mut a, mut b) = pair(&tunnel);
        set(&a, near);
        set(&b, far);
        let headers = if is_v6 { 60 } else { 40 };
        let fits = a.outbound.inner_mtu() - headers;
        let sent = expected(near, fits, flags, from);
        let outer = forwarded(a.outbound(&[syn(is_v6, flags, from)]));
        prop_assert_eq!(a.plane.counters().totals().mss_clamped, u64::from(sent < from));
        let got = expected(far, b.inbound.inner_mtu() - headers, flags, sent);
        prop_assert_eq!(mss_of(&forwarded(b.inbound(&outer))[0]), got);
        prop_assert_eq!(b.plane.counters().totals().mss_clamped, u64::from(got < sent));
    }
}

/// A burst is one train: each of its segments has the setting, and the next one has another.
#[test]
fn a_change_holds_from_the_next_packet_on() {
    let (mut a, mut b) = pair(&Tunnel::default());
    set(&b, Mss::Off);
    let fits = a.outbound.inner_mtu() - 40;
    for (mss, expected) in [(Mss::Auto, fits), (at_most(1000), 1000), (Mss::Off, 1460), (Mss::Auto, fits)] {
        set(&a, mss);
        let sent = forwarded(a.outbound(&vec![syn(false, 2, 1460); 5]));
        let got: Vec<u16> = forwarded(b.inbound(&sent)).iter().map(|packet| mss_of(packet)).collect();
        assert_eq!(got, [expected; 5], "{mss:?}");
    }
}

/// The path may take less than the setting.
#[test]
fn a_number_is_never_above_what_the_path_takes() {
    let (mut a, mut b) = pair(&Tunnel::default());
    set(&a, at_most(1300));
    set(&b, at_most(1300));
    for path_mtu in [1500, 1200] {
        a.outbound.set_path_mtu(path_mtu).unwrap();
        b.inbound.set_path_mtu(path_mtu).unwrap();
        let expected = (a.outbound.inner_mtu() - 40).min(1300);
        let sent = forwarded(a.outbound(&[syn(false, 2, 1460)]));
        assert_eq!(mss_of(&forwarded(b.inbound(&sent))[0]), expected);
    }
}

/// The peer has moved: the SA keeps its setting.
#[test]
fn a_moved_sa_keeps_it() {
    let tunnel = Tunnel { udp: true, ..Tunnel::default() };
    let (mut a, mut b) = pair(&tunnel);
    set(&a, at_most(1000));
    let params = tunnel.params();
    let moved = Arc::new(a.outbound.moved(params.local, params.remote, PATH_MTU).unwrap());
    a.plane.apply(Command::SetOutbound(POLICY, moved));
    let sent = forwarded(a.outbound(&[syn(false, 2, 1460)]));
    assert_eq!(mss_of(&forwarded(b.inbound(&sent))[0]), 1000);
}

#[test]
fn in_transport_mode() {
    let tunnel = Tunnel::default();
    let mut segment = vec![0; 24];
    (segment[12], segment[13]) = (0x60, 2);
    segment[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    for (near, far) in [(at_most(1000), Mss::Auto), (Mss::Off, at_most(1000)), (Mss::Off, Mss::Off)] {
        let params = transport::params(&tunnel);
        let mut a = Gateway::new(&params, tunnel.library);
        let mut b = Gateway::new(&params.mirrored(), tunnel.library);
        set(&a, near);
        set(&b, far);
        let sent = transport::send(&mut a, &[transport::own(&tunnel, Protocol::TCP, &segment)]);
        let got = b.inbound(&[sent[0].1.clone()]);
        let ip = Ipv4::parse_verified(&got[0].1).unwrap();
        let expected = if (near, far) == (Mss::Off, Mss::Off) { 1460 } else { 1000 };
        assert_eq!(Tcp::parse(ip.payload()).unwrap().mss(), Some(expected));
    }
}

/// Each node of a spread tunnel does it, for the lanes that it carries.
#[test]
fn of_a_spread_tunnel() {
    let tunnel = Tunnel { esn: true, ..Tunnel::default() };
    for by in [Spread::SessionHash, Spread::PacketHash] {
        let mut node = member(&tunnel, by, ShardSet::ALL);
        assert!(set_stripes(&mut node, &[stripe(0, 1 << 20, 1)]).is_none());
        set(&node, at_most(1000));
        let mut far = peer(&tunnel);
        set(&far, Mss::Off);
        let sent = forwarded(node.outbound(&vec![syn(false, 2, 1460); 9]));
        for packet in forwarded(far.inbound(&sent)) {
            assert_eq!(mss_of(&packet), 1000);
        }
        set(&node, Mss::Off);
        let sent = forwarded(node.outbound(&[syn(false, 2, 1460)]));
        assert_eq!(mss_of(&forwarded(far.inbound(&sent))[0]), 1460);
    }
}
