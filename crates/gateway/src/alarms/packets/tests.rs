use super::super::scripted::{Plane, SA};
use super::*;

const NOW: Duration = Duration::from_secs(100);

fn seen(counts: &mut PacketCounts, plane: &Plane) -> Vec<(Kind, Subject, u64)> {
    seen_at(NOW, counts, plane)
}

fn seen_at(now: Duration, counts: &mut PacketCounts, plane: &Plane) -> Vec<(Kind, Subject, u64)> {
    counts.look(now, plane).into_iter().map(|seen| (seen.kind, seen.subject, seen.count)).collect()
}

#[test]
fn what_came_before_the_first_look_is_no_sighting() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    plane.drop(DropReason::Replayed, SA, 100);
    (plane.overlaps, plane.clear) = (7, 7);
    assert_eq!(seen(&mut counts, &plane), []);
    assert_eq!(seen(&mut counts, &plane), []);
    (plane.overlaps, plane.clear) = (9, 10);
    let expected = [
        (Kind::FragmentOverlap, Subject::Gateway, 2),
        (Kind::ClearText, Subject::Port("eth0".to_owned()), 3),
    ];
    assert_eq!(seen(&mut counts, &plane), expected);
}

#[test]
fn packets_count_for_their_sa_and_the_rest_for_the_gateway() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    assert_eq!(seen(&mut counts, &plane), []);
    plane.received = 10;
    plane.drop(DropReason::AuthFailed, SA, 6);
    plane.drop(DropReason::AuthFailed, Spi(0x0908_0706), 3);
    let child = Subject::ChildSa(5);
    let expected = [(Kind::ForgedPackets, child.clone(), 6), (Kind::ForgedPackets, Subject::Gateway, 3)];
    assert_eq!(seen(&mut counts, &plane), expected);
    plane.drop(DropReason::AuthFailed, SA, 2);
    assert_eq!(seen(&mut counts, &plane), [(Kind::ForgedPackets, child, 2)]);
}

#[test]
fn old_numbers_beside_new_ones_are_replays_and_alone_a_reversal() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    let child = Subject::ChildSa(5);
    let mut old = |at: u64, new: u64, reason: DropReason| {
        plane.received += new;
        plane.drop(reason, SA, 20);
        seen_at(NOW + Duration::from_millis(at), &mut counts, &plane)
    };
    let replays = [(Kind::ReplayBurst, child.clone(), 20)];
    assert_eq!(old(0, 10, DropReason::Replayed), [], "the first look");
    assert_eq!(old(250, 1, DropReason::Replayed), replays);
    assert_eq!(old(500, 0, DropReason::Replayed), replays);
    let reversal = |count| [(Kind::CounterReversal, child.clone(), count)];
    assert_eq!(old(750, 0, DropReason::ReplayTooOld), reversal(60), "those of before, too");
    assert_eq!(old(1000, 0, DropReason::ReplayTooOld), reversal(20));
    assert_eq!(old(1250, 1, DropReason::ReplayTooOld), replays, "it receives again");
}

/// A burst on a tunnel without traffic is no reversal if the burst before it is long over.
#[test]
fn old_numbers_that_come_now_and_then_are_replays() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    plane.received = 10;
    assert_eq!(seen(&mut counts, &plane), []);
    for burst in 0..3 {
        let at = NOW + Duration::from_secs(10 * burst);
        plane.drop(DropReason::Replayed, SA, 20);
        let replays = [(Kind::ReplayBurst, Subject::ChildSa(5), 20)];
        assert_eq!(seen_at(at, &mut counts, &plane), replays, "burst {burst}");
        for quarter in 1..=PAUSE_LOOKS as u32 {
            assert_eq!(seen_at(at + quarter * Duration::from_millis(250), &mut counts, &plane), []);
        }
    }
}

#[test]
fn one_spi_that_is_gone_is_no_scan() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    assert_eq!(seen(&mut counts, &plane), []);
    for _ in 0..10 {
        plane.drop(DropReason::UnknownSpi, Spi(0x1111_1111), 100);
        plane.drop(DropReason::UnknownSpi, Spi(0x2222_2222), 100);
        assert_eq!(seen(&mut counts, &plane), []);
    }
    plane.drop(DropReason::UnknownSpi, Spi(0x3333_3333), 100);
    assert_eq!(seen(&mut counts, &plane), [(Kind::SpiScan, Subject::Gateway, 100)]);
}

fn sources(counts: &mut PacketCounts, plane: &Plane) -> Vec<(Option<u8>, u64)> {
    let host = |source: IpAddr| match source {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(_) => 0,
    };
    counts.look(NOW, plane).into_iter().map(|seen| (seen.source.map(host), seen.count)).collect()
}

#[test]
fn each_source_gets_its_share_of_the_packets() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    assert_eq!(sources(&mut counts, &plane), []);
    plane.received = 10;
    for (host, count) in [(7, 20), (7, 40), (9, 41)] {
        plane.drop_from(host, DropReason::Replayed, SA, count);
    }
    assert_eq!(sources(&mut counts, &plane), [(Some(7), 67), (Some(9), 34)]);
}

/// After a restart of this gateway each peer sends by an SA that is gone: that is a scan only of one
/// who tries several SPIs.
#[test]
fn only_who_tries_several_spis_is_named_as_a_scanner() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    assert_eq!(sources(&mut counts, &plane), []);
    for host in 1..4 {
        plane.drop_from(host, DropReason::UnknownSpi, Spi(host.into()), 100);
    }
    assert_eq!(sources(&mut counts, &plane), [(None, 300)]);
    for spi in 10..25 {
        plane.drop_from(9, DropReason::UnknownSpi, Spi(spi), 10);
    }
    plane.drop_from(1, DropReason::UnknownSpi, Spi(1), 10);
    assert_eq!(sources(&mut counts, &plane), [(None, 160)]);
    plane.drop_from(9, DropReason::UnknownSpi, Spi(25), 10);
    plane.drop_from(1, DropReason::UnknownSpi, Spi(1), 10);
    assert_eq!(sources(&mut counts, &plane), [(Some(9), 10), (None, 10)]);
}

#[test]
fn an_attacker_on_all_sas_fills_no_memory() {
    let (mut counts, mut plane) = (PacketCounts::default(), Plane::default());
    for n in 0..10_000 {
        plane.drop(DropReason::UnknownSpi, Spi(n), 1);
        plane.drop(DropReason::Replayed, Spi(n), 1);
    }
    counts.look(NOW, &Plane::default());
    counts.look(NOW, &plane);
    assert!(counts.sas.len() <= MAX_SAS && counts.spis.len() <= MAX_SPIS);
}
