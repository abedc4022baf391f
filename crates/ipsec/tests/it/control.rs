//! Commands, what they put out of use, and the events that answer traffic.

use crate::forge::{around, padded, sealed};
use crate::harness::{
    Gateway, PATH_MTU, POLICY, SPI_A, SPI_B, Tunnel, Way, forwarded, net, pair, run, set_spd,
};
use crate::packets::{A4, one_hop_on, sized, v4_with};
use std::net::SocketAddr;
use std::sync::Arc;
use testudo_base::spi::{SenderId, Spi};
use testudo_ipsec::dataplane::{
    Command, Config, Dataplane, Event, Garbage, Ingress, LocalAddrs, PolicyBlock, Verdict,
};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::packet_selector::{Direction, PacketSelector};
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, InboundClear, Policy, PolicyId, Spd};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;

fn policy(priority: u32, remote: (&str, &str), action: Action) -> Policy {
    let local = vec![net("0.0.0.0", "255.255.255.255")];
    Policy { priority, local, remote: vec![net(remote.0, remote.1)], action }
}

fn verdict(gateway: &mut Gateway, packet: &[u8]) -> Verdict {
    gateway.outbound(&[packet.to_vec()])[0].0
}

fn to(remote: [u8; 4]) -> Vec<u8> {
    v4_with(|f| f.dst = remote.into(), Protocol::UDP, &[7; 20])
}

#[test]
fn a_new_pipeline_discards_everything() {
    let mut plane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), SenderId(1), 1));
    let found = run(&mut plane, Way::Outbound, Ingress::Port, &[to([10, 2, 0, 2])]);
    assert_eq!(found[0].0, Verdict::Drop(DropReason::NoPolicy));
    let found = run(&mut plane, Way::Inbound, Ingress::Port, &[to([10, 2, 0, 2])]);
    assert_eq!(found[0].0, Verdict::Drop(DropReason::NotLocal));
}

#[test]
fn the_first_policy_decides_and_changes_count_at_once() {
    let (mut a, _) = pair(&Tunnel::default());
    let protect = policy(10, ("10.2.0.0", "10.2.255.255"), Action::Protect(POLICY));
    let bypass = policy(5, ("10.2.0.0", "10.2.0.255"), Action::Bypass);
    let discard = policy(1, ("10.2.0.7", "10.2.0.7"), Action::Discard);
    let verdicts = |a: &mut Gateway| {
        [[10, 2, 0, 7], [10, 2, 0, 8], [10, 2, 1, 1], [10, 3, 0, 1]].map(|remote| {
            let (verdict, packet) = a.outbound(&[to(remote)]).remove(0);
            (verdict, verdict == Verdict::Forward && packet[9] == Protocol::ESP.0)
        })
    };
    let no_policy = (Verdict::Drop(DropReason::NoPolicy), false);
    let protected = (Verdict::Forward, true);
    set_spd(&mut a.plane, vec![protect.clone()]);
    assert_eq!(verdicts(&mut a), [protected, protected, protected, no_policy]);
    set_spd(&mut a.plane, vec![protect, bypass, discard]);
    let discarded = (Verdict::Drop(DropReason::PolicyDiscard), false);
    assert_eq!(verdicts(&mut a), [discarded, (Verdict::Forward, false), protected, no_policy]);
    set_spd(&mut a.plane, Vec::new());
    assert_eq!(verdicts(&mut a), [no_policy; 4]);
    assert!(a.plane.counters().totals().outbound.is_balanced());
}

/// A bypass does not open a part of what stays shut. A policy that protects or discards decides as
/// ever.
#[test]
fn what_stays_shut_outranks_a_bypass_inside_it() {
    let (mut a, _) = pair(&Tunnel::default());
    let policies = vec![
        policy(1, ("10.2.0.0", "10.2.0.255"), Action::Bypass),
        policy(1, ("10.2.1.0", "10.2.1.255"), Action::Discard),
        policy(1, ("10.2.2.0", "10.2.2.255"), Action::Protect(POLICY)),
        policy(1, ("10.3.0.0", "10.3.0.255"), Action::Bypass),
    ];
    let mut spd = Spd::new(policies).unwrap();
    let shut = net("10.2.0.0", "10.2.255.255").addrs;
    let remotes = [[10, 2, 0, 8], [10, 2, 1, 8], [10, 2, 2, 8], [10, 3, 0, 8]];
    let verdicts = |a: &mut Gateway, spd: &Spd| {
        a.plane.apply(Command::SetSpd(Arc::new(spd.clone())));
        remotes.map(|remote| verdict(a, &to(remote)))
    };
    let open =
        [Verdict::Forward, Verdict::Drop(DropReason::PolicyDiscard), Verdict::Forward, Verdict::Forward];
    assert_eq!(verdicts(&mut a, &spd), open);
    spd.hold_back(&shut);
    let held = [Verdict::Drop(DropReason::NoPolicy), open[1], open[2], open[3]];
    assert_eq!(verdicts(&mut a, &spd), held);
    spd.let_go(&shut);
    assert_eq!(verdicts(&mut a, &spd), open);
}

