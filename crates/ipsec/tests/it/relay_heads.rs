//! ESP and AH that nodes relay to each other: ESP in UDP with encrypted heads, all else bare.

use crate::cluster::{OTHER_NODE, back, verdicts};
use crate::forge::{around, outer};
use crate::harness::{Tunnel, Way, run};
use crate::packets::{sized, v4_with};
use crate::relay::{STRAY, fragment_of, mistaken};
use crate::relay_nodes::{Node, Setting, relayed, relaying};
use proptest::prelude::*;
use std::slice::from_ref;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{RelayKind, Spi};
use testudo_crypto::{Aad, AeadAlgorithm, AeadKey, Library};
use testudo_ipsec::dataplane::{Command, Ingress, Item, RelayParams, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::{EspAlgorithm, Mac};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4;
use testudo_wire::packet::PacketBuf;

/// Octets before the head: IPv4, header of ESP, IV.
const BEFORE: usize = ipv4::HEADER + 16;
const HEAD: usize = 64;
const TAG: usize = 16;

/// The peer sends ESP in UDP.
fn in_udp() -> Setting {
    Setting { tunnel: Tunnel { udp: true, ..Tunnel::default() }, ..Setting::default() }
}

/// ESP of the peer, around packets of 100 octets.
fn esp(setting: Setting, count: usize) -> Vec<Vec<u8>> {
    let sealed = run(&mut setting.peer(), Way::Outbound, Ingress::Port, &back(count));
    sealed.into_iter().map(|(_, packet)| packet).collect()
}

fn spi_of(packet: &[u8]) -> Spi {
    Spi(u32::from_be_bytes(*packet[ipv4::HEADER..].first_chunk().unwrap()))
}

/// A packet of the first node to the second one, as a node with the keys of this kind of SA would
/// make it, but with anything inside.
fn forged(setting: Setting, kind: RelayKind, sequence: u64, inner: &[u8]) -> Vec<u8> {
    let RelayParams { spi_out: Spi(spi), key_out, .. } = setting.relay(kind, 1, 0);
    let (key, salt) = key_out.0.split_last_chunk::<4>().unwrap();
    let key = AeadKey::new(Library::AwsLc, AeadAlgorithm::Aes256Gcm, key, *salt).unwrap();
    let (mut text, mut tag) = (inner.to_vec(), [0; TAG]);
    let head = text.len().min(HEAD);
    let iv = (sequence ^ 0x5a5a_0000_0000_0000).to_be_bytes();
    key.seal(iv, Aad::esp_esn(spi, sequence).as_bytes(), &mut text[..head], &mut tag);
    between(RelayKind::Head, &[&(sequence as u32).to_be_bytes()[..], &iv, &text, &tag].concat())
}

/// Anything behind an SPI between the nodes.
fn between(kind: RelayKind, behind: &[u8]) -> Vec<u8> {
    let spi = Spi::of_relay(kind, 0, 1).unwrap().0.to_be_bytes();
    let ends = ([10, 255, 0, 1].into(), [10, 255, 0, 2].into());
    v4_with(|f| (f.src, f.dst) = ends, Protocol::ESP, &[&spi[..], behind].concat())
}

/// Any packet, as if it had been relayed bare.
fn bare(packet: &[u8]) -> Vec<u8> {
    between(RelayKind::Bare, &[&[0; 12][..], packet].concat())
}

fn arrive(carrier: &mut Node, packet: &[u8]) -> Verdict {
    carrier.take(Way::Inbound, Ingress::Port, &[packet.to_vec()]).remove(0).0
}

#[test]
fn esp_goes_with_an_encrypted_head_and_an_untouched_rest() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    let sent = esp(setting, 2);
    let between = relayed(&mut first, Way::Inbound, &sent);
    for (packet, between) in sent.iter().zip(&between) {
        assert_eq!(spi_of(between).relay_kind(), Some(RelayKind::Head));
        assert_eq!(between.len(), BEFORE + packet.len() + TAG);
        let carried = &between[BEFORE..BEFORE + packet.len()];
        assert_eq!(carried[HEAD..], packet[HEAD..]);
        // No address and no SPI of the peer is to be seen.
        assert!(carried[..HEAD].chunks(4).zip(packet.chunks(4)).all(|(there, here)| there != here));
    }
    let found = second.take(Way::Inbound, Ingress::Port, &between);
    assert_eq!(verdicts(&found), [Verdict::Forward; 2]);
    let totals = second.plane.counters().totals().inbound;
    assert_eq!((totals.received, totals.relayed_in, totals.forwarded), (4, 2, 2));
}

