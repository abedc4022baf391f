//! Two nodes of a cluster of which each packet reaches one only, and the one gateway that they are
//! together.

use crate::cluster::{OTHER_NODE, back, verdicts};
use crate::forge::padded;
use crate::harness::{Gateway, SPI_A, Tunnel, Way, net, run};
use crate::packets::{one_hop_on, sized, v4_with};
use crate::relay_nodes::{Node, PEER, Setting, TRAP, relayed, relaying};
use std::net::IpAddr;
use std::slice::from_ref;
use std::sync::Arc;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{RelayKind, SenderId, Shard, Spi};
use testudo_crypto::{Aad, AeadAlgorithm, AeadKey, Library};
use testudo_ipsec::dataplane::{Command, Event, Garbage, Ingress, Relay, RelayParams, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::ChildSaParams;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4;

pub(crate) const STRAY: Verdict = Verdict::Drop(DropReason::RelayedStray);

#[test]
fn relayed_packets_are_counted_at_both_nodes() {
    let setting = Setting::default();
    let (mut cluster, mut peer) = (relaying(setting), setting.peer());
    let clear = vec![sized(false, 100); 70];
    let (found, count) = cluster.take(0, Way::Outbound, Ingress::Port, &clear);
    assert_eq!((verdicts(&found), count), (vec![Verdict::Forward; 70], 70));
    let esp: Vec<_> =
        run(&mut peer, Way::Outbound, Ingress::Port, &back(30)).into_iter().map(|f| f.1).collect();
    let (found, count) = cluster.take(0, Way::Inbound, Ingress::Port, &esp);
    assert_eq!((verdicts(&found), count), (vec![Verdict::Forward; 30], 30));
    let [first, second] = cluster.0.each_ref().map(|node| node.plane.counters().totals());
    assert_eq!((first.outbound.relayed, first.inbound.relayed, first.inbound.relayed_in), (70, 30, 0));
    assert_eq!((first.outbound.forwarded, first.inbound.forwarded), (0, 0));
    assert_eq!((second.outbound.relayed, second.inbound.relayed, second.inbound.relayed_in), (0, 0, 100));
    assert_eq!((second.outbound.forwarded, second.inbound.forwarded), (70, 30));
    let by_shard = cluster.0.each_ref().map(|node| {
        let counted = node.plane.counters().relayed_by_shard().enumerate();
        counted.filter(|(_, packets)| *packets > 0).collect::<Vec<_>>()
    });
    assert_eq!(by_shard, [vec![(usize::from(SPI_A.shard().0), 100)], vec![]]);
    // Nothing that control would have to act upon.
    assert!(cluster.0.iter_mut().all(|node| node.plane.drain_events().next().is_none()));
}

#[test]
fn copies_and_forgeries_of_relayed_packets_are_refused() {
    let [mut first, mut second] = relaying(Setting::default()).0;
    let sent = relayed(&mut first, Way::Outbound, &vec![sized(false, 100); 3]);
    let mut forged = sent[2].clone();
    *forged.last_mut().unwrap() ^= 1;
    let found = second.take(Way::Inbound, Ingress::Port, &[sent[0].clone(), sent[0].clone(), forged]);
    let dropped = [DropReason::Replayed, DropReason::AuthFailed].map(Verdict::Drop);
    assert_eq!(verdicts(&found), [Verdict::Forward, dropped[0], dropped[1]]);
    let found = second.take(Way::Inbound, Ingress::Port, &sent);
    assert_eq!(verdicts(&found), [dropped[0], Verdict::Forward, Verdict::Forward]);
}

/// Two nodes that take each other for the carrier.
pub(crate) fn mistaken(setting: Setting) -> [Node; 2] {
    let [first, mut second] = relaying(setting).0;
    second.plane.apply(Command::SetShards(ShardSet::EMPTY));
    second.set_relay(0, ShardSet::EMPTY);
    [first, second]
}

#[test]
fn a_packet_is_relayed_twice_at_most() {
    let setting = Setting::default();
    let (mut peer, [mut first, mut second]) = (setting.peer(), mistaken(setting));
    let esp = run(&mut peer, Way::Outbound, Ingress::Port, &back(1)).remove(0).1;
    for (way, packet) in [(Way::Outbound, sized(false, 100)), (Way::Inbound, esp)] {
        let there = relayed(&mut first, way, &[packet]);
        let back = relayed(&mut second, Way::Inbound, &there);
        assert_eq!(verdicts(&first.take(Way::Inbound, Ingress::Port, &back)), [OTHER_NODE]);
    }
    // Routers gave neither packet to the second node: no shard follows them there.
    let counted = [&first, &second].map(|node| node.plane.counters().relayed_by_shard().sum::<u64>());
    assert_eq!(counted, [2, 0]);
    // Nor inside itself.
    let again = relayed(&mut first, Way::Outbound, &[sized(false, 100)]);
    assert_eq!(verdicts(&run(&mut second.plane, Way::Inbound, Ingress::Relayed, &again)), [STRAY]);
    second.check();
}

/// The shard has moved while they were on their way.
#[test]
fn packets_for_the_former_carrier_reach_the_next_one() {
    let setting = Setting::default();
    let (mut peer, [mut first, mut second]) = (setting.peer(), mistaken(setting));
    let esp = run(&mut peer, Way::Outbound, Ingress::Port, &back(1)).remove(0).1;
    let mut across = |way, ingress, packet: &[u8]| {
        first.plane.apply(Command::SetShards(ShardSet::EMPTY));
        let there = first.take(way, ingress, &[packet.to_vec()]).remove(0).1;
        let back = relayed(&mut second, Way::Inbound, &[there]);
        first.plane.apply(Command::SetShards(ShardSet::ALL));
        first.take(Way::Inbound, Ingress::Port, &back).remove(0)
    };
    assert_eq!(across(Way::Inbound, Ingress::Port, &esp).0, Verdict::Forward);
    let (small, large) = (sized(false, 100), v4_with(|f| f.df = true, Protocol(99), &[7; 1490]));
    let sent = [(Ingress::Host, &small), (Ingress::Port, &small), (Ingress::PortJoined, &large)];
    let sent = sent.map(|(ingress, packet)| across(Way::Outbound, ingress, packet).1);
    let found = run(&mut peer, Way::Inbound, Ingress::Host, &sent);
    let expected = [small.clone(), one_hop_on(&small), one_hop_on(&large)];
    assert_eq!(found.into_iter().map(|(_, packet)| packet).collect::<Vec<_>>(), expected);
}

#[test]
fn without_a_way_to_the_carrier_packets_are_left_to_it() {
    let setting = Setting::default();
    let esp = run(&mut setting.peer(), Way::Outbound, Ingress::Port, &back(1)).remove(0).1;
    let send = |node: &mut Node| {
        let out = node.take(Way::Outbound, Ingress::Port, &[sized(false, 100)]).remove(0);
        let inward = node.take(Way::Inbound, Ingress::Port, from_ref(&esp)).remove(0);
        [out.0, inward.0]
    };
    let [mut node, _] = relaying(setting).0;
    assert_eq!(send(&mut node), [Verdict::Forward; 2]);
    // No carrier, and no SA to it.
    assert!(matches!(node.plane.apply(Command::SetRelay(Arc::default())), Some(Garbage::Relay(_))));
    assert_eq!(send(&mut node), [OTHER_NODE; 2]);
    let mut relay = Relay::default();
    relay.set_carriers([Some(2); SHARDS]);
    node.plane.apply(Command::SetRelay(Arc::new(relay)));
    assert_eq!(send(&mut node), [OTHER_NODE; 2]);
    // The SA, but no number that nobody else has used.
    node.set_relay(0, ShardSet::EMPTY);
    node.plane.apply(Command::ForgetSenderId);
    assert_eq!(send(&mut node), [Verdict::Drop(DropReason::NoSender), Verdict::Forward]);
    node.plane.apply(Command::SetSenderId(SenderId(7)));
    assert_eq!(send(&mut node), [Verdict::Forward; 2]);
    // Behind a fence.
    node.plane.set_open(false);
    assert_eq!(send(&mut node), [Verdict::Drop(DropReason::Fenced); 2]);
}

/// What a node that is broken, or that has other policies, might relay.
#[test]
fn only_what_the_carrier_would_take_from_a_port_comes_out_of_a_relay_sa() {
    let setting = Setting::default();
    let [mut first, mut second] = relaying(setting).0;
    let vip = |protocol, payload: &[u8]| v4_with(|f| f.dst = [192, 0, 2, 1].into(), protocol, payload);
    let clear = |net| v4_with(|f| f.dst = [10, net, 0, 2].into(), Protocol(99), &[7; 50]);
    let udp = |port: u8| [&[1, 244, port >> 4, port << 4, 0, 40, 0, 0][..], &[0; 32]].concat();
    let cases = [
        (vip(Protocol::ICMP, &[8; 16]), STRAY),
        (vip(Protocol::UDP, &udp(31)), STRAY),
        // To a node's own address.
        (v4_with(|f| f.dst = [10, 255, 0, 2].into(), Protocol::TCP, &[7; 50]), STRAY),
        // A fragment of ESP: the first node should have reassembled it.
        (fragment_of(&vip(Protocol::ESP, &[9; 64])), STRAY),
        (clear(4), STRAY),
        (clear(5), Verdict::Drop(DropReason::PolicyDiscard)),
        (clear(77), Verdict::Drop(DropReason::NoPolicy)),
        (vec![0x45; 30], Verdict::Drop(DropReason::MalformedInner)),
    ];
    for (number, (packet, expected)) in (1..).zip(cases) {
        let sent = forged(&setting, number, &packet, Protocol::IPV4);
        let found = second.take(Way::Inbound, Ingress::Port, &[sent]).remove(0);
        assert_eq!(found.0, expected, "{number}");
    }
    // From the other node's own address no policy selects it, and it is not this host's either.
    let own =
        v4_with(|f| (f.src, f.dst) = ([10, 255, 0, 1].into(), [10, 77, 0, 1].into()), Protocol(99), &[]);
    let found =
        second.take(Way::Inbound, Ingress::Port, &[forged(&setting, 50, &own, Protocol(254))]).remove(0);
    assert_eq!(found.0, Verdict::Drop(DropReason::NoPolicy));
    let dummy = forged(&setting, 51, &[0; 20], Protocol::NO_NEXT);
    let other = forged(&setting, 52, &clear(2), Protocol::TCP);
    let found = second.take(Way::Inbound, Ingress::Port, &[dummy, other]);
    let reasons = [DropReason::Dummy, DropReason::BadNextHeader].map(Verdict::Drop);
    assert_eq!(verdicts(&found), reasons);
    assert_eq!(second.plane.counters().dropped(DropReason::RelayedStray), 5);
    // What comes by a port, by contrast, may be bypassed.
    assert_eq!(verdicts(&first.take(Way::Outbound, Ingress::Port, &[clear(4)])), [Verdict::Forward]);
}

pub(crate) fn fragment_of(packet: &[u8]) -> Vec<u8> {
    let mut fragments = ipv4::fragment(packet, 60).unwrap();
    let mut out = vec![0; 100];
    let len = fragments.write_next(&mut out).unwrap().unwrap();
    out.truncate(len);
    out
}

/// A packet of the first node to the second one.
fn forged(setting: &Setting, sequence: u64, inner: &[u8], next_header: Protocol) -> Vec<u8> {
    let RelayParams { spi_out: Spi(spi), key_out, .. } = setting.relay(RelayKind::Whole, 1, 0);
    let (key, salt) = key_out.0.split_last_chunk::<4>().unwrap();
    let key = AeadKey::new(Library::AwsLc, AeadAlgorithm::Aes256Gcm, key, *salt).unwrap();
    let (mut text, mut tag) = (padded(inner, next_header), [0; 16]);
    let iv = (sequence ^ 0x5a5a_0000_0000_0000).to_be_bytes();
    key.seal(iv, Aad::esp_esn(spi, sequence).as_bytes(), &mut text, &mut tag);
    let esp = [&spi.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv, &text, &tag].concat();
    v4_with(|f| (f.src, f.dst) = ([10, 255, 0, 1].into(), [10, 255, 0, 2].into()), Protocol::ESP, &esp)
}

#[test]
fn the_carrier_asks_for_an_sa_that_is_missing() {
    let mut cluster = relaying(Setting::default());
    let packet = v4_with(|f| f.dst = [10, 6, 0, 2].into(), Protocol(99), &[7; 50]);
    let (found, count) = cluster.take(0, Way::Outbound, Ingress::Port, &[packet]);
    assert_eq!((verdicts(&found), count), (vec![Verdict::Drop(DropReason::NoSa)], 1));
    let [first, second] = &mut cluster.0;
    assert_eq!(first.plane.drain_events().count(), 0);
    assert!(second.plane.drain_events().all(|event| matches!(event, Event::NoSa { policy: TRAP, .. })));
}

#[test]
fn a_relayed_packet_waits_for_its_shard_and_its_sa() {
    let setting = Setting::default();
    let (mut peer, [mut first, mut second]) = (setting.peer(), relaying(setting).0);
    second.plane.apply(Command::SetShards(ShardSet::EMPTY));
    second.plane.apply(Command::Hold(ShardSet::ALL));
    let esp = run(&mut peer, Way::Outbound, Ingress::Port, &back(1)).remove(0).1;
    let sent =
        [relayed(&mut first, Way::Inbound, &[esp]), relayed(&mut first, Way::Outbound, &[sized(false, 90)])];
    let found = second.take(Way::Inbound, Ingress::Port, &sent.concat());
    assert_eq!(verdicts(&found), [Verdict::Held; 2]);
    second.plane.apply(Command::SetShards(ShardSet::ALL));
    second.plane.apply(Command::Hold(ShardSet::EMPTY));
    let again = [(Way::Inbound, &found[0].1), (Way::Outbound, &found[1].1)];
    for (way, packet) in again {
        let found = run(&mut second.plane, way, Ingress::Relayed, from_ref(packet));
        assert_eq!(verdicts(&found), [Verdict::Forward]);
    }
    // The first node is in the next view already, and this one without shard 0.
    first.set_relay(1, ShardSet::EMPTY);
    second.plane.apply(Command::SetShards(ShardSet::ALL.without([Shard(0)].into_iter().collect())));
    let sent = relayed(&mut first, Way::Outbound, &[sized(false, 90)]);
    let spi = Spi::of_relay(RelayKind::Whole, 1, 1).unwrap();
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &sent)), [Verdict::Early(spi)]);
    second.set_relay(1, ShardSet::ALL);
    assert_eq!(verdicts(&second.take(Way::Inbound, Ingress::Port, &sent)), [Verdict::Forward]);
}

