use super::*;

const VIP: &str = "192.0.2.1";
const VIP6: &str = "2001:db8::1";
const PEER: &str = "198.51.100.9";
const PEER6: &str = "2001:db8:ffff::9";

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn dispatch() -> Dispatch {
    let prefix = |text: &str, length, home| ((addr(text), length), home);
    Dispatch {
        vips: [VIP, VIP6].map(addr).into(),
        addresses: [addr("192.0.2.11")].into(),
        prefixes: BTreeMap::from([
            prefix("10.0.0.0", 8, PrefixHome::Ambiguous),
            prefix("10.2.0.0", 16, PrefixHome::Shard(Shard(42))),
            prefix("10.2.9.0", 24, PrefixHome::Pass),
            prefix("10.4.0.0", 16, PrefixHome::Spread(Shard(42), Spread::PacketHash)),
            prefix("::", 0, PrefixHome::Shard(Shard(43))),
            prefix("2001:db8:4::", 48, PrefixHome::Spread(Shard(43), Spread::SessionHash)),
        ]),
        spread: [SPREAD].into(),
        key: SipKey::new([3; 16]),
        routed: false,
    }
}

fn v4(src: &str, dst: &str, protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (addr(src), addr(dst)) else { unreachable!("IPv4") };
    let total = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(field.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(payload);
    packet
}

fn v6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (addr(src), addr(dst)) else { unreachable!("IPv6") };
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(payload);
    packet
}

fn udp(port: u16, data: &[u8]) -> Vec<u8> {
    let length = (8 + data.len()) as u16;
    [&[0x11, 0x94][..], &port.to_be_bytes(), &length.to_be_bytes(), &[0, 0], data].concat()
}

fn ike(initiator: [u8; 8], responder: [u8; 8], flags: u8) -> Vec<u8> {
    [&initiator[..], &responder, &[0, 0x20, 34, flags, 0, 0, 0, 0, 0, 0, 0, 28]].concat()
}

const ESP: [u8; 12] = [0xc0, 1, 2, 3, 0, 0, 0, 1, 9, 9, 9, 9];
/// An SA that is spread.
const SPREAD: Spi = Spi(0xc009_0909);
const THEIRS: [u8; 8] = [0x77; 8];
const OURS: [u8; 8] = [5, 1, 1, 1, 1, 1, 1, 1];

/// The home of a flooded packet.
fn flooded(packet: &[u8]) -> Option<Home> {
    dispatch().home(Arrival::Flooded, packet)
}

#[test]
fn esp_goes_by_its_spi_in_udp_too() {
    let home = Some(Home::Packets(Shard(0xc0)));
    assert_eq!(flooded(&v4(PEER, VIP, 50, 0, &ESP)), home);
    assert_eq!(flooded(&v6(PEER6, VIP6, 50, &ESP)), home);
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0, &udp(4500, &ESP))), home);
    let behind_options = [&[50, 0, 1, 4, 0, 0, 0, 0][..], &ESP].concat();
    assert_eq!(flooded(&v6(PEER6, VIP6, 60, &behind_options)), home);
    // Whatever MAC address it came by: replay protection is in one place.
    assert_eq!(dispatch().home(Arrival::Own, &v4(PEER, VIP, 50, 0, &ESP)), home);
    for packet in [v4(PEER, VIP, 50, 0, &ESP[..7]), v4(PEER, VIP, 17, 0, &udp(4500, &[0xff]))] {
        assert_eq!(flooded(&packet), None);
    }
}

