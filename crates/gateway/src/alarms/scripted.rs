//! What a test lets the watch see.

use super::ike::IkeSource;
use super::packets::{PacketSource, SaView};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use testudo_base::spi::Spi;
use testudo_ike::endpoint::Discard;
use testudo_ike::output::ChildSaId;
use testudo_ipsec::dataplane::Sample;
use testudo_ipsec::drops::DropReason;

pub(super) const SA: Spi = Spi(0x0102_0304);

/// A data plane with one SA.
#[derive(Default)]
pub(super) struct Plane {
    counts: BTreeMap<DropReason, u64>,
    samples: RefCell<Vec<(DropReason, Sample)>>,
    dropped: BTreeMap<DropReason, u64>,
    pub(super) received: u64,
    pub(super) overlaps: u64,
    pub(super) clear: u64,
}

/// The beginning of a packet from this host.
fn head(host: u8) -> [u8; 40] {
    let mut head = [0x45; 40];
    head[12..16].copy_from_slice(&[198, 51, 100, host]);
    head
}

impl Plane {
    /// Drops packets with this SPI.
    pub(super) fn drop(&mut self, reason: DropReason, spi: Spi, count: u64) {
        self.drop_from(1, reason, spi, count);
    }

    /// The same, from a host.
    pub(super) fn drop_from(&mut self, host: u8, reason: DropReason, spi: Spi, count: u64) {
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

/// IKE that refuses what a test tells it to.
#[derive(Default)]
pub(super) struct Refusing {
    counts: Vec<(Discard, u64)>,
    sources: Vec<(Discard, IpAddr, u64)>,
    pub(super) cookies: u64,
}

impl Refusing {
    /// Refuses datagrams of a source.
    pub(super) fn refuse(&mut self, reason: Discard, source: IpAddr, count: u64) {
        self.counts.push((reason, count));
        self.sources.push((reason, source, count));
    }
}

impl IkeSource for Refusing {
    fn discarded(&self, reason: Discard) -> u64 {
        self.counts.iter().filter(|(of, _)| *of == reason).map(|(_, count)| count).sum()
    }

    fn take_sources(&mut self, reason: Discard) -> Vec<(IpAddr, u64)> {
        let taken = self.sources.extract_if(.., |(of, ..)| *of == reason);
        taken.map(|(_, source, count)| (source, count)).collect()
    }

    fn cookies_demanded(&self) -> u64 {
        self.cookies
    }
}
