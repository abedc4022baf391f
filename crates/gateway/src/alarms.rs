//! The watch over this gateway: what workers, filter and IKE refuse becomes alarms.
//!
//! Four times a second the control thread reads counters that are kept anyway, and takes the samples
//! that the workers have left of suspicious packets. Where nothing is refused, that is all: packets
//! cost nothing. See `docs/how-to/alarms.md`.

mod evidence;
mod ike;
mod neighbours;
mod packets;
mod program;
mod reordering;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;

pub(crate) use neighbours::{Claims, OwnClaims};
pub(crate) use packets::{PacketSource, SaView};
pub(crate) use program::Programs;
pub(crate) use reordering::Lateness;

use crate::clock::time_of_day;
use ike::{IkeCounts, IkeSource};
use packets::PacketCounts;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testudo_alarms::{Alarm, Kind, News, Rules, Severity, Sighting, Subject, Watch};
use testudo_ike::output::{ChildSaId, UnixTime};
use testudo_vici::alarms::{AlarmPage, AlarmReport, DroppedSource, MAX_ALARMS_PER_PAGE, WatchedKind};
use testudo_vici::counters::Named;

/// How often the counters are read.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// No real path takes less: IPv6 requires it of every link (RFC 8200 §5), and IPv4 links that take
/// less have gone out of use.
const LEAST_PLAUSIBLE_MTU: u16 = 1280;
/// Every so many looks all SAs are looked at, if they are too many for each look: none waits for a
/// second then.
const LOOKS_PER_LONG_ROUND: u64 = 3;

/// All that the watch needs between two looks.
pub(crate) struct Alarms {
    watch: Watch,
    is_on: bool,
    /// The time since the watch began.
    clock: Box<dyn Fn() -> Duration>,
    next_look: Duration,
    /// Looks so far.
    looks: u64,
    packets: PacketCounts,
    ike: IkeCounts,
}

/// The counters at one moment.
pub(crate) struct Counts<'a> {
    /// What the data plane tells.
    pub(crate) packets: &'a dyn PacketSource,
    /// What IKE tells.
    pub(crate) ike: &'a mut dyn IkeSource,
}

impl Alarms {
    /// A watch that judges by these rules; `None`: there is none.
    pub(crate) fn new(rules: Option<Rules>) -> Self {
        let origin = Instant::now();
        Self::by_clock(rules, Box::new(move || origin.elapsed()))
    }

    fn by_clock(rules: Option<Rules>, clock: Box<dyn Fn() -> Duration>) -> Self {
        Self {
            is_on: rules.is_some(),
            watch: Watch::new(rules.unwrap_or_default()),
            next_look: clock(),
            clock,
            looks: 0,
            packets: PacketCounts::default(),
            ike: IkeCounts::default(),
        }
    }

    /// The time until the counters are to be read next.
    pub(crate) fn time_to_look(&self) -> Option<Duration> {
        self.is_on.then(|| self.next_look.saturating_sub(self.clock()))
    }