#[test]
fn ike_goes_by_the_spi_that_we_chose() {
    let by = |initiator, responder, flags| {
        let message = ike(initiator, responder, flags);
        let home = flooded(&v4(PEER, VIP, 17, 0, &udp(500, &message)));
        let marked = [&[0; 4][..], &message].concat();
        assert_eq!(flooded(&v6(PEER6, VIP6, 17, &udp(4500, &marked))), home);
        home
    };
    assert_eq!(by(THEIRS, OURS, 0x08), Some(Home::Ike(Shard(5))), "the peer began, and asks");
    assert_eq!(by(THEIRS, OURS, 0x28), Some(Home::Ike(Shard(5))), "the peer began, and answers");
    assert_eq!(by(OURS, THEIRS, 0x20), Some(Home::Ike(Shard(5))), "we began, the peer answers");
    assert_eq!(by(OURS, THEIRS, 0x00), Some(Home::Ike(Shard(5))), "we began, the peer asks");
    let hashed = Some(Home::Ike(dispatch().key.initiator(THEIRS)));
    assert_eq!(by(THEIRS, [0; 8], 0x08), hashed, "the peer begins");
    assert_eq!(by([0; 8], [0; 8], 0x20), Some(Home::Ike(Shard(0))), "nonsense has the home that it names");
    let cut = ike(THEIRS, OURS, 8);
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0, &udp(500, &cut[..27]))), Some(Home::DefaultHost));
}

#[test]
fn the_first_fragment_has_a_home_and_the_later_ones_go_everywhere() {
    let message = udp(500, &ike(THEIRS, OURS, 8));
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0x2000, &message)), Some(Home::Ike(Shard(5))));
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0x2000, &message[..16])), None);
    assert_eq!(flooded(&v4(PEER, VIP, 17, 5, &[0; 16])), Some(Home::Everybody));
    let marked = udp(4500, &[&[0; 4][..], &ike(THEIRS, OURS, 8)].concat());
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0x2000, &marked)), Some(Home::Ike(Shard(5))));
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0x2000, &udp(4500, &[7; 40]))), Some(Home::Everybody));
    assert_eq!(flooded(&v4(PEER, VIP, 17, 0x2000, &udp(4500, &[7; 3]))), None);
    assert_eq!(flooded(&v4(PEER, VIP, 50, 0x2000, &[7; 40])), Some(Home::Everybody));
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    assert_eq!(flooded(&v4(PEER, VIP, 1, 0x2000, &echo)), Some(Home::DefaultHost));
    let fragment6 = |field: [u8; 2]| [&[17, 0][..], &field, &[0, 0, 0, 9], &message].concat();
    assert_eq!(flooded(&v6(PEER6, VIP6, 44, &fragment6([0, 1]))), Some(Home::Ike(Shard(5))));
    assert_eq!(flooded(&v6(PEER6, VIP6, 44, &fragment6([0, 9]))), Some(Home::Everybody));
}

#[test]
fn errors_go_everywhere_and_the_rest_to_the_default_host() {
    let icmp = |kind| v4(PEER, VIP, 1, 0, &[kind, 4, 0, 0, 0, 0, 5, 0]);
    assert_eq!(flooded(&icmp(3)), Some(Home::Everybody));
    assert_eq!(flooded(&icmp(8)), Some(Home::DefaultHost));
    assert_eq!(flooded(&v6(PEER6, VIP6, 58, &[2, 0, 0, 0, 0, 0, 5, 0])), Some(Home::Everybody));
    assert_eq!(flooded(&v6(PEER6, VIP6, 58, &[128, 0, 0, 0, 0, 0, 0, 0])), Some(Home::DefaultHost));
    assert_eq!(flooded(&v4(PEER, VIP, 6, 0, &[0; 20])), Some(Home::DefaultHost));
    assert_eq!(dispatch().home(Arrival::Own, &icmp(8)), Some(Home::DefaultHost));
}

