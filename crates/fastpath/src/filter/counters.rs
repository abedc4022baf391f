//! The filter's counters.

use super::layout::{MAX_PORTS, MAX_REASONS};
use super::reason::Reason;
use crate::fib::PortIndex;

/// How many packets of a port had each reason since the maps were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterCounters {
    values: [u64; Reason::ALL.len()],
}

impl Default for FilterCounters {
    fn default() -> Self {
        Self { values: [0; Reason::ALL.len()] }
    }
}

impl FilterCounters {
    /// Packets for this reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.values.get(reason as usize).copied().unwrap_or(0)
    }

    /// All reasons.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|r| (*r, self.get(*r)))
    }

    /// All packets.
    pub fn total(&self) -> u64 {
        self.values.iter().fold(0, |sum, v| sum.wrapping_add(*v))
    }

    /// The difference to `earlier`.
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "both have as many values"))]
    pub fn since(&self, earlier: &Self) -> Self {
        let values = std::array::from_fn(|i| self.values[i].wrapping_sub(earlier.values[i]));
        Self { values }
    }

    pub(super) fn set(&mut self, reason: Reason, per_cpu: &[Vec<u8>]) {
        let value = |v: &Vec<u8>| v.first_chunk().map_or(0, |c| u64::from_ne_bytes(*c));
        if let Some(sum) = self.values.get_mut(reason as usize) {
            *sum = per_cpu.iter().map(value).fold(0, u64::wrapping_add);
        }
    }
}

/// The packets that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterSet {
    /// Those of a port.
    Port(PortIndex),
    /// Those of interfaces that have the filter and are no port.
    Unknown,
}

impl CounterSet {
    pub(super) fn key(self, reason: Reason) -> [u8; 4] {
        let port = match self {
            Self::Port(index) => index.0.min(MAX_PORTS),
            Self::Unknown => MAX_PORTS,
        };
        (u32::from(port) * MAX_REASONS + reason as u32).to_ne_bytes()
    }
}