#[test]
fn a_changed_head_or_header_fails_in_the_relay_sa() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    let between = relayed(&mut first, Way::Inbound, &esp(setting, 1)).remove(0);
    for at in (ipv4::HEADER + 4..BEFORE + HEAD).chain(between.len() - TAG..between.len()) {
        let mut changed = between.clone();
        changed[at] ^= 1;
        let verdict = arrive(&mut second, &changed);
        assert!(matches!(verdict, Verdict::Drop(_)), "octet {at}: {verdict:?}");
    }
    assert_eq!(second.plane.counters().totals().inbound.relayed_in, 0);
    assert_eq!(arrive(&mut second, &between), Verdict::Forward);
}

/// The octets behind the head are those of the peer's SA: its ICV fails.
#[test]
fn a_changed_rest_fails_in_the_peers_sa_and_uses_up_none_of_its_numbers() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    let sent = esp(setting, 1);
    let mut between = relayed(&mut first, Way::Inbound, &sent).remove(0);
    between[BEFORE + HEAD] ^= 1;
    assert_eq!(arrive(&mut second, &between), Verdict::Drop(DropReason::AuthFailed));
    // The peer's packet itself is still accepted, relayed again.
    let again = relayed(&mut first, Way::Inbound, &sent).remove(0);
    assert_eq!(arrive(&mut second, &again), Verdict::Forward);
}

#[test]
fn copies_are_refused_by_the_relay_sa_and_by_the_peers() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    let sent = esp(setting, 2);
    let between = relayed(&mut first, Way::Inbound, &sent);
    let replayed = Verdict::Drop(DropReason::Replayed);
    let burst = [between[0].clone(), between[0].clone(), between[1].clone()];
    let found = second.take(Way::Inbound, Ingress::Port, &burst);
    assert_eq!(verdicts(&found), [Verdict::Forward, replayed, Verdict::Forward]);
    assert_eq!(second.plane.counters().totals().inbound.relayed_in, 2);
    // Routers gave a copy of the peer's packet to the first node.
    let again = relayed(&mut first, Way::Inbound, &sent);
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &again)), [replayed; 2]);
    assert_eq!(second.plane.counters().totals().inbound.relayed_in, 4);
}

/// A node that is broken might do so; a stranger has no key.
#[test]
fn nothing_but_esp_and_ah_to_the_gateway_comes_out() {
    let setting = in_udp();
    let [_, mut second] = relaying(setting).0;
    let vip = |protocol, payload: &[u8]| v4_with(|f| f.dst = [192, 0, 2, 1].into(), protocol, payload);
    let clear = v4_with(|f| f.dst = [10, 2, 0, 2].into(), Protocol(99), &[7; 80]);
    let udp = |port: u16| {
        let [high, low] = port.to_be_bytes();
        [&[1, 244, high, low, 0, 80, 0, 0][..], &[0; 72]].concat()
    };
    let relay = |spi: u32| vip(Protocol::ESP, &[&spi.to_be_bytes()[..], &[0; 76]].concat());
    let cases = [
        clear,
        vip(Protocol::ICMP, &[8; 80]),
        vip(Protocol::TCP, &[8; 80]),
        vip(Protocol::UDP, &udp(500)),
        // IKE on the port of ESP in UDP.
        vip(Protocol::UDP, &udp(4500)),
        fragment_of(&vip(Protocol::ESP, &[9; 80])),
        // Relay SAs inside each other.
        relay(256 + 1),
        relay(512 + 1),
        relay(768 + 1),
        // To nobody here.
        v4_with(|f| f.dst = [192, 0, 2, 77].into(), Protocol::ESP, &[9; 80]),
    ];
    for (number, packet) in (1..).zip(&cases) {
        assert_eq!(arrive(&mut second, &forged(setting, RelayKind::Head, number, packet)), STRAY, "{number}");
        assert_eq!(arrive(&mut second, &bare(packet)), STRAY, "{number}");
    }
    let count = 2 * cases.len() as u64;
    assert_eq!(second.plane.counters().dropped(DropReason::RelayedStray), count);
    // Nor a train of them.
    let train: Vec<_> =
        (20..24).map(|number| forged(setting, RelayKind::Head, number, &relay(256 + 1))).collect();
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &train)), [STRAY; 4]);
    let broken = forged(setting, RelayKind::Head, 50, &[0x45; 80]);
    assert_eq!(arrive(&mut second, &broken), Verdict::Drop(DropReason::MalformedInner));
    let empty = forged(setting, RelayKind::Head, 51, &[]);
    assert!(matches!(arrive(&mut second, &empty), Verdict::Drop(_)));
    // Whatever SPI, it waits for its SA or fails in it, as from a port.
    let unknown = vip(Protocol::ESP, &[0x99; 80]);
    for packet in [forged(setting, RelayKind::Head, 52, &unknown), bare(&unknown)] {
        assert_eq!(arrive(&mut second, &packet), Verdict::Early(Spi(0x9999_9999)));
    }
    assert!(matches!(arrive(&mut second, &bare(&[])), Verdict::Drop(_)));
    assert_eq!(arrive(&mut second, &bare(&[0x45; 80])), Verdict::Drop(DropReason::MalformedInner));
}