#[test]
fn clear_traffic_goes_by_its_prefix_and_what_is_bypassed_by_its_addresses() {
    let to = |dst: &str| flooded(&v4("172.16.0.7", dst, 6, 0, &[0; 20]));
    let pair = |dst: &str| Some(Home::Pair(dispatch().key.pair(addr("172.16.0.7"), addr(dst))));
    assert_eq!(to("10.2.3.4"), Some(Home::Packets(Shard(42))));
    assert_eq!(to("10.3.3.4"), Some(Home::Ambiguous));
    assert_eq!(to("10.2.9.4"), pair("10.2.9.4"));
    assert_eq!(to(PEER), pair(PEER));
    assert_eq!(
        to("192.0.2.11"),
        pair("192.0.2.11"),
        "a node's own address is one of the others' to the others"
    );
    assert_eq!(to("224.0.0.5"), Some(Home::Own));
    assert_eq!(flooded(&v6(PEER6, "2001:db8:5::1", 6, &[])), Some(Home::Packets(Shard(43))));
    let direct = |dst: &str| dispatch().home(Arrival::Own, &v4("172.16.0.7", dst, 6, 0, &[0; 20]));
    assert_eq!(direct(PEER), Some(Home::Own));
    assert_eq!(direct("10.2.3.4"), Some(Home::Packets(Shard(42))));
}

/// Their home shard decides about nothing.
#[test]
fn packets_of_a_spread_tunnel_go_by_their_lanes() {
    let mut lanes = BTreeSet::new();
    for number in 0..2000_u32 {
        let esp = [&SPREAD.0.to_be_bytes()[..], &number.to_be_bytes(), &[9; 8]].concat();
        let home = Some(Home::Packets(lane::of_number(SPREAD, number)));
        assert_eq!(flooded(&v4(PEER, VIP, 50, 0, &esp)), home);
        assert_eq!(flooded(&v4(PEER, VIP, 17, 0, &udp(4500, &esp))), home);
        assert_eq!(flooded(&v6(PEER6, VIP6, 51, &[&[4, 4, 0, 0][..], &esp].concat())), home);
        assert_eq!(flooded(&v4(PEER, VIP, 50, 0x2000, &esp)), Some(Home::Everybody), "a fragment");

        let tcp = [&[0x9c, 0x40, 0, 80][..], &number.to_be_bytes(), &[0; 12]].concat();
        let one = v4("172.16.0.7", "10.4.3.4", 6, 0, &tcp);
        let lane = lane::of_packet(dispatch().key, Spread::PacketHash, &one);
        assert_eq!(flooded(&one), Some(Home::Packets(lane)));
        assert_eq!(dispatch().home(Arrival::Own, &one), Some(Home::Packets(lane)));
        lanes.insert(lane);
        let of_session = v6(PEER6, "2001:db8:4::1", 6, &tcp);
        let lane = lane::of_packet(dispatch().key, Spread::SessionHash, &of_session);
        assert_eq!(flooded(&of_session), Some(Home::Packets(lane)));
    }
    assert!(lanes.len() > 250, "{}", lanes.len());
}

#[test]
fn exactly_one_of_two_nodes_keeps_a_packet() {
    let half: ShardSet = (0..128).map(Shard).collect();
    let one = Ownership { packets: half, ike: half, default_host: true, ..Ownership::default() };
    let rest = ShardSet::ALL.without(half);
    let other = Ownership { packets: rest, ike: rest, ..Ownership::default() };
    for home in (0..=255).map(Shard).flat_map(|s| [Home::Packets(s), Home::Ike(s), Home::Pair(s)]) {
        assert!(one.keeps(home) != other.keeps(home), "{home:?}");
    }
    assert!(one.keeps(Home::DefaultHost) && !other.keeps(Home::DefaultHost));
    // The worker gets packets of a coming shard, to hold them back. The kernel does not get those
    // that it would answer.
    let next = Ownership { held: half, ..Ownership::default() };
    assert!(next.keeps(Home::Packets(Shard(1))) && !next.keeps(Home::Pair(Shard(1))));
    assert!(one.keeps(Home::Everybody) && other.keeps(Home::Everybody));
    // Unless it is the only one that has the packet.
    let routed = Dispatch { routed: true, ..dispatch() };
    for home in [Home::Packets(Shard(1)), Home::Ike(Shard(1)), Home::Pair(Shard(1)), Home::DefaultHost] {
        assert!(routed.keeps(&other, home) && !dispatch().keeps(&other, home), "{home:?}");
    }
}
