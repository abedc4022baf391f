//! Packets that nodes of a cluster relay to each other.

use super::super::early::EARLY_TIMEOUT_MS;
use super::*;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Ingress, Relay, RelayParams};
use testudo_ipsec::sa::KeyMaterial;
use testudo_wire::ipv6;

/// Takes packets of more than 500 octets for ESP to us, all of them for relayed ones.
fn unwrap(item: &mut Item<'_>) -> Verdict {
    assert_eq!(item.ingress, Ingress::Port);
    Verdict::Relayed { ingress: Ingress::Relayed, to_us: item.buf.len() > 500 }
}

fn inbound(item: &mut Item<'_>) -> Verdict {
    if item.ingress == Ingress::Relayed { Verdict::Forward } else { unwrap(item) }
}

fn outbound(item: &mut Item<'_>) -> Verdict {
    assert_eq!(item.ingress, Ingress::Relayed);
    Verdict::Forward
}

fn carrier() -> TestWorker {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(inbound);
    worker.pipeline_mut().outbound = Some(outbound);
    worker
}

#[test]
fn relayed_packets_take_the_way_that_they_would_have_taken_from_a_port() {
    let mut worker = carrier();
    // More than a burst of each kind, mixed.
    for number in 0..200 {
        let (packet, class) = match number % 2 {
            0 => (ipv4(PEER, CLIENT, 600, true), Class::Esp),
            _ => (ipv4(CLIENT, PEER, 100, true), Class::Esp),
        };
        arrive(&mut worker, WAN, &packet, class);
    }
    (1..5).for_each(|now| {
        worker.turn(now);
    });
    let lengths = |sent: Vec<([u8; 14], Vec<u8>)>| sent.iter().map(|(_, p)| p.len()).collect::<Vec<_>>();
    assert_eq!(lengths(sent(&mut worker, LAN)), [600; 100]);
    assert_eq!(lengths(sent(&mut worker, WAN)), [100; 100]);
    assert_eq!(worker.counters().totals().dropped, 0);
    check_and_close(worker);
}

/// The errors come from the port by which the packet was relayed, and go where routes lead.
#[test]
fn errors_about_relayed_packets_go_to_their_senders() {
    let mut worker = carrier();
    worker.pipeline_mut().outbound = Some(|item| {
        assert!(item.buf.grow_front(28));
        item.buf.data_mut()[..28].copy_from_slice(&ipv4("192.0.2.1", CLIENT, 128, true)[..28]);
        Verdict::Reply
    });
    arrive(&mut worker, WAN, &ipv4(CLIENT, PEER, 100, true), Class::Esp);
    worker.turn(1);
    assert_eq!(sent(&mut worker, LAN).len(), 1);
    let sources: Vec<_> = worker.pipeline_mut().sources.iter().map(|sources| sources.v4).collect();
    assert_eq!(sources, ["192.0.2.1".parse().ok()]);
    check_and_close(worker);
}

/// What is relayed is not taken for a packet from this node's port when it has waited.
#[test]
fn a_relayed_packet_stays_one_while_it_waits_for_its_shard() {
    let mut worker = carrier();
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::Relayed);
        Verdict::Held
    });
    arrive(&mut worker, WAN, &ipv4(CLIENT, PEER, 100, true), Class::Esp);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 1);
    worker.pipeline_mut().outbound = Some(outbound);
    tell(&mut worker, Command::SetShards(ShardSet::ALL));
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 1);
    check_and_close(worker);
}

/// The pipeline itself takes the outer packet off.
#[test]
fn a_packet_that_the_pipeline_takes_out_of_a_relay_sa_waits_as_a_relayed_one() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::Port);
        item.ingress = Ingress::Relayed;
        Verdict::Held
    });
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 600, true), Class::Esp);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 1);
    worker.pipeline_mut().inbound = Some(inbound);
    tell(&mut worker, Command::SetShards(ShardSet::ALL));
    worker.turn(2);
    assert_eq!(sent(&mut worker, LAN).len(), 1);
    check_and_close(worker);
}

/// The other node may be in the next view already.
#[test]
fn a_packet_waits_for_its_relay_sa() {
    const SPI: Spi = Spi(256 + 32 + 1);
    let mut worker = carrier();
    worker.pipeline_mut().inbound = Some(|_| Verdict::Early(SPI));
    arrive(&mut worker, WAN, &ipv4(CLIENT, PEER, 100, true), Class::Esp);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 1);
    worker.pipeline_mut().inbound = Some(inbound);
    tell(&mut worker, Command::SetRelay(Arc::default()));
    worker.turn(2);
    assert_eq!(worker.counters().totals().held, 1, "another view");
    let params = RelayParams {
        local: addr("192.0.2.1"),
        remote: addr(PEER),
        spi_in: SPI,
        spi_out: SPI,
        key_in: KeyMaterial(vec![1; RelayParams::KEY_LEN]),
        key_out: KeyMaterial(vec![2; RelayParams::KEY_LEN]),
    };
    let mut relay = Relay::default();
    assert!(relay.accept(Arc::new(params.build(1500, Library::detect()).unwrap().0)));
    tell(&mut worker, Command::SetRelay(Arc::new(relay)));
    worker.turn(EARLY_TIMEOUT_MS / 2);
    assert_eq!((worker.counters().totals().held, sent(&mut worker, WAN).len()), (0, 1));
    check_and_close(worker);
}

/// A packet to this node that is encrypted for another one is this node's own: where it is too big
/// for the link, it is fragmented, and nobody is told to send less.
#[test]
fn what_is_relayed_may_be_larger_than_the_link() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(|item| {
        let outer = match item.buf.data()[0] >> 4 {
            4 => ipv4("192.0.2.1", PEER, item.buf.len() + 20, false)[..20].to_vec(),
            _ => ipv6("2001:db8::7", item.buf.len() + 40)[..40].to_vec(),
        };
        assert!(item.buf.grow_front(outer.len()));
        item.buf.data_mut()[..outer.len()].copy_from_slice(&outer);
        Verdict::Forward
    });
    arrive(&mut worker, WAN, &ipv4(PEER, "192.0.2.1", 1490, true), Class::Esp);
    arrive(&mut worker, WAN, &ipv6("2001:db8::1", 1490), Class::Esp);
    worker.turn(1);
    let v4 = sent(&mut worker, WAN);
    assert_eq!(v4.iter().map(|(_, piece)| piece.len()).sum::<usize>(), 1490 + 2 * 20);
    let v6 = sent(&mut worker, LAN);
    assert_eq!((v6.len(), v6[0].1[6]), (2, 44), "a fragment header");
    let fragmented: usize = v6.iter().map(|(_, piece)| piece.len() - ipv6::HEADER - 8).sum();
    assert_eq!(fragmented, 1490);
    let totals = worker.counters().totals();
    assert_eq!((totals.generated, totals.dropped, totals.split), (0, 0, 2));
    check_and_close(worker);
}