#[test]
fn bypassed_packets_lose_a_hop_if_they_came_through_a_port() {
    let (mut a, _) = pair(&Tunnel::default());
    set_spd(&mut a.plane, vec![policy(0, ("10.2.0.0", "10.2.255.255"), Action::Bypass)]);
    let packet = to([10, 2, 0, 2]);
    assert_eq!(a.outbound(std::slice::from_ref(&packet))[0].1, one_hop_on(&packet));
    let from_host = run(&mut a.plane, Way::Outbound, Ingress::Host, std::slice::from_ref(&packet));
    assert_eq!(from_host, [(Verdict::Forward, packet)]);
    let last_hop = v4_with(|f| f.ttl = 1, Protocol::UDP, &[7; 20]);
    assert_eq!(a.outbound(&[last_hop])[0].0, Verdict::Reply);
}

#[test]
fn sas_of_policies_that_stay_are_kept_and_others_are_not_used() {
    let (mut a, _) = pair(&Tunnel::default());
    let here = policy(0, ("10.2.0.0", "10.2.255.255"), Action::Protect(POLICY));
    set_spd(&mut a.plane, vec![here]);
    assert_eq!(verdict(&mut a, &to([10, 2, 0, 2])), Verdict::Forward);
    let spd = Spd::new(vec![policy(0, ("10.2.0.0", "10.2.255.255"), Action::Protect(PolicyId(1)))]).unwrap();
    let garbage = a.plane.apply(Command::SetSpd(Arc::new(spd)));
    let Some(Garbage::Spd(old)) = garbage else { panic!("{garbage:?}") };
    assert_eq!(old.len(), 1);
    assert_eq!(verdict(&mut a, &to([10, 2, 0, 2])), Verdict::Drop(DropReason::NoSa));
    // Cleared, the worker lets go of it.
    assert_eq!(Arc::strong_count(&a.outbound), 2);
    drop(a.plane.apply(Command::ClearOutbound(POLICY, SPI_A)));
    assert_eq!(Arc::strong_count(&a.outbound), 1);
}

#[test]
fn places_for_policies_are_added_once_and_never_lost() {
    let (mut a, _) = pair(&Tunnel::default());
    let again = a.plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))));
    assert!(matches!(again, Some(Garbage::Policies(_))), "{again:?}");
    let packet = to([10, 2, 0, 2]);
    assert_eq!(verdict(&mut a, &packet), Verdict::Forward, "the SA is still in its place");
    let far = PolicyId(PolicyId::LIMIT - 1);
    let refused = a.plane.apply(Command::SetOutbound(far, a.outbound.clone()));
    assert!(matches!(refused, Some(Garbage::NotSet(_))), "{refused:?}");
    assert!(a.plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(far)))).is_none());
    assert!(a.plane.apply(Command::SetOutbound(far, a.outbound.clone())).is_none());
}

#[test]
fn a_missing_sa_is_told_once_a_second_and_policy() {
    let (mut a, _) = pair(&Tunnel::default());
    let garbage = a.plane.apply(Command::ClearOutbound(POLICY, SPI_A));
    assert!(matches!(garbage, Some(Garbage::Outbound(sa, _)) if sa.spi() == SPI_B));
    let packet = sized(false, 100);
    let told = |a: &mut Gateway, now| {
        a.plane.set_now(now);
        let found = a.outbound(&vec![packet.clone(); 10]);
        assert!(found.iter().all(|(verdict, _)| *verdict == Verdict::Drop(DropReason::NoSa)));
        a.plane.drain_events().collect::<Vec<_>>()
    };
    let selector = PacketSelector::of_packet(&packet, Direction::Out).unwrap();
    let event = Event::NoSa { policy: POLICY, packet: selector };
    assert_eq!(told(&mut a, 5000), [event]);
    assert_eq!(told(&mut a, 5999), []);
    assert_eq!(told(&mut a, 6000), [event]);
    // A new SA that goes away again begins anew.
    assert!(a.plane.apply(Command::SetOutbound(POLICY, a.outbound.clone())).is_none());
    assert!(a.plane.apply(Command::ClearOutbound(POLICY, SPI_A)).is_some());
    assert_eq!(told(&mut a, 6001), [event]);
}

