//! Shards that go: what had come before they did.

use super::*;
use testudo_base::shard::ShardSet;

fn not_ours(_: &mut Item<'_>) -> Verdict {
    Verdict::Drop(DropReason::OtherNode)
}

/// Whoever is given the shard has kept back what came later. A worker that was late with both hears
/// of it before it sees them.
#[test]
fn what_has_come_by_then_is_worked_on() {
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

    // What comes from then on is not.
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 0);
    check_and_close(worker);
}

/// Nobody waits for what a node has lost otherwise: it lets go at once.
#[test]
fn what_is_lost_is_let_go_at_once() {
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
