//! Alarms.

use crate::kind::{Kind, Severity};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Sources that an alarm names at most.
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
    /// Where they come from: the first few sources.
    pub sources: Vec<Source>,
    /// The first sighting, for people.
    pub evidence: String,
}

impl Alarm {
    pub(crate) fn note_source(&mut self, address: IpAddr, count: u64) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.address == address) {
            source.count = source.count.saturating_add(count);
        } else if self.sources.len() < MAX_SOURCES {
            self.sources.push(Source { address, count });
        }
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
