//! Packets that go through the pipeline twice: when one burst becomes many, and when all tasks are
//! out, because a helper has the first of them and no processor.

use super::stealing::{Numbered, NumberingWorker, drain, member_with, numbered};
use super::*;
use crate::worker::steal::work;
use testudo_ipsec::dataplane::Ingress;
use testudo_wire::ipv4::MIN_MTU;

/// Bursts that find room on a queue.
const BURSTS: usize = 17;
/// Octets of a packet that becomes two.
const OCTETS: usize = 100;

fn owner(pool: &Numbered) -> NumberingWorker {
    let ports = [0, 1].map(|index| FakePort::new(port(index).info().clone(), 4 * BURSTS * BURST));
    let mut owner = member_with(8 * BURSTS * BURST, 0, ports.into(), pool);
    owner.pipeline_mut().splits = true;
    owner
}

/// Packets whose pieces all have the packet's number in the same place.
fn arrive_all(owner: &mut NumberingWorker) {
    for number in 0..(BURSTS * BURST) as u32 {
        let mut packet = ipv4(CLIENT, PEER, OCTETS, false);
        packet[20..].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&number.to_be_bytes()));
        let frame = stamped(owner.pool_mut(), &packet, Class::Protect as u8);
        owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
    }
}

#[test]
fn pieces_keep_their_order_however_many_bursts_are_out() {
    let pool = numbered(2);
    let mut owner = owner(&pool);
    let mut helper = member_with(FRAMES, 1, Vec::new(), &pool);
    helper.pipeline_mut().splits = true;
    helper.turn(1);
    arrive_all(&mut owner);
    assert!(owner.receive(LAN) && owner.has_tasks());
    let (place, mut task) = helper.slot.as_ref().and_then(|slot| slot.steal()).expect("a task");
    let slot = helper.slot.as_ref().unwrap();
    work(&mut task, slot, place, &mut helper.pipeline, &mut helper.delivery);
    owner.turn(1);
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert!(numbers.is_empty() && !owner.has_room());
    helper.slot.as_ref().unwrap().give_back(place, task);
    for turn in 2..10 {
        owner.turn(turn);
        drain(&mut owner, &mut numbers);
    }
    assert_eq!(numbers.len(), 2 * BURSTS * BURST);
    assert!(numbers.is_sorted_by_key(|(number, _)| *number), "a piece has overtaken another");
    assert!(numbers.is_sorted_by_key(|(_, sequence)| *sequence), "an SA out of order");
    let totals = owner.counters().totals();
    assert!(totals.is_balanced() && totals.away == 0, "{totals:?}");
    assert_eq!((owner.close(), helper.close()), (0, 0));
}

#[test]
fn a_burst_of_packets_that_become_many_goes_through_whole() {
    const PIECES: usize = 20;
    let deep = |index: u16| FakePort::new(port(index).info().clone(), 2 * PIECES * BURST);
    let pool = FramePool::new(2 * PIECES * BURST, ChunkSize::K2).unwrap();
    let outbound: fn(&mut Item<'_>) -> Verdict = |item| {
        if item.ingress == Ingress::Port { Verdict::Fragment { mtu: MIN_MTU } } else { Verdict::Forward }
    };
    let pipeline = Scripted { outbound: Some(outbound), ..Scripted::default() };
    let ports = vec![deep(0), deep(1)];
    let mut worker: TestWorker =
        Worker::new(WorkerConfig::new(0), ports, None, pool, full_fib(), pipeline).unwrap();
    // 48 octets each.
    let packet = ipv4(CLIENT, PEER, 20 + 48 * PIECES, false);
    (0..BURST).for_each(|_| arrive(&mut worker, LAN, &packet, Class::Protect));
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), PIECES * BURST, "{:?}", worker.counters().totals());
    check_and_close(worker);
}

#[test]
fn no_stealing_while_packets_are_split() {
    let pool = numbered(2);
    let mut owner = owner(&pool);
    let mut helper = member_with(FRAMES, 1, Vec::new(), &pool);
    helper.turn(1);
    arrive_all(&mut owner);
    assert!(owner.receive(LAN) && owner.has_tasks());
    owner.work_on_queue();
    // The fragments of the first burst have left, and nothing comes between them and their other
    // fragments.
    owner.turn(2);
    let mut numbers = Vec::new();
    drain(&mut owner, &mut numbers);
    assert!(numbers.len() < 4 * 2 * BURST, "{} packets in one turn", numbers.len());
    assert!(owner.receive(LAN) && !owner.has_tasks());
    owner.pipeline_mut().splits = false;
    owner.delivery.set_now(2000);
    assert!(owner.receive(LAN) && owner.has_tasks(), "a second later");
    while owner.port_mut(LAN).unwrap().waiting() > 0 || owner.has_tasks() {
        owner.turn(2001);
        drain(&mut owner, &mut numbers);
    }
    assert!(numbers.is_sorted_by_key(|(_, sequence)| *sequence));
    assert_eq!((owner.close(), helper.close()), (0, 0));
}