#[test]
fn sas_of_the_former_view_are_accepted_beside_the_new_ones() {
    let setting = Setting::default();
    let [mut first, mut second] = relaying(setting).0;
    let before = relayed(&mut first, Way::Outbound, &[sized(false, 90)]);
    let (former, _) = setting.relay(RelayKind::Whole, 2, 0).build(9000, setting.tunnel.library).unwrap();
    let (new, _) = setting.relay(RelayKind::Whole, 2, 1).build(9000, setting.tunnel.library).unwrap();
    let mut relay = Relay::default();
    assert!(relay.accept(Arc::new(former)) && relay.accept(Arc::new(new)));
    assert_eq!(relay.spis().collect::<Vec<_>>(), [Spi(256 + 1), Spi(256 + 32 + 1)]);
    second.plane.apply(Command::SetRelay(Arc::new(relay)));
    first.set_relay(1, ShardSet::EMPTY);
    let after = relayed(&mut first, Way::Outbound, &[sized(false, 90)]);
    let found = second.take(Way::Inbound, Ingress::Port, &[before, after].concat());
    assert_eq!(verdicts(&found), [Verdict::Forward; 2]);
    // Only SPIs of relay SAs have a place, and only numbers of nodes.
    let mut params = setting.relay(RelayKind::Whole, 2, 0);
    params.spi_in = Spi(1024);
    let (inbound, outbound) = params.build(9000, setting.tunnel.library).unwrap();
    assert!(!Relay::default().accept(Arc::new(inbound)));
    assert!(!Relay::default().send_by(32, Arc::new(outbound)));
}