    /// True if it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.time_to_look() == Some(Duration::ZERO)
    }

    /// True if the order of the packets of all SAs is to be looked at behind this look. `few`: one
    /// turn is enough for all.
    pub(crate) fn wants_order(&self, few: bool) -> bool {
        few || self.looks.is_multiple_of(LOOKS_PER_LONG_ROUND)
    }

    /// True if this kind is watched for.
    pub(crate) fn watches(&self, kind: Kind) -> bool {
        self.is_on && self.watch.rules().of(kind).severity.is_some()
    }

    /// Reads the counters, when it is time to.
    pub(crate) fn look(&mut self, counts: Counts<'_>) {
        let at = self.clock();
        self.next_look = at + LOOK_INTERVAL;
        self.looks += 1;
        let of_ike = self.ike.look(counts.ike);
        let seen = self.packets.look(at, counts.packets).into_iter().chain(of_ike);
        for sighting in seen {
            self.watch.see(at, sighting);
        }
        if self.watch.is_awake() {
            self.watch.tick(at);
        }
    }

    fn clock(&self) -> Duration {
        (self.clock)()
    }

    /// Something odd that does not show in counters.
    pub(crate) fn see(&mut self, sighting: Sighting) {
        if self.is_on {
            self.watch.see(self.clock(), sighting);
        }
    }

    /// A router's message that this gateway does not believe: it quotes a packet that was not sent.
    pub(crate) fn disbelieved_router(&mut self, remote: IpAddr, mtu: u16) {
        let evidence = format!(
            "an ICMP error says that the path to {remote} takes {mtu} octets, and quotes a packet that was \
             not sent"
        );
        self.see(Sighting { evidence, ..Sighting::of(Kind::PathMtu, Subject::Address(remote), 1) });
    }

    /// The path to a peer takes only so much now.
    pub(crate) fn path_mtu(&mut self, remote: IpAddr, mtu: u16) {
        if mtu < LEAST_PLAUSIBLE_MTU {
            let evidence = format!(
                "an ICMP error says that the path to {remote} takes {mtu} octets, less than any link of IPv6"
            );
            let sighting = Sighting::of(Kind::PathMtu, Subject::Address(remote), 1);
            self.see(Sighting { evidence, decisive: true, ..sighting });
        }
    }

    /// Another CA has vouched for a peer than before.
    pub(crate) fn other_voucher(&mut self, identity: String, line: String) {
        let evidence = format!("another CA than before: {line}");
        let sighting = Sighting::of(Kind::Certificate, Subject::Identity(identity), 1);
        self.see(Sighting { evidence, decisive: true, ..sighting });
    }

    /// A Child SA has received packets since it was looked at last. So many of them came behind later
    /// ones.
    pub(crate) fn ordered(&mut self, child: ChildSaId, lateness: &mut Lateness, received: u64, late: u64) {
        if !self.is_on {
            return;
        }
        let at = self.clock();
        if let Some(sighting) = lateness.add(at, received, late).map(|sudden| sudden.sighting(child)) {
            self.watch.see(at, sighting);
        }
    }

    /// The next piece of news.
    pub(crate) fn next_news(&mut self) -> Option<News> {
        self.watch.next_news()
    }

    /// The program that is run for an alarm.
    pub(crate) fn program_for(&self, kind: Kind) -> Option<PathBuf> {
        self.watch.rules().of(kind).run.clone()
    }

    /// The first alarms above a number, beside the sources that are dropped.
    pub(crate) fn page(&self, above: u64, dropped: Vec<DroppedSource>) -> AlarmPage {
        let mut alarms = self.watch.alarms(above);
        let more = alarms.len() > MAX_ALARMS_PER_PAGE;
        alarms.truncate(MAX_ALARMS_PER_PAGE);
        AlarmPage {
            watching: self.is_on,
            last: self.watch.last(),
            more,
            kinds: if self.is_on { self.kinds() } else { Vec::new() },
            dropped,
            alarms: alarms.into_iter().map(|alarm| self.report(alarm)).collect(),
        }
    }

    fn kinds(&self) -> Vec<WatchedKind> {
        let severity = |kind| self.watch.rules().of(kind).severity.map_or("off", Severity::name);
        let watched =
            |kind: Kind| WatchedKind { kind: kind.name().to_owned(), severity: severity(kind).to_owned() };
        Kind::ALL.into_iter().map(watched).collect()
    }

    /// How many alarms each kind has raised.
    pub(crate) fn raised(&self) -> Named {
        self.watch.raised().map(|(kind, count)| (kind.name().to_owned(), count)).collect()
    }

    /// An alarm as clients get it.
    pub(crate) fn report(&self, alarm: &Alarm) -> AlarmReport {
        let time = |at: Duration| {
            let ago = self.clock().saturating_sub(at);
            UnixTime(time_of_day().0.saturating_sub(ago.as_secs())).to_string()
        };
        AlarmReport {
            number: alarm.number,
            kind: alarm.kind.name().to_owned(),
            severity: alarm.severity.name().to_owned(),
            subject: alarm.subject.to_string(),
            sa: match alarm.subject {
                Subject::ChildSa(number) => Some(number),
                _ => None,
            },
            begun: time(alarm.begun),
            latest: time(alarm.latest),
            ended: alarm.ended.map(time),
            count: alarm.count,
            peak: alarm.peak,
            sources: alarm.sources.iter().map(|source| (source.address.to_string(), source.count)).collect(),
            evidence: alarm.evidence.clone(),
        }
    }
}