/// Each kind has a key of its own, so that a packet is what its sender took it for.
#[test]
fn a_packet_of_one_kind_of_relay_sa_is_not_accepted_as_one_of_the_other() {
    let setting = in_udp();
    let [_, mut second] = relaying(setting).0;
    let failed = Verdict::Drop(DropReason::AuthFailed);
    let packet = esp(setting, 1).remove(0);
    assert_eq!(arrive(&mut second, &forged(setting, RelayKind::Whole, 1, &packet)), failed);
    assert_eq!(arrive(&mut second, &forged(setting, RelayKind::Head, 2, &packet)), Verdict::Forward);
}

#[test]
fn clear_packets_never_go_with_an_encrypted_head_only() {
    let setting = in_udp();
    let [mut first, _] = relaying(setting).0;
    let clear = vec![sized(false, 200); 3];
    for packet in relayed(&mut first, Way::Outbound, &clear) {
        assert_eq!(spi_of(&packet).relay_kind(), Some(RelayKind::Whole));
    }
}

#[test]
fn esp_that_is_not_in_udp_and_ah_go_bare() {
    let ah = Tunnel { algorithm: EspAlgorithm::Ah(Mac::HmacSha256_128), ..Tunnel::default() };
    for tunnel in [Tunnel::default(), Tunnel { outer_v6: true, ..Tunnel::default() }, ah] {
        let setting = Setting { tunnel, ..Setting::default() };
        let [mut first, mut second] = relaying(setting).0;
        // It takes no number and no IV.
        first.plane.apply(Command::ForgetSenderId);
        let sent = esp(setting, 3);
        let between = relayed(&mut first, Way::Inbound, &sent);
        for (packet, between) in sent.iter().zip(&between) {
            assert_eq!(spi_of(between).relay_kind(), Some(RelayKind::Bare));
            assert_eq!(between[BEFORE..], packet[..]);
        }
        let mut changed = between[2].clone();
        *changed.last_mut().unwrap() ^= 1;
        let burst = [between[0].clone(), between[0].clone(), between[1].clone(), changed];
        let found = second.take(Way::Inbound, Ingress::Port, &burst);
        let refused = [DropReason::Replayed, DropReason::AuthFailed].map(Verdict::Drop);
        assert_eq!(verdicts(&found), [Verdict::Forward, refused[0], Verdict::Forward, refused[1]]);
        let totals = second.plane.counters().totals().inbound;
        assert_eq!((totals.received, totals.relayed_in, totals.forwarded), (8, 4, 2));
    }
}

/// A gateway follows the source of ESP in UDP. On the cluster network anyone might write another.
#[test]
fn a_bare_packet_does_not_tell_where_a_peer_is() {
    let setting = in_udp();
    let [_, mut second] = relaying(setting).0;
    for packet in esp(setting, 3) {
        assert_eq!(arrive(&mut second, &bare(&packet)), STRAY);
    }
    assert_eq!(second.plane.drain_events().count(), 0);
}

#[test]
fn a_bare_packet_is_relayed_once_more_and_not_inside_itself() {
    let setting = Setting::default();
    let [mut first, mut second] = mistaken(setting);
    let sent = relayed(&mut first, Way::Inbound, &esp(setting, 2));
    let back = relayed(&mut second, Way::Inbound, &sent);
    assert!(back.iter().all(|packet| spi_of(packet).relay_kind() == Some(RelayKind::Whole)));
    assert_eq!(verdicts(&first.take(Way::Inbound, Ingress::Port, &back)), [OTHER_NODE; 2]);
    let found = run(&mut second.plane, Way::Inbound, Ingress::Relayed, &sent);
    assert_eq!(verdicts(&found), [STRAY; 2]);
}

