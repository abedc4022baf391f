//! A shard goes from one node to another, with both of them alive: of what comes meanwhile each
//! packet goes once.

use crate::cluster::{back, block, node, peer, verdicts, without};
use crate::harness::{Gateway, SPI_A, Tunnel, Way, forwarded, run, set_spd};
use crate::packets::{datagram, v4_with};
use proptest::prelude::*;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ipsec::dataplane::{Command, Garbage, Ingress, Note, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::spd::{Action, Policy};
use testudo_wire::ip::Protocol;

fn shard() -> Shard {
    SPI_A.shard()
}

fn only() -> ShardSet {
    [shard()].into_iter().collect()
}

fn numbered(number: usize) -> Vec<u8> {
    // Some packets are the same as others, octet for octet.
    v4_with(|fields| fields.id = 1, Protocol::UDP, &[&datagram(8)[..], &[number as u8]].concat())
}

fn out(gateway: &mut Gateway, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    run(&mut gateway.plane, Way::Outbound, Ingress::Port, packets)
}

fn notes(room: usize) -> Box<[Note]> {
    vec![Note { shard: Shard(0), digest: 0 }; room].into()
}

/// The owner's notes.
fn take_notes(owner: &mut Gateway) -> Vec<u64> {
    let Some(Garbage::Noted(notes, count)) = owner.plane.apply(Command::TakeNotes) else { panic!("notes") };
    assert!(notes[..count].iter().all(|note| note.shard == shard()));
    notes[..count].iter().map(|note| note.digest).collect()
}

/// An owner and a node that keeps back what comes.
fn two(tunnel: &Tunnel) -> [Gateway; 2] {
    let mut owner = node(tunnel, block(1, 1000));
    let mut next = node(tunnel, block(1000, 2000));
    owner.plane.apply(Command::Note(only(), notes(64)));
    next.plane.apply(Command::SetShards(without(shard())));
    next.plane.apply(Command::Hold(only()));
    [owner, next]
}

/// The owner stops; the other begins with what it is told.
fn hand_over(owner: &mut Gateway, next: &mut Gateway) {
    owner.plane.apply(Command::SetShards(without(shard())));
    let handled = take_notes(owner).into_iter().map(|digest| (digest, false)).collect();
    let floor = (owner.inbound.spi(), owner.inbound.window().high_water_mark());
    next.plane.apply(Command::TakeIn(Box::new([floor])));
    next.plane.apply(Command::Handled(only(), handled));
    next.plane.apply(Command::Hold(ShardSet::EMPTY));
    next.plane.apply(Command::SetShards(ShardSet::ALL));
}

proptest! {
    /// Each node meets the packets in the same order; the next one begins to keep them back
    /// somewhere, and the owner stops somewhere behind that. What the one has not worked on by then
    /// the other does, as often as it came.
    #[test]
    fn each_packet_goes_once(
        kinds in prop::collection::vec(0_usize..200, 1..60),
        (begin, stop) in (0_usize..60, 0_usize..60),
    ) {
        let [mut owner, mut next] = two(&Tunnel::default());
        // Copies before the next node keeps anything back would be taken for those that it keeps.
        let packets: Vec<_> = kinds.iter().enumerate().map(|(at, kind)| numbered(if *kind < 20 { *kind } else { 20 + at })).collect();
        let begin = begin.min(packets.len());
        let stop = stop.clamp(begin, packets.len().max(begin));
        let kept = &packets[begin..];
        prop_assume!(packets[..begin].iter().all(|early| !kept.contains(early)));
        let by_owner = out(&mut owner, &packets[..stop]);
        prop_assert!(by_owner.iter().all(|(verdict, _)| *verdict == Verdict::Forward));
        let held = out(&mut next, kept);
        prop_assert!(held.iter().all(|(verdict, _)| *verdict == Verdict::Held));
        prop_assert_eq!(held.iter().map(|(_, packet)| packet).collect::<Vec<_>>(), kept.iter().collect::<Vec<_>>());
        // Its shard has gone, and its notes have not been fetched yet.
        owner.plane.apply(Command::SetShards(without(shard())));
        let late = out(&mut owner, &packets[stop..]);
        hand_over(&mut owner, &mut next);
        prop_assert!(late.iter().all(|(verdict, _)| *verdict == Verdict::Drop(DropReason::OtherNode)));
        let by_next = out(&mut next, kept);
        let count = |wanted: Verdict| by_next.iter().filter(|(verdict, _)| *verdict == wanted).count();
        prop_assert_eq!(count(Verdict::Drop(DropReason::HandledElsewhere)), stop - begin);
        prop_assert_eq!(count(Verdict::Forward), packets.len() - stop);
        for gateway in [&owner, &next] {
            let totals = gateway.plane.counters().totals();
            prop_assert!(totals.outbound.is_balanced() && totals.inbound.is_balanced());
        }
    }

    /// For inbound packets the replay window decides.
    #[test]
    fn each_packet_is_taken_in_once(count in 1_usize..60, stop in 0_usize..60, begin in 0_usize..60) {
        let tunnel = Tunnel::default();
        let ([mut owner, mut next], mut peer) = (two(&tunnel), peer(&tunnel));
        let sent = forwarded(peer.outbound(&back(count)));
        let begin = begin.min(count);
        let stop = stop.clamp(begin, count);
        prop_assert!(verdicts(&owner.inbound(&sent[..stop])).iter().all(|verdict| *verdict == Verdict::Forward));
        let held = next.inbound(&sent[begin..]);
        prop_assert!(verdicts(&held).iter().all(|verdict| *verdict == Verdict::Held));
        let unchanged: Vec<_> = held.into_iter().map(|(_, packet)| packet).collect();
        prop_assert_eq!(&unchanged[..], &sent[begin..]);
        hand_over(&mut owner, &mut next);
        let found = verdicts(&next.inbound(&sent[begin..]));
        let expected = (begin..count).map(|at| if at < stop { None } else { Some(Verdict::Forward) });
        for (found, expected) in found.into_iter().zip(expected) {
            prop_assert_eq!((found == Verdict::Forward).then_some(found), expected);
        }
    }
}

#[test]
fn notes_are_compared_only_for_a_moment() {
    let [mut owner, mut next] = two(&Tunnel::default());
    let packet = numbered(1);
    out(&mut owner, std::slice::from_ref(&packet));
    hand_over(&mut owner, &mut next);
    next.plane.set_now(299);
    let twice = [packet.clone(), packet.clone()];
    let found = verdicts(&out(&mut next, &twice));
    assert_eq!(found, [Verdict::Drop(DropReason::HandledElsewhere), Verdict::Forward], "once for each time");
    let [mut owner, mut next] = two(&Tunnel::default());
    out(&mut owner, std::slice::from_ref(&packet));
    hand_over(&mut owner, &mut next);
    next.plane.set_now(301);
    assert_eq!(verdicts(&out(&mut next, &twice)), [Verdict::Forward; 2]);
}

/// Another shard is still on its way, so that every packet is asked about.
#[test]
fn notes_of_one_shard_end_while_another_still_comes() {
    for (now, expected) in [(299, Verdict::Drop(DropReason::HandledElsewhere)), (300, Verdict::Forward)] {
        let [mut owner, mut next] = two(&Tunnel::default());
        let packets = [numbered(1)];
        out(&mut owner, &packets);
        hand_over(&mut owner, &mut next);
        next.plane.apply(Command::Hold([Shard(shard().0 ^ 1)].into_iter().collect()));
        next.plane.set_now(now);
        assert_eq!(verdicts(&out(&mut next, &packets)), [expected], "after {now} ms");
    }
}

/// A packet that no policy protects waits for the shard of its addresses if every node has it. If
/// one node alone has it, nothing would bring it later.
#[test]
fn a_bypassed_packet_waits_only_if_all_nodes_have_it() {
    let mut next = node(&Tunnel::default(), block(1, 1000));
    let params = Tunnel::default().params();
    let policy =
        Policy { priority: 0, local: params.local_ts, remote: params.remote_ts, action: Action::Bypass };
    set_spd(&mut next.plane, vec![policy]);
    next.plane.apply(Command::Hold(ShardSet::ALL));
    let mut send = |ingress| verdicts(&run(&mut next.plane, Way::Outbound, ingress, &[numbered(1)]));
    assert_eq!(send(Ingress::Flooded), [Verdict::Held]);
    assert_eq!(send(Ingress::Port), [Verdict::Forward]);
    assert_eq!(send(Ingress::Host), [Verdict::Forward]);
}

#[test]
fn the_latest_notes_are_kept() {
    let tunnel = Tunnel::default();
    let mut owner = node(&tunnel, block(1, 1000));
    owner.plane.apply(Command::Note(only(), notes(4)));
    let packets: Vec<_> = (0..11).map(numbered).collect();
    out(&mut owner, &packets);
    let all = take_notes(&mut owner);
    owner.plane.apply(Command::Note(only(), notes(64)));
    out(&mut owner, &packets[7..]);
    assert_eq!(all, take_notes(&mut owner), "oldest first");
    out(&mut owner, &packets);
    assert!(take_notes(&mut owner).is_empty(), "nothing is noted behind that");
}
