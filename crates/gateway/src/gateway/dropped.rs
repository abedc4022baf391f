//! Sources whose packets the filter drops for a time, because of an alarm.
//!
//! Anyone can forge a source address. So nobody is dropped whose absence would do more harm than the
//! packets: peers, nodes, neighbours, and whom `alarms.never_drop` names.

use super::Gateway;
use crate::clock::time_of_day;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use testudo_alarms::Alarm;
use testudo_fastpath::fib::PortLink;
use testudo_fastpath::filter::MAX_DROPPED;
use testudo_fastpath::worker::boottime;
use testudo_ike::output::{LogLevel, UnixTime};
use testudo_vici::alarms::DroppedSource;

/// The sources that are dropped, or would be if an operator had not let them in.
pub(crate) type DroppedSources = BTreeMap<IpAddr, Dropped>;

/// Why a source is dropped, and until when.
pub(crate) struct Dropped {
    alarm: u64,
    /// On the clock of [`boottime`], like the filter's.
    until: Duration,
    /// An operator has let it in: it is not dropped again before that time.
    accepted: bool,
}

/// Why a source is not dropped.
enum Spared {
    NoHost,
    Own,
    Peer,
    Named,
    Node,
    Neighbour,
    Accepted,
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost => f.write_str("no host has such an address"),
            Self::Own => f.write_str("it is an address of this gateway"),
            Self::Peer => f.write_str("a peer has it"),
            Self::Named => f.write_str("a connection names it"),
            Self::Node => f.write_str("a node of the cluster has it"),
            Self::Accepted => f.write_str("an operator has let them in"),
            Self::Neighbour => f.write_str("it is on a link of this gateway, and may be a router"),
        }
    }
}

impl Gateway {
    /// Drops the packets of a source for this time, if that harms nobody else.
    pub(super) fn drop_source(&mut self, alarm: &Alarm, source: IpAddr, time: Duration) {
        let accepted = self.dropped.get(&source).filter(|dropped| dropped.accepted);
        let refused = match accepted.map(|_| Spared::Accepted).or_else(|| self.spared(source)) {
            Some(spared) => Some(spared.to_string()),
            None => self.begin_to_drop(alarm.number, source, time).err().map(|error| error.to_string()),
        };
        let (level, line) = match refused {
            None => (
                LogLevel::Warning,
                format!(
                    "packets from {source} are dropped for {} s because of alarm {} ({})",
                    time.as_secs(),
                    alarm.number,
                    alarm.kind
                ),
            ),
            Some(why) => (
                LogLevel::Notice,
                format!("packets from {source} are not dropped because of alarm {}: {why}", alarm.number),
            ),
        };
        self.log(None, None, level, line);
    }

    fn begin_to_drop(&mut self, alarm: u64, source: IpAddr, time: Duration) -> Result<()> {
        if self.dropped.len() >= MAX_DROPPED as usize && !self.dropped.contains_key(&source) {
            return Err(Error::ManyDropped);
        }
        let until = boottime().saturating_add(time);
        self.data.drop_source(source, until)?;
        self.dropped.insert(source, Dropped { alarm, until, accepted: false });
        Ok(())
    }

    /// Lets those in again whose time is over, or who have become somebody to be spared: a connection
    /// may have been loaded, or a peer has come to another node.
    pub(super) fn look_at_dropped_sources(&mut self) {
        let now = boottime();
        let over = |(source, dropped): (&IpAddr, &Dropped)| {
            let why = match self.spared(*source) {
                _ if dropped.until <= now => "their time is over".to_owned(),
                spared => spared?.to_string(),
            };
            Some((*source, why))
        };
        let over: Vec<(IpAddr, String)> = self.dropped.iter().filter_map(over).collect();
        for (source, why) in over {
            let is_dropped = self.dropped.remove(&source).is_some_and(|dropped| !dropped.accepted);
            if is_dropped {
                let line = format!("packets from {source} are let in again: {why}");
                self.log(None, None, LogLevel::Notice, line);
                // The filter looks at the time, too: what cannot be removed now ends by itself.
                if let Err(error) = self.data.accept_source(source) {
                    let line = format!("cannot let packets from {source} in again: {error}");
                    self.log(None, None, LogLevel::Error, line);
                }
            }
        }
    }

    /// Lets packets of a source in again, because an operator has asked for it.
    pub(crate) fn accept_source(&mut self, source: IpAddr, by: Option<&str>) -> Result<()> {
        let dropped = self.dropped.get_mut(&source).filter(|dropped| !dropped.accepted);
        let dropped = dropped.ok_or(Error::NotDropped(source))?;
        self.data.accept_source(source)?;
        dropped.accepted = true;
        let asker = super::shut::asker(by);
        let line = format!("packets from {source} are let in again, as {asker} has asked for");
        self.log(None, None, LogLevel::Warning, line);
        Ok(())
    }

    /// The sources that are dropped, for clients.
    pub(crate) fn dropped_sources(&self) -> Vec<DroppedSource> {
        let (now, day) = (boottime(), time_of_day());
        let report = |(source, dropped): (&IpAddr, &Dropped)| DroppedSource {
            source: source.to_string(),
            alarm: dropped.alarm,
            until: UnixTime(day.0.saturating_add(dropped.until.saturating_sub(now).as_secs())).to_string(),
        };
        self.dropped.iter().filter(|(_, dropped)| !dropped.accepted).map(report).collect()
    }

    /// Why a source is not to be dropped.
    fn spared(&self, source: IpAddr) -> Option<Spared> {
        if source.is_unspecified() || source.is_multicast() || source != source.to_canonical() {
            return Some(Spared::NoHost);
        }
        if self.data.own_addresses().contains(&source) {
            return Some(Spared::Own);
        }
        // The data path has the Child SAs of all nodes, the endpoint the IKE SAs of this one.
        if self.data.sends_to(source) || self.endpoint.has_peer_at(source) {
            return Some(Spared::Peer);
        }
        if self.endpoint.is_named(source) {
            return Some(Spared::Named);
        }
        let nodes = self.endpoint.as_member().map(|member| member.rosters().nodes());
        if nodes.is_some_and(|nodes| nodes.values().any(|addresses| addresses.contains(&source))) {
            return Some(Spared::Node);
        }
        let fib = self.data.fib();
        let is_neighbour = |port: &PortLink| fib.neighbour(port.index, source).is_some();
        fib.ports().iter().any(is_neighbour).then_some(Spared::Neighbour)
    }
}
