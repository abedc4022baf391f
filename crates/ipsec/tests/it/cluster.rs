//! Packets that a node of a cluster lets pass: those of its own shards, with granted blocks and
//! sender ID, unless it is fenced.

use crate::harness::{Gateway, PATH_MTU, POLICY, SPI_A, SPI_B, Tunnel, Way, forwarded, net, run, set_spd};
use crate::packets::{one_hop_on, sized, v4_with};
use std::collections::HashSet;
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ipsec::dataplane::{Command, Config, Dataplane, Event, Garbage, Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::sa::{Encapsulation, OutboundSa};
use testudo_ipsec::spd::{Action, Policy, PolicyId};
use testudo_wire::ip::Protocol;

pub(crate) const OTHER_NODE: Verdict = Verdict::Drop(DropReason::OtherNode);
pub(crate) const FENCED: Verdict = Verdict::Drop(DropReason::Fenced);
const NO_BLOCK: Verdict = Verdict::Drop(DropReason::NoBlock);

/// All shards but that one.
pub(crate) fn without(shard: Shard) -> ShardSet {
    ShardSet::ALL.without([shard].into_iter().collect())
}

pub(crate) fn block(next: u64, end: u64) -> SequenceBlock {
    SequenceBlock { next, end }
}

pub(crate) fn node(tunnel: &Tunnel, numbers: SequenceBlock) -> Gateway {
    Gateway::with_numbers(&tunnel.params(), tunnel.library, numbers)
}

pub(crate) fn peer(tunnel: &Tunnel) -> Gateway {
    Gateway::new(&tunnel.params().mirrored(), tunnel.library)
}

fn burst(count: usize) -> Vec<Vec<u8>> {
    vec![sized(false, 100); count]
}

/// To A's side, from behind the peer.
pub(crate) fn back(count: usize) -> Vec<Vec<u8>> {
    let packet =
        v4_with(|f| (f.src, f.dst) = ([10, 2, 0, 2].into(), [10, 1, 0, 9].into()), Protocol(99), &[7; 50]);
    vec![packet; count]
}

pub(crate) fn verdicts(found: &[(Verdict, Vec<u8>)]) -> Vec<Verdict> {
    found.iter().map(|(verdict, _)| *verdict).collect()
}

fn events(gateway: &mut Gateway) -> Vec<Event> {
    gateway.plane.drain_events().collect()
}

fn is_balanced(gateway: &Gateway) -> bool {
    let totals = gateway.plane.counters().totals();
    totals.outbound.is_balanced() && totals.inbound.is_balanced()
}

#[test]
fn a_standby_goes_on_where_no_number_can_collide() {
    for tunnel in Tunnel::all() {
        let mut owner = node(&tunnel, block(1, 1000));
        let mut standby = node(&tunnel, block(1000, 2000));
        assert!(standby.plane.apply(Command::SetSenderId(SenderId(9))).is_none());
        let mut peer = peer(&tunnel);
        let first = forwarded(owner.outbound(&burst(20)));
        let second = forwarded(standby.outbound(&burst(20)));
        // The owner comes back and gets a block behind all others.
        owner.outbound.numbers().advance(block(2000, 3000)).unwrap();
        let third = forwarded(owner.outbound(&burst(20)));
        let sent = [first, second, third].concat();
        assert_eq!(forwarded(peer.inbound(&sent)).len(), 60);
        assert_eq!(peer.inbound.window().high_water_mark(), 2019);
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), 60);
    }
}

