//! Sightings of packets: from the workers' counters and samples, and the filter's counters.

use super::evidence::{Evidence, describe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_base::spi::Spi;
use testudo_ike::output::ChildSaId;
use testudo_ipsec::dataplane::Sample;
use testudo_ipsec::drops::DropReason;

/// SAs whose counters are remembered. An attacker on the path may touch all of them; those that are
/// forgotten begin anew.
const MAX_SAS: usize = 4096;
/// An SA that has received nothing for this long, while old numbers came, is not being replayed
/// beside its traffic: there is no other traffic. Two looks, so that the third look that sees old
/// numbers tells.
const LIVELY: Duration = Duration::from_millis(500);
/// Old numbers that so many looks have not seen are over: what comes behind them begins anew.
const PAUSE_LOOKS: u64 = 4;
/// Unknown SPIs within this time belong together.
const SCAN_WINDOW: Duration = Duration::from_secs(2);
/// Different ones that make a scan: a peer that has not noticed the end of its SA sends with one SPI,
/// and in the middle of a rekeying with two.
const SCAN_SPIS: usize = 3;
/// Different ones of one source within [`NAMING_WINDOW`] that make it a scanner by name: several peers
/// behind one NAT may have lost their SAs together, or one peer several.
const SCANNER_SPIS: usize = 16;
const NAMING_WINDOW: Duration = Duration::from_secs(10);
/// Samples of unknown SPIs that are remembered.
const MAX_SPIS: usize = 512;

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
    /// Takes samples of those of a port.
    fn take_clear_dropped(&self, port: &str) -> Vec<Sample>;
    /// Fragments dropped because they overlap others.
    fn overlaps(&self) -> u64;
    /// Takes samples of these.
    fn take_overlaps(&self) -> Vec<Sample>;
}

/// The counters of the last look.
#[derive(Default)]
pub(super) struct PacketCounts {
    /// `None` before the first look: what happened before the start of the watch raises no alarm.
    totals: Option<BTreeMap<DropReason, u64>>,
    ports: BTreeMap<String, u64>,
    overlaps: u64,
    sas: BTreeMap<ChildSaId, KnownSa>,
    spis: VecDeque<Unknown>,
    /// Looks so far.
    looks: u64,
}

/// A packet whose SPI no SA has.
struct Unknown {
    at: Duration,
    spi: Spi,
    source: Option<IpAddr>,
}

struct KnownSa {
    drops: BTreeMap<DropReason, u64>,
    received: u64,
    old: Old,
}

/// Old numbers without new ones between them.
struct Old {
    /// Since when they come.
    since: Duration,
    /// The look that has seen the last ones.
    look: u64,
    /// Those that have counted as replays beside traffic so far.
    count: u64,
}

impl Old {
    /// Adds what a look has seen. Returns how many are a reversal, once they have come for long
    /// enough: those of before too. `None`: they are replays so far.
    fn add(&mut self, (now, look): (Duration, u64), count: u64) -> Option<u64> {
        if look > self.look + PAUSE_LOOKS {
            (self.since, self.count) = (now, 0);
        }
        self.look = look;
        self.count += count;
        if now.saturating_sub(self.since) < LIVELY {
            return None;
        }
        Some(std::mem::take(&mut self.count))
    }
}

