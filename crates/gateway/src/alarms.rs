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

pub(crate) use neighbours::{Claims, OwnClaims};
pub(crate) use packets::{PacketSource, SaView};
pub(crate) use program::Programs;

use crate::clock::time_of_day;
use crate::ike::Ike;
use ike::IkeCounts;
use packets::PacketCounts;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testudo_alarms::{Alarm, Kind, News, Rules, Sighting, Subject, Watch};
use testudo_ike::output::{ChildSaId, UnixTime};
use testudo_vici::alarms::{AlarmPage, AlarmReport, DroppedSource, MAX_ALARMS_PER_PAGE};
use testudo_vici::counters::Named;

/// How often the counters are read.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// No real path takes less: IPv6 requires it of every link (RFC 8200 §5), and IPv4 links that take
/// less have gone out of use.
const LEAST_PLAUSIBLE_MTU: u16 = 1280;
/// Of the packets that an SA has received, one in so many is late where reordering is sudden.
const LATE_SHARE: u64 = 5;

/// All that the watch needs between two looks.
pub(crate) struct Alarms {
    watch: Watch,
    is_on: bool,
    /// The watch's clock begins here.
    origin: Instant,
    next_look: Instant,
    packets: PacketCounts,
    ike: IkeCounts,
}

/// The counters at one moment.
pub(crate) struct Counts<'a> {
    /// What the data plane tells.
    pub(crate) packets: &'a dyn PacketSource,
    /// What IKE tells.
    pub(crate) ike: &'a mut Ike,
}

impl Alarms {
    /// A watch that judges by these rules; `None`: there is none.
    pub(crate) fn new(rules: Option<Rules>) -> Self {
        let now = Instant::now();
        Self {
            is_on: rules.is_some(),
            watch: Watch::new(rules.unwrap_or_default()),
            origin: now,
            next_look: now,
            packets: PacketCounts::default(),
            ike: IkeCounts::default(),
        }
    }

    /// When the counters are to be read next.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.is_on.then_some(self.next_look)
    }

    /// True if it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.is_on && Instant::now() >= self.next_look
    }

    /// True if this kind is watched for.
    pub(crate) fn watches(&self, kind: Kind) -> bool {
        self.is_on && self.watch.rules().of(kind).severity.is_some()
    }

    /// Reads the counters, when it is time to.
    pub(crate) fn look(&mut self, counts: Counts<'_>) {
        self.next_look = Instant::now() + LOOK_INTERVAL;
        let at = self.clock();
        let of_ike = self.ike.look(counts.ike.stats_mut());
        let seen = self.packets.look(counts.packets).into_iter().chain(of_ike);
        for sighting in seen {
            self.watch.see(at, sighting);
        }
        if self.watch.is_awake() {
            self.watch.tick(at);
        }
    }

    fn clock(&self) -> Duration {
        self.origin.elapsed()
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

    /// Of `received` packets of a Child SA, so many came behind later ones.
    pub(crate) fn reordered(&mut self, child: ChildSaId, received: u64, late: u64) {
        if late.saturating_mul(LATE_SHARE) >= received && late > 0 {
            let evidence = format!("{late} of {received} packets came behind later ones");
            self.see(Sighting {
                evidence,
                ..Sighting::of(Kind::Reordering, Subject::ChildSa(child.0), late)
            });
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
            dropped,
            alarms: alarms.into_iter().map(|alarm| self.report(alarm)).collect(),
        }
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