#[test]
fn a_new_owner_accepts_no_number_that_may_have_been_accepted() {
    let tunnel = Tunnel { window: 128, ..Tunnel::default() };
    let (mut owner, mut standby) = (node(&tunnel, block(1, 1000)), node(&tunnel, block(1000, 2000)));
    let mut peer = peer(&tunnel);
    let sent = forwarded(peer.outbound(&back(200)));
    assert_eq!(forwarded(owner.inbound(&sent[..100])).len(), 100);
    let mark = owner.inbound.take_high_water_mark();
    assert_eq!(mark, Some(100));
    let floors = vec![(Spi(0x7777_7777), 5), (SPI_A, mark.unwrap())];
    let garbage = standby.plane.apply(Command::TakeIn(floors.clone().into()));
    assert!(matches!(&garbage, Some(Garbage::TakenIn(done)) if done[..] == floors), "{garbage:?}");
    let found = verdicts(&standby.inbound(&sent));
    assert!(found[..100].iter().all(|verdict| *verdict == Verdict::Drop(DropReason::Replayed)));
    assert_eq!(found[100..], [Verdict::Forward; 100]);
    // A floor that is late takes nothing back and gives nothing away.
    standby.plane.apply(Command::TakeIn(Box::new([(SPI_A, 50)])));
    assert!(standby.inbound(&sent).iter().all(|(verdict, _)| *verdict != Verdict::Forward));
    assert!(is_balanced(&standby));
}

#[test]
fn an_edge_is_told_when_it_has_moved() {
    let tunnel = Tunnel::default();
    let (mut a, mut peer) = (node(&tunnel, block(1, 1000)), peer(&tunnel));
    assert_eq!(a.inbound.take_high_water_mark(), None);
    let sent = forwarded(peer.outbound(&back(8)));
    a.inbound(&sent[..4]);
    assert_eq!((a.inbound.take_high_water_mark(), a.inbound.take_high_water_mark()), (Some(4), None));
    a.inbound(&sent);
    assert_eq!((a.inbound.take_high_water_mark(), a.inbound.take_high_water_mark()), (Some(8), None));
}

#[test]
fn packets_of_shards_that_others_carry_are_left_to_them() {
    for tunnel in Tunnel::all() {
        let (mut a, mut peer) = (node(&tunnel, SequenceBlock::whole(tunnel.esn)), peer(&tunnel));
        let sent = forwarded(peer.outbound(&back(3)));
        assert!(a.plane.apply(Command::SetShards(without(SPI_A.shard()))).is_none());
        assert_eq!(verdicts(&a.inbound(&sent)), [OTHER_NODE; 3]);
        assert_eq!(a.inbound.window().high_water_mark(), 0);
        // No host answers for them: exactly one node sends an error.
        let last_hop = v4_with(|f| f.ttl = 1, Protocol(99), &[7; 50]);
        let too_big = v4_with(|f| f.df = true, Protocol(99), &[7; 1490]);
        let outside = v4_with(|f| f.src = [10, 9, 0, 1].into(), Protocol(99), &[7; 50]);
        set_spd(&mut a.plane, vec![wide()]);
        let found = a.outbound(&[sized(false, 100), last_hop, too_big, outside]);
        assert_eq!(verdicts(&found), [OTHER_NODE; 4]);
        assert_eq!(a.outbound.numbers().block().next, 1);
        assert_eq!(events(&mut a), []);
        assert_eq!(a.plane.counters().dropped(DropReason::OtherNode), 7);
        assert!(is_balanced(&a));
        // The shard of the SPI that the peer chose has nothing to do with it.
        assert!(a.plane.apply(Command::SetShards(without(SPI_B.shard()))).is_none());
        assert_eq!(verdicts(&a.inbound(&sent)), [Verdict::Forward; 3]);
        assert_eq!(forwarded(a.outbound(&burst(2))).len(), 2);
    }
}

/// All sources, for the SA's destinations.
pub(crate) fn wide() -> Policy {
    let tunnel = Tunnel::default().params();
    let local = vec![net("0.0.0.0", "255.255.255.255")];
    Policy { priority: 0, local, remote: tunnel.remote_ts, action: Action::Protect(POLICY) }
}

