//! Shards that go: what had come before they did.

use super::*;
use testudo_base::shard::ShardSet;

fn not_ours(_: &mut Item<'_>) -> Verdict {
    Verdict::Drop(DropReason::OtherNode)
}

/// The next owner of the shard has kept later packets back. A worker that was late with both
/// processes these before it executes the command.
#[test]
fn packets_before_the_stop_are_processed() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().shardless = Some(not_ours);
    for length in 0..200 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100 + length, false), Class::Protect);
    }
    tell(&mut worker, Command::Note(ShardSet::ALL, Box::default()));
    tell(&mut worker, Command::SetShards(ShardSet::EMPTY));
    worker.turn(1);
    let lengths: Vec<usize> = sent(&mut worker, WAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lengths, (100..300).collect::<Vec<_>>());

    // Later packets are not.
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 0);
    check_and_close(worker);
}

/// A shard that is lost without a handover has no next owner waiting: it stops at once.
#[test]
fn a_shard_lost_without_a_handover_stops_at_once() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().shardless = Some(not_ours);
    tell(&mut worker, Command::Note(ShardSet::ALL, Box::default()));
    tell(&mut worker, Command::TakeNotes);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
    tell(&mut worker, Command::SetShards(ShardSet::EMPTY));
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), 0);
    check_and_close(worker);
}
