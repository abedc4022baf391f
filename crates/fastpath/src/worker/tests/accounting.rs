//! Invariant 5: every packet is accounted for, whatever arrives and whatever the pipeline decides.

use super::*;
use proptest::prelude::*;
use testudo_base::spi::Spi;

/// Decides by the octets of the packet, so that one function makes every kind of verdict.
fn by_content(item: &mut Item<'_>) -> Verdict {
    let choice = item.buf.data().get(24).copied().unwrap_or(0);
    match choice % 10 {
        0 | 1 => Verdict::Forward,
        2 => Verdict::ToHost,
        3 if item.buf.len() >= 20 => Verdict::Reply,
        4 => Verdict::Fragment { mtu: 100 + u16::from(choice) },
        5 if item.buf.grow_front(20) => {
            item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", PEER, 100, false)[..20]);
            Verdict::Forward
        }
        7 => Verdict::Reassemble,
        8 => Verdict::Behind,
        6 if item.buf.data().first() != Some(&0x60) => Verdict::Early(Spi(choice.into())),
        _ => Verdict::Drop(DropReason::NoPolicy),
    }
}

#[derive(Clone, Debug)]
struct Arrival {
    place: usize,
    class: u8,
    destination: u8,
    length: usize,
    choice: u8,
    df: bool,
    damage: Option<usize>,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let damage = prop_oneof![3 => Just(None), 1 => (0..60usize).prop_map(Some)];
    (0..3usize, 0..5u8, 0..9u8, 25..1500usize, any::<u8>(), any::<bool>(), damage).prop_map(
        |(place, class, destination, length, choice, df, damage)| Arrival {
            place,
            class,
            destination,
            length,
            choice,
            df,
            damage,
        },
    )
}

fn inject(worker: &mut TestWorker, arrival: &Arrival) {
    const DESTINATIONS: [&str; 9] = [
        CLIENT,
        PEER,
        "10.0.0.9",
        "203.0.113.4",
        "10.0.0.1",
        "172.16.0.1",
        "198.51.100.1",
        "8.8.8.8",
        "172.17.0.1",
    ];
    let mut packet = ipv4(CLIENT, DESTINATIONS[usize::from(arrival.destination)], arrival.length, arrival.df);
    packet[24] = arrival.choice;
    if let Some(at) = arrival.damage
        && let Some(octet) = packet.get_mut(at)
    {
        *octet ^= arrival.choice | 1;
    }
    if arrival.place == 2 {
        worker.host_mut().unwrap().to_read.push_back(packet);
    } else if worker.pool_mut().available() > 0 {
        let frame = stamped(worker.pool_mut(), &packet, arrival.class);
        if let Err(frame) = worker.port_mut(arrival.place).unwrap().deliver(frame) {
            worker.pool_mut().give(frame);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_packet_vanishes(
        rounds in prop::collection::vec(
            (prop::collection::vec(arrival(), 0..60), any::<bool>(), any::<bool>(), 0..700u64),
            1..20,
        ),
    ) {
        let mut worker = worker(fib(&[(0, CLIENT, 1), (1, ROUTER, 2)]));
        worker.pipeline_mut().outbound = Some(by_content);
        worker.pipeline_mut().inbound = Some(by_content);
        let mut now = 0;
        for (arrivals, fetch, learn, pause) in rounds {
            arrivals.iter().for_each(|arrival| inject(&mut worker, arrival));
            if learn {
                let _ = worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib()));
            }
            now += pause;
            worker.turn(now);
            prop_assert!(worker.counters().totals().is_balanced(), "{:?}", worker.counters().totals());
            if fetch {
                sent(&mut worker, LAN);
                sent(&mut worker, WAN);
            }
        }
        check_and_close(worker);
    }
}