impl PacketCounts {
    pub(super) fn look(&mut self, now: Duration, source: &dyn PacketSource) -> Vec<Sighting> {
        self.looks += 1;
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
                    seen.extend(by_source(&sighting, samples.iter(), |source| source));
                }
                _ => self.of_sas(now, source, reason, count, &samples, &mut seen),
            }
        }
        let more = overlaps.saturating_sub(std::mem::replace(&mut self.overlaps, overlaps));
        if more > 0 {
            let sighting = Sighting::of(Kind::FragmentOverlap, Subject::Gateway, more);
            seen.extend(by_source(&sighting, source.take_overlaps().iter(), |source| source));
        }
        for (port, dropped) in ports {
            let before = self.ports.insert(port.clone(), dropped).unwrap_or(dropped);
            let more = dropped.saturating_sub(before);
            if more > 0 {
                let samples = source.take_clear_dropped(&port);
                let sighting = Sighting::of(Kind::ClearText, Subject::Port(port), more);
                seen.extend(by_source(&sighting, samples.iter(), |source| source));
            }
        }
        seen
    }

    /// Unknown SPIs are a scan if there are several. After a restart many peers may send by SAs that
    /// are gone, so only a source that has tried many is named.
    fn scan(&mut self, now: Duration, count: u64, samples: &[Sample]) -> Vec<Sighting> {
        let unknown = |sample: &Sample| Unknown { at: now, spi: sample.spi, source: describe(sample).source };
        self.spis.extend(samples.iter().map(unknown));
        while self.spis.len() > MAX_SPIS
            || self.spis.front().is_some_and(|first| first.at + NAMING_WINDOW < now)
        {
            self.spis.pop_front();
        }
        let different = |of: &dyn Fn(&Unknown) -> bool| -> usize {
            let of = self.spis.iter().filter(|known| of(known));
            of.map(|known| known.spi).collect::<BTreeSet<Spi>>().len()
        };
        if different(&|known| known.at + SCAN_WINDOW >= now) < SCAN_SPIS {
            return Vec::new();
        }
        let sighting = Sighting::of(Kind::SpiScan, Subject::Gateway, count);
        let scans = |source: &IpAddr| different(&|known| known.source == Some(*source)) >= SCANNER_SPIS;
        by_source(&sighting, samples.iter(), |source| source.filter(scans))
    }

    /// Packets of SAs. The samples tell which SAs they are, and the SAs how many each has dropped.
    fn of_sas(
        &mut self,
        now: Duration,
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
            let known = self.sas.entry(sa.child).or_insert_with(|| KnownSa {
                drops: BTreeMap::new(),
                received: sa.received,
                old: Old { since: now, look: self.looks, count: 0 },
            });
            if sa.received > known.received {
                known.received = sa.received;
                known.old = Old { since: now, look: self.looks, count: 0 };
            }
            let before = known.drops.insert(reason, sa.dropped);
            // Of an SA that was not watched before, all of them may be new.
            let of_sa = sa.dropped.saturating_sub(before.unwrap_or_default()).min(left);
            left -= of_sa;
            let is_old = reason != DropReason::AuthFailed;
            let reversal = is_old.then(|| known.old.add((now, self.looks), of_sa)).flatten();
            let kind = kind_of(reason, reversal.is_some());
            let sighting = Sighting::of(kind, Subject::ChildSa(sa.child.0), reversal.unwrap_or(of_sa));
            let its = samples.iter().filter(|other| other.spi == sample.spi);
            seen.extend(by_source(&sighting, its, |source| source).into_iter().map(|mut part| {
                let SaView { remote, high_water_mark, .. } = sa;
                part.evidence += &format!("; peer {remote}, highest number accepted {high_water_mark}");
                part
            }));
        }
        if left > 0 {
            seen.push(Sighting::of(kind_of(reason, false), Subject::Gateway, left));
        }
    }
}

/// What packets of an SA tell that are dropped for a reason; `reversal` if nothing else has come
/// for long enough.
fn kind_of(reason: DropReason, reversal: bool) -> Kind {
    match reason {
        DropReason::AuthFailed => Kind::ForgedPackets,
        _ if reversal => Kind::CounterReversal,
        _ => Kind::ReplayBurst,
    }
}

/// A sighting for each source that the samples show, with its share of the count and its first
/// packet as evidence. `named` is the source that is to be named for a source.
fn by_source<'a>(
    sighting: &Sighting,
    samples: impl Iterator<Item = &'a Sample>,
    named: impl Fn(Option<IpAddr>) -> Option<IpAddr>,
) -> Vec<Sighting> {
    let mut sources: Vec<(Option<IpAddr>, String, u64)> = Vec::new();
    let mut all: u64 = 0;
    for Evidence { source, text } in samples.map(describe) {
        all += 1;
        let source = named(source);
        match sources.iter_mut().find(|(known, ..)| *known == source) {
            Some((.., packets)) => *packets += 1,
            None => sources.push((source, text, 1)),
        }
    }
    if sources.is_empty() {
        return vec![sighting.clone()];
    }
    let mut left = sighting.count;
    let last = sources.len() - 1;
    let part = |(at, (source, evidence, packets)): (usize, (Option<IpAddr>, String, u64))| {
        let share = u128::from(sighting.count) * u128::from(packets) / u128::from(all);
        let count = if at == last { left } else { u64::try_from(share).unwrap_or(u64::MAX) };
        left -= count;
        Sighting { source, evidence, count, ..sighting.clone() }
    };
    sources.into_iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests;
