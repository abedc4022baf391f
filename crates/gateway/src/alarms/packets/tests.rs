use super::*;
use std::cell::RefCell;

const SA: Spi = Spi(0x0102_0304);

/// A data plane with one SA.
#[derive(Default)]
struct Plane {
    counts: BTreeMap<DropReason, u64>,
    samples: RefCell<Vec<(DropReason, Sample)>>,
    dropped: BTreeMap<DropReason, u64>,
    received: u64,
    overlaps: u64,
    clear: u64,
}

/// The beginning of a packet from this host.
fn head(host: u8) -> [u8; 40] {
    let mut head = [0x45; 40];
    head[12..16].copy_from_slice(&[198, 51, 100, host]);
    head
}

impl Plane {
    /// Drops packets with this SPI.
    fn drop(&mut self, reason: DropReason, spi: Spi, count: u64) {
        self.drop_from(1, reason, spi, count);
    }

    /// The same, from a host.
    fn drop_from(&mut self, host: u8, reason: DropReason, spi: Spi, count: u64) {
        *self.counts.entry(reason).or_default() += count;
        if spi == SA {
            *self.dropped.entry(reason).or_default() += count;
        }
        self.samples.get_mut().push((reason, Sample::of(spi, &head(host))));
    }
}

impl PacketSource for Plane {
    fn suspicious(&self) -> Vec<(DropReason, u64)> {
        self.counts.iter().map(|(reason, count)| (*reason, *count)).collect()
    }

    fn take_samples(&self, reason: DropReason) -> Vec<Sample> {
        let mut samples = self.samples.borrow_mut();
        samples.extract_if(.., |(of, _)| *of == reason).map(|(_, sample)| sample).collect()
    }

    fn sa(&self, spi: Spi, reason: DropReason) -> Option<SaView> {
        (spi == SA).then(|| SaView {
            child: ChildSaId(5),
            remote: [192, 0, 2, 1].into(),
            dropped: self.dropped.get(&reason).copied().unwrap_or_default(),
            received: self.received,
            high_water_mark: 1000,
        })
    }

    fn clear_dropped(&self) -> Vec<(String, u64)> {
        vec![("eth0".to_owned(), self.clear)]
    }

    fn take_clear_dropped(&self, port: &str) -> Vec<Sample> {
        assert_eq!(port, "eth0");
        Vec::new()
    }

    fn overlaps(&self) -> u64 {
        self.overlaps
    }

    fn take_overlaps(&self) -> Vec<Sample> {
        Vec::new()
    }
}

fn seen(counts: &mut PacketCounts, plane: &Plane) -> Vec<(Kind, Subject, u64)> {
    counts.look(plane).into_iter().map(|seen| (seen.kind, seen.subject, seen.count)).collect()
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
    assert_eq!(seen(&mut counts, &plane), []);
    plane.received = 10;
    plane.drop(DropReason::Replayed, SA, 20);
    let child = Subject::ChildSa(5);
    assert_eq!(seen(&mut counts, &plane), [(Kind::ReplayBurst, child.clone(), 20)]);
    // As if the SA had received nothing for long.
    let sa = counts.sas.get_mut(&ChildSaId(5)).unwrap();
    sa.moved = sa.moved.and_then(|moved| moved.checked_sub(LIVELY));
    plane.drop(DropReason::ReplayTooOld, SA, 20);
    assert_eq!(seen(&mut counts, &plane), [(Kind::CounterReversal, child.clone(), 20)]);
    plane.received = 11;
    plane.drop(DropReason::ReplayTooOld, SA, 20);
    assert_eq!(seen(&mut counts, &plane), [(Kind::ReplayBurst, child, 20)]);
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
    counts.look(plane).into_iter().map(|seen| (seen.source.map(host), seen.count)).collect()
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
    counts.look(&Plane::default());
    counts.look(&plane);
    assert!(counts.sas.len() <= MAX_SAS && counts.spis.len() <= MAX_SPIS);
}
