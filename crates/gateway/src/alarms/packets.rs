//! Sightings of packets: from the workers' counters and samples, and the filter's counters.

use super::evidence::{Evidence, describe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_base::spi::Spi;
use testudo_ike::output::ChildSaId;
use testudo_ipsec::dataplane::Sample;
use testudo_ipsec::drops::DropReason;

/// SAs whose counters are remembered. An attacker on the path may touch all of them; those that are
/// forgotten begin anew.
const MAX_SAS: usize = 4096;
/// An SA that has received nothing for this long, while old numbers come, is not being replayed
/// beside its traffic: there is no other traffic.
const LIVELY: Duration = Duration::from_secs(2);
/// Unknown SPIs within this time belong together.
const SCAN_WINDOW: Duration = Duration::from_secs(2);
/// Different ones that make a scan: a peer that has not noticed the end of its SA sends with one SPI,
/// and in the middle of a rekeying with two.
const SCAN_SPIS: usize = 3;
/// Samples of unknown SPIs that are remembered.
const MAX_SPIS: usize = 64;

/// An inbound SA at one moment.
pub(crate) struct SaView {
    pub(crate) child: ChildSaId,
    /// The peer's outer address.
    pub(crate) remote: IpAddr,
    /// Packets dropped for the reason in question.
    pub(crate) dropped: u64,
    /// Packets accepted.
    pub(crate) received: u64,
    /// The highest sequence number accepted.
    pub(crate) high_water_mark: u64,
}

/// The data plane, as the watch sees it.
pub(crate) trait PacketSource {
    /// Suspicious packets so far, by reason, of all workers.
    fn suspicious(&self) -> Vec<(DropReason, u64)>;
    /// Takes samples of a reason.
    fn take_samples(&self, reason: DropReason) -> Vec<Sample>;
    /// The SA with this inbound SPI, and how many packets it has dropped for that reason.
    fn sa(&self, spi: Spi, reason: DropReason) -> Option<SaView>;
    /// Clear packets that the filter has dropped because they must be protected, by port.
    fn clear_dropped(&self) -> Vec<(String, u64)>;
    /// Fragments dropped because they overlap others.
    fn overlaps(&self) -> u64;
}

/// The counters of the last look.
#[derive(Default)]
pub(super) struct PacketCounts {
    /// `None` before the first look: what happened before the start of the watch raises no alarm.
    totals: Option<BTreeMap<DropReason, u64>>,
    ports: BTreeMap<String, u64>,
    overlaps: u64,
    sas: BTreeMap<ChildSaId, KnownSa>,
    spis: VecDeque<(Instant, Spi)>,
}

struct KnownSa {
    drops: BTreeMap<DropReason, u64>,
    received: u64,
    /// When it was last seen to receive.
    moved: Option<Instant>,
}

impl PacketCounts {
    pub(super) fn look(&mut self, source: &dyn PacketSource) -> Vec<Sighting> {
        let now = Instant::now();
        let totals: BTreeMap<DropReason, u64> = source.suspicious().into_iter().collect();
        let overlaps = source.overlaps();
        let ports = source.clear_dropped();
        let Some(before) = self.totals.replace(totals.clone()) else {
            self.overlaps = overlaps;
            self.ports = ports.into_iter().collect();
            return Vec::new();
        };
        let mut seen = Vec::new();
        for (reason, total) in totals {
            let count = total.saturating_sub(before.get(&reason).copied().unwrap_or_default());
            if count == 0 {
                continue;
            }
            let samples = source.take_samples(reason);
            match reason {
                DropReason::UnknownSpi => seen.extend(self.scan(now, count, &samples)),
                DropReason::ClearButProtected => {
                    let sighting = Sighting::of(Kind::ClearText, Subject::Gateway, count);
                    seen.push(of_sample(sighting, samples.first()));
                }
                _ => self.of_sas(now, source, reason, count, &samples, &mut seen),
            }
        }
        let more = overlaps.saturating_sub(std::mem::replace(&mut self.overlaps, overlaps));
        if more > 0 {
            seen.push(Sighting::of(Kind::FragmentOverlap, Subject::Gateway, more));
        }
        for (port, dropped) in ports {
            let before = self.ports.insert(port.clone(), dropped).unwrap_or(dropped);
            let more = dropped.saturating_sub(before);
            if more > 0 {
                let evidence = format!("dropped by the filter of {port}");
                let sighting = Sighting::of(Kind::ClearText, Subject::Port(port), more);
                seen.push(Sighting { evidence, ..sighting });
            }
        }
        seen
    }

    /// Unknown SPIs are a scan if there are several.
    fn scan(&mut self, now: Instant, count: u64, samples: &[Sample]) -> Option<Sighting> {
        self.spis.extend(samples.iter().map(|sample| (now, sample.spi)));
        while self.spis.len() > MAX_SPIS || self.spis.front().is_some_and(|(at, _)| *at + SCAN_WINDOW < now) {
            self.spis.pop_front();
        }
        let different: BTreeSet<Spi> = self.spis.iter().map(|(_, spi)| *spi).collect();
        if different.len() < SCAN_SPIS {
            return None;
        }
        let sample = samples.first()?;
        Some(of_sample(Sighting::of(Kind::SpiScan, Subject::Gateway, count), Some(sample)))
    }

    /// Packets of SAs. The samples tell which SAs they are, and the SAs how many each has dropped.
    fn of_sas(
        &mut self,
        now: Instant,
        source: &dyn PacketSource,
        reason: DropReason,
        count: u64,
        samples: &[Sample],
        seen: &mut Vec<Sighting>,
    ) {
        let mut left = count;
        let mut looked_at = BTreeSet::new();
        for sample in samples.iter().filter(|sample| looked_at.insert(sample.spi)) {
            let Some(sa) = source.sa(sample.spi, reason) else { continue };
            if self.sas.len() >= MAX_SAS && !self.sas.contains_key(&sa.child) {
                self.sas.clear();
            }
            let is_new = !self.sas.contains_key(&sa.child);
            let known = self.sas.entry(sa.child).or_insert_with(|| KnownSa {
                drops: BTreeMap::new(),
                received: sa.received,
                moved: (sa.received > 0).then_some(now),
            });
            if sa.received > known.received {
                (known.received, known.moved) = (sa.received, Some(now));
            }
            let before = known.drops.insert(reason, sa.dropped);
            // Of an SA that was not watched before, all of them may be new.
            let of_sa = sa.dropped.saturating_sub(before.unwrap_or_default()).min(left);
            let lively = is_new || known.moved.is_some_and(|moved| now.duration_since(moved) < LIVELY);
            left -= of_sa;
            let Evidence { source, text } = describe(sample);
            let evidence =
                format!("{text}; peer {}, highest number accepted {}", sa.remote, sa.high_water_mark);
            let sighting = Sighting::of(kind_of(reason, lively), Subject::ChildSa(sa.child.0), of_sa);
            seen.push(Sighting { source, evidence, ..sighting });
        }
        if left > 0 {
            seen.push(Sighting::of(kind_of(reason, true), Subject::Gateway, left));
        }
    }
}

/// What packets of an SA tell that are dropped for a reason; `lively` if it receives others, too.
fn kind_of(reason: DropReason, lively: bool) -> Kind {
    match reason {
        DropReason::AuthFailed => Kind::ForgedPackets,
        _ if lively => Kind::ReplayBurst,
        _ => Kind::CounterReversal,
    }
}

/// The sighting with its source and evidence, if there is a sample.
fn of_sample(sighting: Sighting, sample: Option<&Sample>) -> Sighting {
    match sample.map(describe) {
        Some(Evidence { source, text }) => Sighting { source, evidence: text, ..sighting },
        None => sighting,
    }
}

#[cfg(test)]
mod tests;