#[test]
fn only_packets_of_shards_carried_here_wait_for_their_sa() {
    let tunnel = Tunnel::default();
    let (mut a, mut peer) = (node(&tunnel, block(1, 1000)), peer(&tunnel));
    let sent = forwarded(peer.outbound(&back(2)));
    a.plane.apply(Command::RemoveInbound(SPI_A));
    assert_eq!(verdicts(&a.inbound(&sent[..1])), [Verdict::Early(SPI_A)]);
    a.plane.apply(Command::SetShards(without(SPI_A.shard())));
    assert_eq!(verdicts(&a.inbound(&sent[..1])), [OTHER_NODE]);
    a.plane.give_up_early(1);
    assert!(is_balanced(&a));
}

#[test]
fn the_node_at_home_alone_asks_for_an_sa_that_is_missing() {
    let tunnel = Tunnel::default();
    let mut a = node(&tunnel, block(1, 1000));
    a.plane.apply(Command::ClearOutbound(POLICY, SPI_A));
    let home = Shard(0x42);
    assert!(a.plane.apply(Command::SetHome(POLICY, Some(home))).is_none());
    a.plane.apply(Command::SetShards(without(home)));
    assert_eq!(verdicts(&a.outbound(&burst(2))), [OTHER_NODE; 2]);
    assert_eq!(events(&mut a), []);
    a.plane.apply(Command::SetShards([home].into_iter().collect()));
    assert_eq!(verdicts(&a.outbound(&burst(2))), [Verdict::Drop(DropReason::NoSa); 2]);
    assert!(matches!(events(&mut a)[..], [Event::NoSa { policy: POLICY, .. }]));
    let nowhere = PolicyId(PolicyId::LIMIT - 1);
    let garbage = a.plane.apply(Command::SetHome(nowhere, None));
    assert!(matches!(garbage, Some(Garbage::Home(policy)) if policy == nowhere));
}

#[test]
fn exactly_one_node_passes_a_bypassed_packet() {
    let tunnel = Tunnel::default();
    let key = SipKey::new([9; 16]);
    let mut nodes = [[u64::MAX, 0, 0, 0], [0, u64::MAX, 0, u64::MAX], [0, 0, u64::MAX, 0]].map(|shards| {
        let mut node = node(&tunnel, block(1, 1000));
        node.plane.apply(Command::SetShards(ShardSet::from_words(shards)));
        node.plane.apply(Command::SetHashKey(key));
        set_spd(&mut node.plane, vec![Policy { action: Action::Bypass, ..wide() }]);
        node
    });
    let mut kept = [0; 3];
    for host in 0..=255 {
        let packet = v4_with(|f| f.dst = [10, 2, 1, host].into(), Protocol(99), &[7; 50]);
        let packets = [packet];
        let mut keepers = 0;
        for (node, kept) in nodes.iter_mut().zip(&mut kept) {
            let found = run(&mut node.plane, Way::Outbound, Ingress::Flooded, &packets).remove(0);
            assert!(matches!(found.0, Verdict::Forward | OTHER_NODE));
            if found.0 == Verdict::Forward {
                (keepers, *kept) = (keepers + 1, *kept + 1);
                assert_eq!(found.1, one_hop_on(&packets[0]), "it came through a port");
            }
            // A packet to one node only belongs to that node.
            for ingress in [Ingress::Port, Ingress::Host] {
                assert_eq!(run(&mut node.plane, Way::Outbound, ingress, &packets)[0].0, Verdict::Forward);
            }
        }
        assert_eq!(keepers, 1);
    }
    assert!(kept.into_iter().all(|kept| kept > 30), "{kept:?}");
}

