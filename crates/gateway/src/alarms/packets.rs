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
                DropReason::ClearButProtected => seen.push(clear(count, samples.first())),
                _ => self.of_sas(now, source, reason, count, &samples, &mut seen),
            }
        }
        let more = overlaps.saturating_sub(std::mem::replace(&mut self.overlaps, overlaps));
        if more > 0 {
            let evidence = String::new();
            seen.push(sighting(Kind::FragmentOverlap, Subject::Gateway, more, None, evidence));
        }
        for (port, dropped) in ports {
            let before = self.ports.insert(port.clone(), dropped).unwrap_or(dropped);
            let more = dropped.saturating_sub(before);
            if more > 0 {
                let evidence = format!("dropped by the filter of {port}");
                seen.push(sighting(Kind::ClearText, Subject::Port(port), more, None, evidence));
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
        let Evidence { source, text } = samples.first().map(describe)?;
        Some(sighting(Kind::SpiScan, Subject::Gateway, count, source, text))
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
            let kind = match reason {
                DropReason::AuthFailed => Kind::ForgedPackets,
                _ if lively => Kind::ReplayBurst,
                _ => Kind::CounterReversal,
            };
            left -= of_sa;
            let Evidence { source, text } = describe(sample);
            let text = format!("{text}; peer {}, highest number accepted {}", sa.remote, sa.high_water_mark);
            seen.push(sighting(kind, Subject::ChildSa(sa.child.0), of_sa, source, text));
        }
        if left > 0 {
            let kind = match reason {
                DropReason::AuthFailed => Kind::ForgedPackets,
                _ => Kind::ReplayBurst,
            };
            seen.push(sighting(kind, Subject::Gateway, left, None, String::new()));
        }
    }
}

fn clear(count: u64, sample: Option<&Sample>) -> Sighting {
    let evidence = sample.map(describe);
    let source = evidence.as_ref().and_then(|evidence| evidence.source);
    let text = evidence.map(|evidence| evidence.text).unwrap_or_default();
    sighting(Kind::ClearText, Subject::Gateway, count, source, text)
}

fn sighting(kind: Kind, subject: Subject, count: u64, source: Option<IpAddr>, evidence: String) -> Sighting {
    Sighting { kind, subject, count, source, evidence, decisive: false }
}

#[cfg(test)]
mod tests;