/// The next header of the outer packet tells the carrier that a packet came in fragments, and a head
/// of 64 octets does not reach the SPI behind long options.
#[test]
fn what_a_head_does_not_show_goes_whole() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    let packet = esp(setting, 1).remove(0);
    let joined = first.take(Way::Inbound, Ingress::PortJoined, from_ref(&packet)).remove(0).1;
    assert_eq!(spi_of(&joined).relay_kind(), Some(RelayKind::Whole));
    let mut optioned = packet.clone();
    optioned.splice(20..20, [1; 40]);
    optioned[0] = 0x4f;
    let total = optioned.len() as u16;
    optioned[2..4].copy_from_slice(&total.to_be_bytes());
    optioned[10..12].fill(0);
    let sum = Sum::new().bytes(&optioned[..60]).finish();
    optioned[10..12].copy_from_slice(&sum.to_be_bytes());
    let optioned = relayed(&mut first, Way::Inbound, &[optioned]).remove(0);
    assert_eq!(spi_of(&optioned).relay_kind(), Some(RelayKind::Whole));
    let found = second.take(Way::Inbound, Ingress::Port, &[joined, optioned]);
    assert_eq!(verdicts(&found), [Verdict::Forward, Verdict::Drop(DropReason::Replayed)]);
}

/// Both directions of a rolling upgrade.
#[test]
fn beside_an_older_node_esp_goes_whole() {
    let older = Setting { older: true, ..Setting::default() };
    let packets = esp(older, 2);
    let ([mut first, _], [_, mut second]) = (relaying(older).0, relaying(Setting::default()).0);
    let between = relayed(&mut first, Way::Inbound, &packets);
    assert!(between.iter().all(|packet| spi_of(packet).relay_kind() == Some(RelayKind::Whole)));
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &between)), [Verdict::Forward; 2]);
}

/// A relay SA adds octets before a packet, and most add some behind it.
#[test]
fn a_packet_is_dropped_if_its_frame_has_no_room_for_the_relay_sa() {
    let verdict = |setting: Setting, way, packet: &[u8], before: usize, behind: usize| {
        let [mut first, _] = relaying(setting).0;
        let mut frame = [&vec![0; before][..], packet, &vec![0; behind]].concat();
        let buf = PacketBuf::new(&mut frame, before, packet.len()).unwrap();
        let mut item = [Item::new(buf, Ingress::Port)];
        match way {
            Way::Inbound => first.plane.inbound(&mut item),
            _ => first.plane.outbound(&mut item, &Sources::default()),
        }
        item[0].verdict
    };
    let no_room = Verdict::Drop(DropReason::NoRoom);
    for setting in [in_udp(), Setting::default()] {
        let from_peer = esp(setting, 1).remove(0);
        for (way, packet) in [(Way::Inbound, &from_peer), (Way::Outbound, &sized(false, 100))] {
            assert_eq!(verdict(setting, way, packet, 192, 64), Verdict::Forward, "{way:?}");
            assert_eq!(verdict(setting, way, packet, 0, 64), no_room, "{way:?}");
            // A bare packet has nothing behind it.
            let is_bare = matches!(way, Way::Inbound) && !setting.tunnel.udp;
            let expected = if is_bare { Verdict::Forward } else { no_room };
            assert_eq!(verdict(setting, way, packet, 192, 0), expected, "{way:?}");
        }
    }
}

/// The other node may be in the next view already.
#[test]
fn a_packet_waits_for_its_relay_sa() {
    for (setting, kind) in [(in_udp(), RelayKind::Head), (Setting::default(), RelayKind::Bare)] {
        let [mut first, mut second] = relaying(setting).0;
        first.set_relay(1, ShardSet::EMPTY);
        let sent = relayed(&mut first, Way::Inbound, &esp(setting, 1)).remove(0);
        assert_eq!(arrive(&mut second, &sent), Verdict::Early(Spi::of_relay(kind, 1, 1).unwrap()));
        second.set_relay(1, ShardSet::ALL);
        assert_eq!(arrive(&mut second, &sent), Verdict::Forward);
    }
}