#[test]
fn clearing_the_old_sa_leaves_the_new_one() {
    let tunnel = Tunnel::default();
    let (mut a, _) = pair(&tunnel);
    let mut params = tunnel.params();
    // Of two for one SPI of the peer's, too: it has asked twice, and the first answer went down
    // with its node.
    params.spi_in = Spi(params.spi_in.0 + 1);
    let numbers = SequenceBlock::whole(true);
    let new = Arc::new(OutboundSa::new(&params, POLICY, numbers, PATH_MTU, tunnel.library).unwrap());
    let replaced = a.plane.apply(Command::SetOutbound(POLICY, new.clone()));
    assert!(matches!(replaced, Some(Garbage::Outbound(sa, _)) if sa.spi() == SPI_B));
    assert!(a.plane.apply(Command::ClearOutbound(POLICY, SPI_A)).is_none());
    let outer = forwarded(a.outbound(&[sized(false, 100)]));
    assert_eq!(outer[0][20..24], SPI_B.0.to_be_bytes());
    assert!(a.plane.apply(Command::ClearOutbound(PolicyId(99), SPI_A)).is_none());
    let not_set = a.plane.apply(Command::SetOutbound(PolicyId(9999), new));
    assert!(matches!(not_set, Some(Garbage::NotSet(_))));
}

#[test]
fn inbound_sas_come_and_go() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let outer = forwarded(a.outbound(&vec![sized(false, 100); 3]));
    let removed = b.plane.apply(Command::RemoveInbound(SPI_B));
    assert!(matches!(removed, Some(Garbage::Inbound(sa)) if sa.spi() == SPI_B));
    assert_eq!(b.inbound(&outer)[0].0, Verdict::Early(SPI_B));
    assert!(b.plane.apply(Command::RemoveInbound(SPI_B)).is_none());

    // Same slot, other tag.
    let mut params = tunnel.params().mirrored();
    params.spi_in = Spi(SPI_B.0 ^ 1);
    let other = Arc::new(InboundSa::new(&params, POLICY, PATH_MTU, tunnel.library).unwrap());
    assert!(b.plane.apply(Command::AddInbound(other)).is_none());
    assert_eq!(b.inbound(&outer)[0].0, Verdict::Early(SPI_B), "the whole SPI counts");
    let replaced = b.plane.apply(Command::AddInbound(b.inbound.clone()));
    assert!(matches!(replaced, Some(Garbage::Inbound(sa)) if sa.spi() == params.spi_in));
    assert_eq!(forwarded(b.inbound(&outer)).len(), 3);

    // A shard without slots takes nothing; one that has slots gives new ones back.
    params.spi_in = Spi(0x0100_0401);
    let stray = Arc::new(InboundSa::new(&params, POLICY, PATH_MTU, tunnel.library).unwrap());
    assert!(matches!(b.plane.apply(Command::AddInbound(stray)), Some(Garbage::NotAdded(_))));
    assert!(b.plane.apply(Command::RemoveInbound(params.spi_in)).is_none());
    let slots = Box::new(SlotBlock::of(SPI_B));
    assert!(
        matches!(b.plane.apply(Command::AddSlots(slots)), Some(Garbage::Slots(s)) if s.number() == SlotBlock::number_of(SPI_B))
    );
}

#[test]
fn early_packets_are_counted_when_they_expire() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let outer = forwarded(a.outbound(&vec![sized(false, 100); 5]));
    b.plane.apply(Command::RemoveInbound(SPI_B));
    b.inbound(&outer);
    let counted = |b: &Gateway| {
        let counters = b.plane.counters();
        let totals = counters.totals().inbound;
        assert!(totals.is_balanced(), "{totals:?}");
        (totals.early, totals.dropped, counters.dropped_inbound(DropReason::UnknownSpi))
    };
    assert_eq!(counted(&b), (5, 0, 0));
    b.plane.give_up_early(2);
    assert_eq!(counted(&b), (3, 2, 2));
    assert!(b.plane.apply(Command::AddInbound(b.inbound.clone())).is_none());
    assert_eq!(forwarded(b.inbound(&outer[2..])).len(), 3);
    assert_eq!(counted(&b), (3, 2, 2));
}