#[test]
fn a_relayed_packet_keeps_its_hop_and_its_right_to_be_large() {
    let setting = Setting::default();
    let [mut first, mut second] = relaying(setting).0;
    let mut peer = setting.peer();
    let packet = sized(false, 100);
    let mut across = |ingress, packet: &[u8]| {
        let sent = first.take(Way::Outbound, ingress, &[packet.to_vec()]);
        second.take(Way::Inbound, Ingress::Port, &[sent[0].1.clone()]).remove(0)
    };
    let from_host = across(Ingress::Host, &packet);
    let from_port = across(Ingress::Port, &packet);
    // In fragments that were reassembled: the sender cannot make it smaller.
    let large = v4_with(|f| f.df = true, Protocol(99), &[7; 1490]);
    let joined = across(Ingress::PortJoined, &large);
    assert_eq!(across(Ingress::Port, &large).0, Verdict::Reply);
    let sent = [from_host.1, from_port.1, joined.1];
    let found = run(&mut peer, Way::Inbound, Ingress::Host, &sent);
    let expected = [packet.clone(), one_hop_on(&packet), one_hop_on(&large)];
    assert_eq!(found.into_iter().map(|(_, packet)| packet).collect::<Vec<_>>(), expected);
}

#[test]
fn what_this_host_alone_may_send_is_not_relayed() {
    let tunnel = Tunnel::default();
    let ends = |addr: IpAddr| vec![net(&addr.to_string(), &addr.to_string())];
    let params = ChildSaParams {
        mode: testudo_ipsec::sa::Mode::Transport,
        local_ts: ends(tunnel.outer(1)),
        remote_ts: ends(tunnel.outer(PEER)),
        ..tunnel.params()
    };
    let mut node = Gateway::new(&params, tunnel.library);
    let mut other = Setting::default().node(1, ShardSet::EMPTY);
    std::mem::swap(&mut node.plane, &mut other.plane);
    other.plane.apply(Command::SetShards(ShardSet::EMPTY));
    other.set_relay(0, ShardSet::EMPTY);
    let own = v4_with(|f| (f.src, f.dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()), Protocol(99), &[]);
    assert_eq!(verdicts(&other.take(Way::Outbound, Ingress::Host, from_ref(&own))), [OTHER_NODE]);
    other.plane.apply(Command::SetShards(ShardSet::ALL));
    let relayed = run(&mut other.plane, Way::Outbound, Ingress::RelayedHost, &[own]);
    assert_eq!(verdicts(&relayed), [Verdict::Drop(DropReason::NotFromHost)]);
}

#[test]
fn no_relayed_packet_costs_an_allocation() {
    use crate::harness::{HEADROOM, TAILROOM};
    use testudo_ipsec::dataplane::{Item, Sources};
    use testudo_wire::packet::PacketBuf;

    let [mut first, mut second] = relaying(Setting::default()).0;
    let packet = sized(false, 200);
    let mut frames: Vec<Vec<u8>> =
        (0..64).map(|_| [&[0; HEADROOM][..], &packet, &[0; TAILROOM]].concat()).collect();
    let mut items: Vec<Item<'_>> = frames
        .iter_mut()
        .map(|frame| Item::new(PacketBuf::new(frame, HEADROOM, packet.len()).unwrap(), Ingress::Port))
        .collect();
    let info = allocation_counter::measure(|| {
        first.plane.outbound(&mut items, &Sources::default());
        second.plane.inbound(&mut items);
        items.iter_mut().for_each(|item| item.ingress = Ingress::Relayed);
        second.plane.outbound(&mut items, &Sources::default());
    });
    assert_eq!((info.count_total, second.plane.counters().totals().outbound.forwarded), (0, 64));
}
