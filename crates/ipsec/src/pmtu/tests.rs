use super::*;
use proptest::prelude::*;

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

fn ipv4_packet(protocol: u8, [from, to]: [Ipv4Addr; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

fn esp_header() -> Vec<u8> {
    [0xc0ff_ee01_u32.to_be_bytes(), 77_u32.to_be_bytes()].concat()
}

fn icmp(mut message: Vec<u8>) -> Vec<u8> {
    let check = !sum(&message);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    ipv4_packet(1, [Ipv4Addr::new(10, 9, 9, 9), LOCAL], &message)
}

fn needs(mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let [high, low] = mtu.to_be_bytes();
    icmp([&[3, 4, 0, 0, 0, 0, high, low], quoted].concat())
}

fn too_big(mtu: u16) -> TooBig {
    TooBig {
        local: LOCAL.into(),
        remote: REMOTE.into(),
        spi: Spi(0xc0ff_ee01),
        sequence: 77,
        udp: false,
        mtu,
    }
}

#[test]
fn a_router_quotes_esp_and_esp_in_udp() {
    let quoted = ipv4_packet(ESP, [LOCAL, REMOTE], &esp_header());
    assert_eq!(TooBig::read_ipv4(&needs(1400, &quoted)), Some(too_big(1400)));
    assert_eq!(TooBig::read_ipv4(&needs(100, &quoted)), Some(too_big(576)), "no IPv4 path takes less");
    let udp = [&[0x11, 0x94, 0x30, 0x39, 0, 0, 0, 0][..], &esp_header()].concat();
    let in_udp = ipv4_packet(UDP, [LOCAL, REMOTE], &udp);
    assert_eq!(TooBig::read_ipv4(&needs(1400, &in_udp)), Some(TooBig { udp: true, ..too_big(1400) }));
}

#[test]
fn a_router_quotes_ah_with_its_number() {
    let header = [&[UDP, 4, 0, 0][..], &esp_header()].concat();
    let quoted = ipv4_packet(AH, [LOCAL, REMOTE], &header);
    assert_eq!(TooBig::read_ipv4(&needs(1400, &quoted)), Some(too_big(1400)));
    let no_number = ipv4_packet(AH, [LOCAL, REMOTE], &header[..8]);
    assert_eq!(TooBig::read_ipv4(&needs(1400, &no_number)), None, "eight octets show the SPI alone");
}

#[test]
fn icmp_errors_without_esp_are_ignored() {
    let quoted = ipv4_packet(ESP, [LOCAL, REMOTE], &esp_header());
    assert_eq!(TooBig::read_ipv4(&needs(0, &quoted)), None, "a router from before RFC 1191");
    assert!(TooBig::read_ipv4(&needs(1499, &quoted)).is_some());
    assert_eq!(TooBig::read_ipv4(&needs(1500, &quoted)), None, "what is quoted would have fitted");
    let mut damaged = needs(1400, &quoted);
    damaged[27] ^= 1;
    assert_eq!(TooBig::read_ipv4(&damaged), None, "its checksum is wrong");
    let other = |kind: u8, code: u8| icmp([&[kind, code, 0, 0, 0, 0, 5, 120], &quoted[..]].concat());
    assert_eq!(TooBig::read_ipv4(&other(3, 3)), None, "port unreachable");
    assert_eq!(TooBig::read_ipv4(&other(11, 4)), None);
    assert!(TooBig::read_ipv4(&other(3, 4)).is_some());
    for protocol in [1, 6, UDP] {
        let quoted = ipv4_packet(protocol, [LOCAL, REMOTE], &esp_header());
        assert_eq!(TooBig::read_ipv4(&needs(1400, &quoted)), None, "protocol {protocol}");
    }
    let ike = [&[0x11, 0x94, 0x30, 0x39, 0, 0, 0, 0][..], &[0; 20]].concat();
    assert_eq!(TooBig::read_ipv4(&needs(1400, &ipv4_packet(UDP, [LOCAL, REMOTE], &ike))), None, "IKE");
    let mut later = quoted.clone();
    later[7] = 1;
    assert_eq!(TooBig::read_ipv4(&needs(1400, &later)), None, "a later fragment has no ESP header");
}

#[test]
fn ipv6_tells_the_same() {
    let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|addr| addr.parse::<Ipv6Addr>().unwrap());
    let message = |mtu: u32, next: u8| {
        let mut packet =
            [&[2, 0, 0, 0][..], &mtu.to_be_bytes(), &[0x60, 0, 0, 0, 0x05, 0xb4, next, 64]].concat();
        packet.extend([local.octets(), remote.octets()].concat());
        if next == FRAGMENT {
            packet.extend([ESP, 0, 0, 1, 0, 0, 0, 9]);
        }
        packet.extend(esp_header());
        packet
    };
    let found = TooBig::read_ipv6(&message(1400, ESP)).unwrap();
    assert_eq!(TooBig::read_ipv6(&message(1400, FRAGMENT)), Some(found));
    let mut later = message(1400, FRAGMENT);
    later[8 + 40 + 3] = 9;
    assert_eq!(TooBig::read_ipv6(&later), None, "a later fragment has no ESP header");
    assert_eq!((found.local, found.remote), (local.into(), remote.into()));
    assert_eq!((found.spi, found.sequence, found.mtu), (Spi(0xc0ff_ee01), 77, 1400));
    assert_eq!(TooBig::read_ipv6(&message(1279, ESP)), None, "RFC 8201 §4");
    assert!(TooBig::read_ipv6(&message(1499, ESP)).is_some());
    for mtu in [1500, 90_000] {
        assert_eq!(TooBig::read_ipv6(&message(mtu, ESP)), None, "what is quoted would have fitted");
    }
    assert_eq!(TooBig::read_ipv6(&message(1400, 6)), None);
}

#[test]
fn only_recently_sent_numbers_are_accepted() {
    let quoted = |sequence| TooBig { sequence, ..too_big(1400) };
    assert!(quoted(1).is_recent(&(1..2)) && quoted(1).is_recent(&(1..MAX_NUMBERS_SINCE_QUOTED + 1)));
    assert!(!quoted(1).is_recent(&(1..MAX_NUMBERS_SINCE_QUOTED + 2)), "long ago");
    assert!(!quoted(2).is_recent(&(1..2)) && !quoted(9).is_recent(&(1..2)), "not yet");
    assert!(!quoted(u32::MAX).is_recent(&(1..5)), "before the first");
    for next in [0, 1, 2, 100] {
        assert!(!quoted(0).is_recent(&(1..next)), "no packet has number 0");
    }
    assert!(quoted(0).is_recent(&(1..(1 << 32) + 1)), "but the low half of one has");
    assert!(quoted(u32::MAX).is_recent(&(1..1 << 32)) && quoted(u32::MAX).is_recent(&(1..(1 << 32) + 5)));
}

#[test]
fn a_learned_mtu_lasts_ten_minutes_and_only_decreases() {
    let mut paths = PathMtus::default();
    let (one, two): (IpAddr, IpAddr) = (REMOTE.into(), LOCAL.into());
    let at = Duration::from_secs;
    let mut learned = |seconds, remote, mtu| {
        paths.learn(at(seconds), remote, mtu);
        paths.get(at(seconds), remote)
    };
    assert_eq!(learned(0, one, 1400), Some(1400));
    assert_eq!(learned(100, one, 1450), Some(1400), "more tells nothing");
    assert_eq!(learned(200, one, 1400), Some(1400), "the same again keeps it");
    assert_eq!(learned(150, one, 1400), Some(1400), "what is older takes nothing from that");
    assert_eq!((learned(300, two, 1300), learned(400, two, 1280)), (Some(1300), Some(1280)));
    assert_eq!((paths.get(at(799), one), paths.get(at(800), one)), (Some(1400), None));
    assert!(paths.expire(at(799)).is_empty());
    assert_eq!(paths.expire(at(800)), [one]);
    assert_eq!(paths.all(at(900)).collect::<Vec<_>>(), [(two, 1280, at(500))]);
    paths.learn(at(1000), two, 1500);
    assert_eq!(paths.get(at(1000), two), Some(1500), "what is too old is not known");
}

#[test]
fn a_repeated_mtu_is_reported_after_half_its_lifetime() {
    let mut paths = PathMtus::default();
    let (one, at) = (REMOTE.into(), Duration::from_secs);
    assert!(paths.is_worth_telling(at(0), one, 1400));
    paths.learn(at(0), one, 1400);
    let worth = |seconds, mtu| paths.is_worth_telling(at(seconds), one, mtu);
    assert!(!worth(0, 1400) && !worth(299, 1400) && worth(300, 1400));
    assert!(worth(0, 1399), "news");
    assert!(!worth(599, 1401), "more tells nothing");
    assert!(worth(600, 1401), "until it is forgotten");
}

#[test]
fn no_path_is_taken_for_less_than_any_must_bear() {
    let mut paths = PathMtus::default();
    let ipv6: IpAddr = "2001:db8::2".parse().unwrap();
    for (remote, smallest) in [(REMOTE.into(), 576), (ipv6, 1280)] {
        paths.learn(Duration::ZERO, remote, 0);
        assert_eq!(paths.get(Duration::ZERO, remote), Some(smallest));
    }
}

#[test]
fn not_more_paths_are_remembered_than_there_is_room_for() {
    let mut paths = PathMtus::default();
    let addr = |number: usize| IpAddr::from(Ipv4Addr::from(number as u32));
    let (then, now) = (Duration::ZERO, Duration::from_secs(599));
    for number in 0..MAX_PATHS + 10 {
        paths.learn(then, addr(number), 1400);
    }
    assert_eq!(paths.0.len(), MAX_PATHS);
    assert_eq!((paths.get(now, addr(0)), paths.get(now, addr(MAX_PATHS))), (Some(1400), None));
    paths.learn(now, addr(0), 1300);
    assert_eq!(paths.get(now, addr(0)), Some(1300), "what is known may become less");
    paths.learn(LIFETIME, addr(MAX_PATHS), 1400);
    assert_eq!(
        (paths.get(LIFETIME, addr(MAX_PATHS)), paths.0.len()),
        (Some(1400), 2),
        "what is too old makes room"
    );
}

proptest! {
    #[test]
    fn any_octets_are_read_without_panic(octets in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = TooBig::read_ipv4(&octets);
        let _ = TooBig::read_ipv6(&octets);
        let _ = TooBig::read_ipv4(&needs(1400, &octets));
    }
}