#[test]
fn an_sa_is_used_only_for_what_it_was_negotiated_for() {
    let (mut a, _) = pair(&Tunnel::default());
    // The policy is broader than the SA's selectors.
    set_spd(&mut a.plane, vec![policy(0, ("0.0.0.0", "255.255.255.255"), Action::Protect(POLICY))]);
    let outside = Verdict::Drop(DropReason::OutsideSa);
    for _ in 0..2 {
        assert_eq!(verdict(&mut a, &to([10, 2, 0, 2])), Verdict::Forward);
        assert_eq!(verdict(&mut a, &to([10, 3, 0, 2])), outside);
        assert_eq!(
            verdict(&mut a, &v4_with(|f| f.src = [10, 9, 0, 1].into(), Protocol::UDP, &[7; 20])),
            outside
        );
    }
    assert_eq!(a.outbound.counters().dropped(DropReason::OutsideSa), 4);
}

/// Less than a second's traffic may pass between rekeying and end: control is informed with the
/// packet.
#[test]
fn control_hears_when_an_sa_has_carried_so_much() {
    let (mut a, mut b) = pair(&Tunnel::default());
    let packets = vec![sized(false, 100); 4];
    let carried = |gateway: &mut Gateway| gateway.plane.drain_events().filter(is_carried).count();
    a.outbound.counters().set_mark(8, u64::MAX);
    b.inbound.counters().set_mark(u64::MAX, 900);
    for (out, inward) in [(0, 0), (1, 0), (0, 1), (0, 0)] {
        let sent: Vec<_> = forwarded(a.outbound(&packets));
        b.inbound(&sent);
        assert_eq!((carried(&mut a), carried(&mut b)), (out, inward));
    }
    a.outbound.counters().set_mark(1, 1);
    a.outbound(&packets);
    assert_eq!(carried(&mut a), 1, "another mark, another event");
}

/// Events may be lost on their way to control: its limits hold all the same.
#[test]
fn lost_events_are_repeated_to_control() {
    let (mut a, _) = pair(&Tunnel::default());
    let packets = vec![sized(false, 100); 8];
    a.outbound.counters().set_mark(80, u64::MAX);
    let told: Vec<u64> = (1..=100)
        .filter_map(|burst| {
            a.outbound(&packets);
            (a.plane.drain_events().filter(is_carried).count() > 0).then_some(8 * burst)
        })
        .collect();
    assert_eq!(told, [80, 160, 248, 344, 456, 584, 728]);
}

fn is_carried(event: &Event) -> bool {
    matches!(event, Event::Carried { .. })
}

#[test]
fn sequence_numbers_run_low_and_out() {
    let tunnel = Tunnel { esn: false, ..Tunnel::default() };
    let numbers = SequenceBlock { next: (1 << 32) - 20, end: 1 << 32 };
    let mut a = Gateway::with_numbers(&tunnel.params(), tunnel.library, numbers);
    let packets = vec![sized(false, 100); 8];
    assert_eq!(forwarded(a.outbound(&packets)).len(), 8);
    assert_eq!(a.plane.drain_events().count(), 0);
    assert_eq!(forwarded(a.outbound(&packets)).len(), 8);
    let events: Vec<_> = a.plane.drain_events().collect();
    // Eight packets, for the second eight are not counted yet, within what counts as a millisecond.
    assert_eq!(events, [Event::SequenceLow { spi: tunnel.params().spi_in, rate: 8000 }]);
    a.plane.set_now(40_000);
    let found = a.outbound(&packets);
    let events: Vec<_> = a.plane.drain_events().collect();
    let again = Event::SequenceLow { spi: tunnel.params().spi_in, rate: 0 };
    assert_eq!(events, [again], "the first may have got lost");
    let (sent, refused) = found.split_at(4);
    assert!(sent.iter().all(|(verdict, _)| *verdict == Verdict::Forward));
    assert_eq!(sent[3].1[24..28], u32::MAX.to_be_bytes());
    let exhausted = Verdict::Drop(DropReason::SequenceExhausted);
    assert!(refused.iter().all(|(verdict, _)| *verdict == exhausted));
    a.plane.set_now(60_000);
    assert_eq!(verdict(&mut a, &packets[0]), exhausted);
    assert_eq!(a.plane.drain_events().count(), 0, "not with every burst");
    assert_eq!(a.outbound.counters().dropped(DropReason::SequenceExhausted), 5);
    assert_eq!(a.outbound.counters().totals().packets, 20);
    assert!(a.plane.counters().totals().outbound.is_balanced());
}