/// It waits as what it is: a packet that another node has relayed, and that at most one more node
/// may relay.
#[test]
fn a_packet_that_waits_for_its_shard_keeps_that_it_was_relayed() {
    let setting = in_udp();
    let [mut first, mut second] = relaying(setting).0;
    second.plane.apply(Command::SetShards(ShardSet::EMPTY));
    second.plane.apply(Command::Hold(ShardSet::ALL));
    let packet = esp(setting, 1);
    let sent = relayed(&mut first, Way::Inbound, &packet);
    let mut buffer = [&[0; 200][..], &sent[0], &[0; 64]].concat();
    let buf = PacketBuf::new(&mut buffer, 200, sent[0].len()).unwrap();
    let mut item = [Item::new(buf, Ingress::Port)];
    second.plane.inbound(&mut item);
    assert_eq!((item[0].verdict, item[0].ingress), (Verdict::Held, Ingress::Relayed));
    assert_eq!(item[0].buf.data(), packet[0]);
    second.plane.apply(Command::Hold(ShardSet::EMPTY));
    second.plane.inbound(&mut item);
    assert_eq!(item[0].verdict, Verdict::Drop(DropReason::OtherNode));
    second.check();
}

/// RFC 6040: a router between the nodes marks the outer packet.
#[test]
fn congestion_between_the_nodes_reaches_the_inner_packet() {
    for setting in [in_udp(), Setting::default()] {
        congestion_reaches_the_inner_packet(setting);
    }
}

fn congestion_reaches_the_inner_packet(setting: Setting) {
    let [mut first, mut second] = relaying(setting).0;
    let capable = v4_with(
        |f| (f.src, f.dst, f.tos) = ([10, 2, 0, 2].into(), [10, 1, 0, 9].into(), 2),
        Protocol(99),
        &[7; 90],
    );
    let sealed = run(&mut setting.peer(), Way::Outbound, Ingress::Port, &[capable, back(1).remove(0)]);
    let sent: Vec<_> = sealed.into_iter().map(|(_, packet)| packet).collect();
    let mut between = relayed(&mut first, Way::Inbound, &sent);
    for packet in &mut between {
        let mut ip = ipv4::Ipv4Mut::new(packet).unwrap();
        ip.set_tos(3);
    }
    let found = second.take(Way::Inbound, Ingress::Port, &between);
    assert_eq!(verdicts(&found), [Verdict::Forward, Verdict::Drop(DropReason::EcnNotCapable)]);
    assert_eq!(found[0].1[1], 3);
}

#[test]
fn no_relayed_esp_costs_an_allocation() {
    for setting in [in_udp(), Setting::default()] {
        relay_without_allocation(setting);
    }
}

fn relay_without_allocation(setting: Setting) {
    let [mut first, mut second] = relaying(setting).0;
    let mut frames: Vec<Vec<u8>> =
        esp(setting, 64).iter().map(|packet| [&[0; 192][..], packet, &[0; 64]].concat()).collect();
    let mut items: Vec<Item<'_>> = frames
        .iter_mut()
        .map(|frame| {
            let len = frame.len() - 192 - 64;
            Item::new(PacketBuf::new(frame, 192, len).unwrap(), Ingress::Port)
        })
        .collect();
    let info = allocation_counter::measure(|| {
        first.plane.inbound(&mut items);
        second.plane.inbound(&mut items);
    });
    assert_eq!((info.count_total, second.plane.counters().totals().inbound.forwarded), (0, 64));
}

proptest! {
    /// Whatever a node of the cluster puts behind its SPI, with the right key or without, cut off
    /// anywhere: nothing is forwarded, nothing reaches the kernel, and every packet is counted.
    #[test]
    fn no_octets_pass_for_a_relayed_packet(
        octets in prop::collection::vec(any::<u8>(), 0..200),
        way in 0usize..3,
        tunnel in 0usize..8,
        is_esp in any::<bool>(),
        cut in 0usize..40,
    ) {
        let setting = Setting { tunnel: Tunnel::all().nth(tunnel).unwrap(), ..Setting::default() };
        let [_, mut second] = relaying(setting).0;
        let inner = match is_esp {
            true => around(&setting.tunnel, &octets),
            false => outer(&setting.tunnel, Protocol(octets.first().copied().unwrap_or(0)), &octets),
        };
        let mut packet = match way {
            0 => forged(setting, RelayKind::Head, 1, &inner),
            // The wrong key.
            1 => forged(setting, RelayKind::Whole, 1, &inner),
            _ => bare(&inner),
        };
        packet.truncate(packet.len() - cut);
        let total = packet.len() as u16;
        if let Some(bytes) = packet.get_mut(2..4) {
            bytes.copy_from_slice(&total.to_be_bytes());
            packet[10..12].fill(0);
            let sum = Sum::new().bytes(&packet[..20]).finish();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let verdict = arrive(&mut second, &packet);
        prop_assert!(matches!(verdict, Verdict::Drop(_) | Verdict::Early(_)), "{:?}", verdict);
    }
}