#[test]
fn a_shut_pipeline_touches_nothing() {
    for tunnel in Tunnel::all() {
        let (mut a, mut peer) = (node(&tunnel, SequenceBlock::whole(tunnel.esn)), peer(&tunnel));
        let sent = forwarded(peer.outbound(&back(3)));
        a.plane.set_open(false);
        assert_eq!(verdicts(&a.inbound(&sent)), [FENCED; 3]);
        let found = a.outbound(&burst(70));
        assert_eq!(found, burst(70).into_iter().map(|packet| (FENCED, packet)).collect::<Vec<_>>());
        // A packet that no policy covers is not sent either.
        set_spd(&mut a.plane, vec![Policy { action: Action::Bypass, ..wide() }]);
        assert_eq!(verdicts(&a.outbound(&burst(1))), [FENCED]);
        assert_eq!((a.inbound.window().high_water_mark(), a.outbound.numbers().block().next), (0, 1));
        assert_eq!(a.plane.counters().dropped_inbound(DropReason::Fenced), 3);
        assert_eq!(a.plane.counters().dropped_outbound(DropReason::Fenced), 71);
        assert!(is_balanced(&a));
        a.plane.set_open(true);
        assert_eq!(verdicts(&a.inbound(&sent)), [Verdict::Forward; 3]);
    }
}

/// A router's word counts where it quotes what this node has sent. Those who have a standby's
/// block, and have not begun with it, have sent nothing; and what they send later makes nothing
/// below that block theirs.
#[test]
fn numbers_sent_by_other_nodes_are_not_own_ones() {
    let tunnel = Tunnel { esn: false, ..Tunnel::default() };
    let params = tunnel.params();
    let sa = OutboundSa::new(&params, POLICY, SequenceBlock::EMPTY, PATH_MTU, tunnel.library).unwrap();
    let told = |sequence| TooBig {
        local: params.local.ip(),
        remote: params.remote.ip(),
        spi: SPI_B,
        sequence,
        udp: params.encapsulation == Encapsulation::Udp,
        mtu: 1300,
    };
    let believed = || -> Vec<u32> { (1..3000).filter(|number| sa.has_sent(&told(*number))).collect() };
    sa.numbers().advance(block(1000, 1100)).unwrap();
    assert!(believed().is_empty());
    sa.numbers().reserve(3);
    assert_eq!(believed(), [1000, 1001, 1002]);
    sa.numbers().follow(block(2000, 2100)).unwrap();
    assert_eq!(sa.numbers().reserve(200).count, 97);
    assert_eq!(believed(), (1000..1100).collect::<Vec<_>>(), "nothing beyond the end was sent");
    assert_eq!(sa.numbers().reserve(2).first, 2000);
    assert_eq!(believed(), [2000, 2001]);
}

#[test]
fn without_a_sender_id_nothing_is_protected() {
    let tunnel = Tunnel::default();
    let params = tunnel.params();
    let mut plane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), None, 1));
    set_spd(&mut plane, vec![wide()]);
    let whole = SequenceBlock::whole(true);
    let sa = Arc::new(OutboundSa::new(&params, POLICY, whole, PATH_MTU, tunnel.library).unwrap());
    plane.apply(Command::SetOutbound(POLICY, sa.clone()));
    let mut send = |command: Option<Command>| {
        let refused = command.and_then(|command| plane.apply(command)).is_some();
        let found = verdicts(&run(&mut plane, Way::Outbound, Ingress::Port, &burst(2)));
        assert!(plane.drain_events().all(|event| matches!(event, Event::KeyWanted { .. })));
        assert!(plane.counters().totals().outbound.is_balanced());
        (found, refused)
    };
    let no_sender = vec![Verdict::Drop(DropReason::NoSender); 2];
    let sent = vec![Verdict::Forward; 2];
    assert_eq!(send(None), (no_sender.clone(), false));
    assert_eq!(sa.numbers().block().next, 1, "no number is used up for nothing");
    assert_eq!(send(Some(Command::SetSenderId(SenderId(0x0805)))), (sent.clone(), false));
    assert_eq!(send(Some(Command::ForgetSenderId)), (no_sender.clone(), false));
    // A number that was given up is not accepted again, nor any before it.
    for former in [0x0805, 0x0804] {
        assert_eq!(send(Some(Command::SetSenderId(SenderId(former)))), (no_sender.clone(), true));
    }
    assert_eq!(send(Some(Command::SetSenderId(SenderId(0x0806)))), (sent, false));
    assert_eq!(sa.counters().dropped(DropReason::NoSender), 8);
}