#[test]
fn a_new_sender_id_begins_new_ivs_and_the_old_one_does_not() {
    let (mut a, _) = pair(&Tunnel::default());
    let iv = |a: &mut Gateway| {
        let outer = forwarded(a.outbound(&[sized(false, 100)]));
        u64::from_be_bytes(outer[0][28..36].try_into().unwrap())
    };
    assert_eq!(iv(&mut a), 1 << 48 | 5 << 42);
    assert!(matches!(a.plane.apply(Command::SetSenderId(SenderId(1))), Some(Garbage::SenderId(_))));
    assert_eq!(iv(&mut a), 1 << 48 | 5 << 42 | 1);
    assert!(a.plane.apply(Command::SetSenderId(SenderId(7))).is_none());
    assert_eq!(iv(&mut a), 7 << 48 | 5 << 42);
}

/// A packet from A with this number and this UDP source port, and the events that it causes at B.
fn arrive_from(tunnel: &Tunnel, b: &mut Gateway, sequence: u64, port: u16, authentic: bool) -> Vec<Event> {
    let text = padded(&sized(false, 100), Protocol::IPV4);
    let mut packet = around(tunnel, &sealed(&tunnel.params(), sequence, &text));
    let udp = packet.len() - text.len() - 40;
    packet[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
    let last = packet.len() - 1;
    packet[last] ^= u8::from(!authentic);
    assert_eq!(b.inbound(&[packet])[0].0 == Verdict::Forward, authentic);
    b.plane.drain_events().collect()
}

#[test]
fn a_nat_that_changes_its_mapping_is_told_once_a_second_until_control_knows() {
    for tunnel in Tunnel::all().filter(|tunnel| tunnel.udp) {
        let (_, mut b) = pair(&tunnel);
        let remote = |port| SocketAddr::new(tunnel.outer(1), port);
        let moved = |port| [Event::AddressChanged { spi: SPI_B, remote: remote(port) }];
        assert_eq!(arrive_from(&tunnel, &mut b, 1, 4500, true), []);
        assert_eq!(arrive_from(&tunnel, &mut b, 2, 1024, false), [], "anybody can send from anywhere");
        assert_eq!(arrive_from(&tunnel, &mut b, 5, 1024, true), moved(1024));
        assert_eq!(arrive_from(&tunnel, &mut b, 6, 1025, true), [], "an address a packet");
        b.plane.set_now(1000);
        assert_eq!(arrive_from(&tunnel, &mut b, 7, 1024, true), moved(1024), "it may have got lost");
        b.inbound.set_known_source(remote(1024));
        b.plane.set_now(2000);
        assert_eq!(arrive_from(&tunnel, &mut b, 8, 1024, true), []);
        assert_eq!(arrive_from(&tunnel, &mut b, 4, 4500, true), [], "a late packet from the old mapping");
        assert_eq!(arrive_from(&tunnel, &mut b, 9, 4500, true), moved(4500), "back again");
    }
}

#[test]
fn a_plain_sa_follows_nobody() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let mut outer = forwarded(a.outbound(&[sized(false, 100)]));
    outer[0][15] = 77;
    outer[0][10..12].fill(0);
    let checksum = Sum::new().bytes(&outer[0][..20]).finish();
    outer[0][10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(forwarded(b.inbound(&outer)).len(), 1, "the SPI alone finds the SA (RFC 4301 §4.1)");
    assert_eq!(b.plane.drain_events().count(), 0);
}

#[test]
fn addresses_of_the_gateway_can_change() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let outer = forwarded(a.outbound(&vec![sized(false, 100); 2]));
    let none = Arc::new(LocalAddrs::default());
    let old = b.plane.apply(Command::SetLocalAddrs(none));
    let Some(Garbage::LocalAddrs(old)) = old else { panic!("{old:?}") };
    assert!(old.contains(tunnel.outer(2)));
    assert_eq!(b.inbound(&outer)[0].0, Verdict::Drop(DropReason::NotLocal));
    b.plane.apply(Command::SetLocalAddrs(old));
    assert_eq!(forwarded(b.inbound(&outer)).len(), 2);
}

