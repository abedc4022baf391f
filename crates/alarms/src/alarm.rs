//! Alarms.

use crate::kind::{Kind, Severity};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Sources that an alarm names at most: those with most sightings.
const MAX_SOURCES: usize = 8;

/// What an alarm is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The gateway as a whole, where no narrower subject is known.
    Gateway,
    /// A Child SA, by its number.
    ChildSa(u64),
    /// An address: of a peer, a sender or a VIP.
    Address(IpAddr),
    /// A port, by the name of its interface.
    Port(String),
    /// An identity.
    Identity(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => f.write_str("this gateway"),
            Self::ChildSa(number) => write!(f, "CHILD_SA #{number}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Port(name) => write!(f, "port {name}"),
            Self::Identity(identity) => write!(f, "identity {identity}"),
        }
    }
}

/// Where sightings come from, as their packets say: an address can be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub address: IpAddr,
    /// Sightings with it.
    pub count: u64,
    /// The second of its latest sightings, and how many of them are in it.
    pub(crate) second: (u64, u64),
    /// Until when it is dropped.
    pub(crate) until: Option<Duration>,
}

/// An alarm, under way or over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Alarms are numbered from 1.
    pub number: u64,
    /// What was seen.
    pub kind: Kind,
    /// How serious it is.
    pub severity: Severity,
    /// Whom it concerns.
    pub subject: Subject,
    /// When its first sighting came.
    pub begun: Duration,
    /// When its latest sighting came.
    pub latest: Duration,
    /// When its subject had been quiet for long enough.
    pub ended: Option<Duration>,
    /// Sightings.
    pub count: u64,
    /// The most sightings in one second.
    pub peak: u64,
    /// Where most of them come from.
    pub sources: Vec<Source>,
    /// The first sighting, for people.
    pub evidence: String,
}

impl Alarm {
    pub(crate) fn note_source(&mut self, now: Duration, address: IpAddr, count: u64) {
        let new = Source { address, count, second: (now.as_secs(), count), until: None };
        if let Some(source) = self.sources.iter_mut().find(|source| source.address == address) {
            source.count = source.count.saturating_add(count);
            let (second, so_far) = source.second;
            let so_far = if second == now.as_secs() { so_far } else { 0 };
            source.second = (now.as_secs(), so_far.saturating_add(count));
        } else if self.sources.len() < MAX_SOURCES {
            self.sources.push(new);
        } else if let Some(least) = self.sources.iter_mut().min_by_key(|source| source.count)
            && least.count < count
        {
            *least = new;
        }
    }

    /// Finds a source to drop for this time: one that has so many sightings by itself in the second
    /// in progress. What comes of it meanwhile was under way.
    pub(crate) fn drop_source(&mut self, now: Duration, threshold: u64, time: Duration) -> Option<IpAddr> {
        let is_free = |source: &Source| source.until.is_none_or(|until| now >= until);
        let is_many = |source: &Source| source.second.0 == now.as_secs() && source.second.1 >= threshold;
        let due = self.sources.iter_mut().find(|source| is_many(source) && is_free(source))?;
        due.until = Some(now.saturating_add(time));
        Some(due.address)
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, severity, subject, count, sources, evidence, .. } = self;
        write!(f, "alarm {number} ({severity}, {kind}): {count} {} at {subject}", kind.what())?;
        for (at, source) in sources.iter().enumerate() {
            write!(f, "{} {}", if at == 0 { ", from" } else { "," }, source.address)?;
        }
        if evidence.is_empty() { Ok(()) } else { write!(f, "; the first: {evidence}") }
    }
}
