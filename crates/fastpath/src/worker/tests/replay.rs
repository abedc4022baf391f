//! Anti-replay through a pool: whichever worker processes a burst, and for how long, the accepted
//! packets are those that a sequential gateway accepts.

use super::pool::{BEHIND, Gateway, NUMBER, POLICY, US, behind_fib, params};
use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::{Duration, Instant};
use testudo_crypto::Library;
use testudo_ipsec::dataplane::PolicyBlock;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, Policy, Spd};

const WORKERS: usize = 4;
/// Packets that are sent.
const SENT: u32 = 600;

fn tunnel(replay_window: u32) -> ChildSaParams {
    ChildSaParams { replay_window, ..params(1) }
}

/// A peer's ESP packets, each with its number inside.
pub(super) fn esp_packets() -> &'static [Vec<u8>] {
    static PACKETS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(make_esp_packets);
    &PACKETS
}

fn make_esp_packets() -> Vec<Vec<u8>> {
    let params = tunnel(64).mirrored();
    let policy = Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(POLICY),
    };
    let outbound =
        OutboundSa::new(&params, POLICY, SequenceBlock::whole(true), 1500, Library::detect()).unwrap();
    let mut gateway = Gateway::new(1, US, 1, &full_fib());
    gateway.tell([
        Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))),
        Command::SetSpd(Arc::new(Spd::new(vec![policy]).unwrap())),
        Command::SetOutbound(POLICY, Arc::new(outbound)),
    ]);
    gateway.settle();
    let mut packets = Vec::new();
    for number in 0..SENT {
        let mut packet = ipv4(CLIENT, BEHIND, 600, false);
        packet[NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
        gateway.arrive(0, LAN, &packet, Class::Protect);
        gateway.turn(0);
        packets.extend(gateway.sent(0, WAN));
    }
    assert_eq!(packets.len(), SENT as usize);
    packets
}

/// A gateway that receives them with `workers` workers; a pool if they are several.
fn receiver(workers: usize, replay_window: u32) -> Gateway {
    let mut gateway = newcomer(workers, replay_window);
    gateway.settle();
    gateway
}

/// The same before any of them has heard of the SA.
pub(super) fn newcomer(workers: usize, replay_window: u32) -> Gateway {
    let params = tunnel(replay_window);
    let inbound = Arc::new(InboundSa::new(&params, POLICY, 1500, Library::detect()).unwrap());
    let mut gateway = Gateway::new(workers, PEER, 2, &behind_fib());
    if workers > 1 {
        let pool = WorkerPool::new(workers, Sharing::Steal);
        let members = std::mem::take(&mut gateway.workers).into_iter().enumerate();
        gateway.workers = members.map(|(place, worker)| worker.in_pool(Arc::clone(&pool), place)).collect();
    }
    gateway.tell([Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))), Command::AddInbound(inbound)]);
    gateway
}

/// Numbers that a worker has accepted and sent on.
pub(super) fn accepted(gateway: &mut Gateway, worker: usize) -> Vec<u32> {
    let number = |packet: &Vec<u8>| u32::from_be_bytes(packet[NUMBER..][..4].try_into().unwrap());
    gateway.sent(worker, LAN).iter().map(number).collect()
}

/// Turns all workers, each on a thread of its own, until they have nothing left to do. How long
/// each does nothing between its turns is told by `rests`, so that all are ahead of the others now
/// and then.
fn carry_out(gateway: &mut Gateway, rests: &[u16]) {
    let (count, idle, begun) = (gateway.workers.len(), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for (place, worker) in gateway.workers.iter_mut().enumerate() {
            let idle = &idle;
            scope.spawn(move || {
                let mut rests = rests.iter().cycle().skip(place * 7);
                let mut has_ended = false;
                while idle.load(Acquire) < count {
                    worker.turn(1);
                    let waiting = [LAN, WAN].map(|port| worker.port_mut(port).unwrap().waiting());
                    if !has_ended && waiting == [0, 0] && !worker.has_tasks() {
                        has_ended = true;
                        idle.fetch_add(1, AcqRel);
                    }
                    (0..*rests.next().unwrap_or(&0)).for_each(|_| std::hint::spin_loop());
                    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", worker.counters().totals());
                }
            });
        }
    });
    for worker in &gateway.workers {
        let totals = worker.counters().totals();
        assert!(totals.is_balanced() && totals.away == 0, "{totals:?}");
    }
}

/// Turns to spin between two turns of a worker.
fn rests() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0u16..100], 1..60)
}

/// A copy that comes besides: of which packet, where, and whether it was changed on its way.
type Copy = (Index, Index, bool);

/// Each packet `late` places late at most, and copies of some.
fn reordered(packets: &[Vec<u8>], late: &[u16], copies: &[Copy]) -> Vec<Vec<u8>> {
    let mut order: Vec<(usize, &Vec<u8>)> = packets
        .iter()
        .zip(late)
        .enumerate()
        .map(|(at, (packet, late))| (at + usize::from(*late), packet))
        .collect();
    order.sort_by_key(|(place, _)| *place);
    let mut arriving: Vec<Vec<u8>> = order.into_iter().map(|(_, packet)| packet.clone()).collect();
    for (of, to, changed) in copies {
        let mut copy = of.get(packets).clone();
        if *changed {
            *copy.last_mut().unwrap() ^= 1;
        }
        arriving.insert(to.index(arriving.len()), copy);
    }
    arriving
}

fn copies() -> impl Strategy<Value = Vec<Copy>> {
    prop::collection::vec(any::<(Index, Index, bool)>(), 0..100)
}

/// How late each packet is: two of three not at all. A strategy for each takes longer than the
/// packets themselves.
fn late(most: u16) -> impl Strategy<Value = Vec<u16>> {
    Just(()).prop_perturb(move |(), mut random| {
        let mut one =
            || if random.next_u32() % 3 == 0 { (random.next_u32() % u32::from(most)) as u16 } else { 0 };
        (0..SENT).map(|_| one()).collect()
    })
}

/// The queue of each packet.
fn queues() -> impl Strategy<Value = Vec<usize>> {
    Just(()).prop_perturb(|(), mut random| (0..1000).map(|_| random.next_u32() as usize % WORKERS).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_queue_accepts_what_one_worker_would(
        late in late(200),
        copies in copies(),
        rests in rests(),
    ) {
        let arriving = reordered(esp_packets(), &late, &copies);
        let (mut pool, mut alone) = (receiver(WORKERS, 64), receiver(1, 64));
        for packet in &arriving {
            pool.arrive(0, WAN, packet, Class::Esp);
            alone.arrive(0, WAN, packet, Class::Esp);
        }
        carry_out(&mut pool, &rests);
        carry_out(&mut alone, &[]);
        prop_assert_eq!(accepted(&mut pool, 0), accepted(&mut alone, 0));
    }

    #[test]
    fn four_queues_accept_each_packet_once(
        late in late(200),
        copies in copies(),
        queues in queues(),
        rests in rests(),
    ) {
        let arriving = reordered(esp_packets(), &late, &copies);
        let mut pool = receiver(WORKERS, 1024);
        for (packet, queue) in arriving.iter().zip(queues) {
            pool.arrive(queue, WAN, packet, Class::Esp);
        }
        carry_out(&mut pool, &rests);
        let mut all: Vec<u32> = (0..WORKERS).flat_map(|worker| accepted(&mut pool, worker)).collect();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..SENT));
    }
}