#[test]
fn counters_of_an_sa_and_their_snapshot() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    a.plane.set_now(77);
    b.plane.set_now(78);
    let outer = forwarded(a.outbound(&[sized(false, 100), sized(true, 300)]));
    forwarded(b.inbound(&outer));
    let (sent, received) = (a.outbound.counters().totals(), b.inbound.counters().totals());
    assert_eq!((sent.packets, sent.bytes, sent.last_use), (2, 400, 77));
    assert_eq!((received.packets, received.bytes, received.last_use), (2, 400, 78));

    let params = tunnel.params();
    let snapshot = a.outbound.snapshot();
    let again = OutboundSa::restore(&params, POLICY, &snapshot, tunnel.library).unwrap();
    assert_eq!(again.snapshot(), snapshot);
    assert_eq!((snapshot.numbers.next, snapshot.path_mtu), (3, PATH_MTU));
    let params = params.mirrored();
    let snapshot = b.inbound.snapshot();
    let again = InboundSa::restore(&params, POLICY, PATH_MTU, &snapshot, tunnel.library).unwrap();
    assert_eq!(again.snapshot(), snapshot);
    b.plane.apply(Command::AddInbound(Arc::new(again)));
    assert!(b.inbound(&outer).iter().all(|(verdict, _)| *verdict == Verdict::Drop(DropReason::Replayed)));
}

#[test]
fn impossible_sas_are_refused() {
    let tunnel = Tunnel::default();
    let build = |change: &dyn Fn(&mut ChildSaParams)| {
        let mut params = tunnel.params();
        change(&mut params);
        let numbers = SequenceBlock::whole(params.esn);
        let inbound = InboundSa::new(&params, POLICY, PATH_MTU, tunnel.library).map(drop);
        let outbound = OutboundSa::new(&params, POLICY, numbers, PATH_MTU, tunnel.library).map(drop);
        (inbound.map_err(|e| e.to_string()), outbound.map_err(|e| e.to_string()))
    };
    assert_eq!(build(&|_| ()), (Ok(()), Ok(())));
    let both = |text: &str| (Err(text.to_owned()), Err(text.to_owned()));
    assert_eq!(
        build(&|p| p.remote = "[2001:db8::1]:4500".parse().unwrap()),
        both("outer addresses of different families, expected both IPv4 or both IPv6")
    );
    assert_eq!(
        build(&|p| p.local_ts.clear()),
        both("no traffic selector on the local side, expected at least one")
    );
    let key = "key material of 19 octets, expected 20 (key and salt)";
    assert_eq!(build(&|p| p.key_in.0.truncate(19)).0, Err(key.to_owned()));
    assert_eq!(build(&|p| p.key_out.0.truncate(19)).1, Err(key.to_owned()));
    let window = "replay window of 9000 packets, expected 0 or at most 8192";
    assert_eq!(build(&|p| p.replay_window = 9000), (Err(window.to_owned()), Ok(())));
}

#[test]
fn events_that_find_no_room_are_raised_again() {
    let (mut a, _) = pair(&Tunnel::default());
    let policies = (10..90).map(|number| {
        let remote = format!("10.3.0.{number}");
        policy(0, (&remote, &remote), Action::Protect(PolicyId(number)))
    });
    set_spd(&mut a.plane, policies.collect());
    let packets: Vec<_> = (10..90).map(|number| to([10, 3, 0, number])).collect();
    a.outbound(&packets);
    assert_eq!(a.plane.drain_events().count(), 64);
    a.outbound(&packets);
    assert_eq!(a.plane.drain_events().count(), 16);
}

#[test]
fn clear_packets_are_judged_by_the_same_policies() {
    let spd = Spd::new(vec![
        policy(1, ("10.2.0.0", "10.2.255.255"), Action::Protect(POLICY)),
        policy(2, ("10.3.0.0", "10.3.255.255"), Action::Bypass),
        policy(3, ("10.4.0.0", "10.4.255.255"), Action::Discard),
    ]);
    let spd = spd.unwrap();
    let from = |remote: [u8; 4]| {
        let packet = v4_with(|f| (f.src, f.dst) = (remote.into(), A4), Protocol(99), b"");
        spd.inbound_clear(&PacketSelector::of_packet(&packet, Direction::In).unwrap())
    };
    assert_eq!(from([10, 2, 0, 1]), InboundClear::Drop(DropReason::ClearButProtected));
    assert_eq!(from([10, 3, 0, 1]), InboundClear::Bypass);
    assert_eq!(from([10, 4, 0, 1]), InboundClear::Drop(DropReason::PolicyDiscard));
    assert_eq!(from([10, 5, 0, 1]), InboundClear::NoPolicy);
}
