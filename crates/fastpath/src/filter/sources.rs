//! Sources whose packets are dropped for a time.

use super::Filter;
use super::error::Result;
use super::layout::{MAX_PORTS, source_key};
use crate::fib::PortIndex;
use std::net::IpAddr;
use std::time::Duration;

impl Filter {
    /// Drops all packets from a source until a time of CLOCK_BOOTTIME, on all ports, also if the
    /// daemon ends before. At most [`MAX_DROPPED`](super::MAX_DROPPED) at the same time. While there
    /// is none, no packet is looked at for this.
    pub fn drop_source(&mut self, source: IpAddr, until: Duration) -> Result<()> {
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.loaded.dropped.set(&source_key(source), &until.to_ne_bytes(), &source)?;
        let was_empty = self.dropped.is_empty();
        self.dropped.insert(source);
        let written = if was_empty { self.write_cluster() } else { Ok(()) };
        if written.is_err() {
            self.dropped.remove(&source);
            // The caller does not know the entry, which would count with the next source.
            self.loaded.dropped.remove(&source_key(source), &source)?;
        }
        written
    }

    /// Lets packets from a source in again.
    pub fn accept_source(&mut self, source: IpAddr) -> Result<()> {
        self.loaded.dropped.remove(&source_key(source), &source)?;
        let is_last = self.dropped.remove(&source) && self.dropped.is_empty();
        if is_last { self.write_cluster() } else { Ok(()) }
    }

    /// Forgets what the alarms of an earlier run have left: dropped sources are let in again, and
    /// evidence of then is none of now.
    pub(super) fn forget_alarms(&self) -> Result<()> {
        let keys = self.loaded.dropped.keys();
        keys.iter().try_for_each(|key| self.loaded.dropped.remove(key, &"of an earlier run"))?;
        (0..=MAX_PORTS).try_for_each(|port| self.take_clear(PortIndex(port)).map(drop))
    }
}