#[test]
fn without_a_block_nothing_is_sent_and_control_hears_it_every_second() {
    let tunnel = Tunnel { esn: false, ..Tunnel::default() };
    let mut a = node(&tunnel, SequenceBlock::EMPTY);
    let low = |rate| Event::SequenceLow { spi: SPI_A, rate };
    let mut told = |now| {
        a.plane.set_now(now);
        assert_eq!(verdicts(&a.outbound(&burst(2))), [NO_BLOCK; 2]);
        a.plane.drain_events().collect::<Vec<_>>()
    };
    assert_eq!(told(10_000), [low(0)]);
    assert_eq!(told(10_999), []);
    assert_eq!(told(11_000), [low(0)]);
    assert_eq!(a.outbound.counters().dropped(DropReason::NoBlock), 6);
    a.outbound.numbers().advance(block(500, 600)).unwrap();
    let sent = forwarded(a.outbound(&burst(2)));
    assert_eq!(sent[0][24..28], 500_u32.to_be_bytes());
    assert_eq!(events(&mut a), []);
    // The last block of all: what is used up then is the SA.
    a.outbound.numbers().advance(block((1 << 32) - 1, 1 << 32)).unwrap();
    let exhausted = Verdict::Drop(DropReason::SequenceExhausted);
    assert_eq!(verdicts(&a.outbound(&burst(2))), [Verdict::Forward, exhausted]);
    assert!(is_balanced(&a));
}

#[test]
fn from_block_to_block_no_packet_is_lost() {
    let tunnel = Tunnel::default();
    let (mut a, mut peer) = (node(&tunnel, block(1, 201)), peer(&tunnel));
    let mut blocks = (1..).map(|number| block(600 * number, 600 * number + 200));
    let mut rates = Vec::new();
    for turn in 1..=100 {
        a.plane.set_now(turn * 10);
        // Every third burst of 64 crosses the end of a block.
        let sent = forwarded(a.outbound(&burst(64)));
        assert_eq!(forwarded(peer.inbound(&sent)).len(), 64);
        for event in events(&mut a) {
            let Event::SequenceLow { spi: SPI_A, rate } = event else { panic!("{event:?}") };
            rates.push(rate);
            a.outbound.numbers().follow(blocks.next().unwrap()).unwrap();
        }
    }
    assert_eq!(a.outbound.counters().totals().packets, 100 * 64);
    // Once for each block, and each time with the 6400 packets a second that there are.
    assert!((30..34).contains(&rates.len()), "{rates:?}");
    assert!(rates[1..].iter().all(|rate| (5000..=6500).contains(rate)), "{rates:?}");
}

#[test]
fn a_replica_makes_no_key_schedule() {
    let tunnel = Tunnel::default();
    let params = tunnel.params();
    let mut replica = Gateway::unused(&params, tunnel.library, block(1000, 2000));
    replica.plane.apply(Command::SetShards(without(SPI_A.shard())));
    let sent = forwarded(peer(&tunnel).outbound(&back(3)));
    replica.inbound(&sent);
    replica.outbound(&burst(3));
    assert_eq!(events(&mut replica), []);
    // It is asked for with the first packet after the shard has come.
    replica.plane.apply(Command::SetShards(ShardSet::ALL));
    replica.plane.set_now(10);
    assert_eq!(verdicts(&replica.inbound(&sent)), [Verdict::Forward; 3]);
    assert!(events(&mut replica).contains(&Event::KeyWanted { spi: SPI_A }));
}
