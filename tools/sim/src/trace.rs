//! A trace of all events as numbers: cheap to keep, shown only when a seed fails; and a digest of
//! it.

use crate::engine::Nanos;
use std::collections::VecDeque;
use std::fmt;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its time.
    pub at: Nanos,
    /// Its place.
    pub who: Who,
    /// Its kind.
    pub what: &'static str,
    /// Details.
    pub detail: [u64; 2],
}

/// An actor of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The world itself, for faults.
    World,
    /// A node, by its index.
    Node(usize),
    /// A peer, by its index.
    Peer(usize),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Node(at) => write!(f, "node {}", at + 1),
            Self::Peer(at) => write!(f, "peer {}", at + 1),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, who, what, detail: [a, b] } = self;
        write!(f, "{:12.6} {who:<8} {what} {a:x} {b:x}", *at as f64 / 1e9)
    }
}

/// The last lines, and the digest of all.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: VecDeque<Line>,
    kept: usize,
    /// FNV-1a over all lines.
    digest: u64,
    /// Lines so far.
    pub steps: u64,
}

impl Trace {
    /// Keeps that many lines.
    pub fn new(kept: usize) -> Self {
        Self { kept, ..Self::default() }
    }

    /// Records an event.
    pub fn note(&mut self, at: Nanos, who: Who, what: &'static str, detail: [u64; 2]) {
        let place = match who {
            Who::World => 0,
            Who::Node(at) => 1 + at as u64,
            Who::Peer(at) => 1000 + at as u64,
        };
        self.mix(&at.to_be_bytes());
        self.mix(&place.to_be_bytes());
        self.mix(what.as_bytes());
        detail.iter().for_each(|number| self.mix(&number.to_be_bytes()));
        self.lines.push_back(Line { at, who, what, detail });
        if self.lines.len() > self.kept {
            self.lines.pop_front();
        }
    }

    /// The digest of all lines so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The last lines.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    fn mix(&mut self, octets: &[u8]) {
        self.digest = octets.iter().fold(self.digest, |sum, octet| fnv(sum, *octet));
    }
}

fn fnv(sum: u64, octet: u8) -> u64 {
    (sum ^ 0xcbf2_9ce4_8422_2325 ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
}

/// A digest of octets: FNV-1a.
pub fn digest(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |sum, octet| fnv(sum, *octet))
}
