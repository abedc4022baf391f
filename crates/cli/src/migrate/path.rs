//! How large packets to the destination may be.
//!
//! Some paths drop what is too large and say nothing: a migration would begin, and then stand still.
//! So echo requests that nobody may fragment are tried, from the largest packets that the source
//! sends. Both testudods are told of a path that takes less ([`hold`]), and lower the MSS of the
//! migration's connections accordingly.

use super::probe;
use super::vm::Side;
use echo::Echo;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

mod echo;
pub(super) mod hold;

/// The discard service's: no socket is connected to port 0.
const ANY_PORT: u16 = 9;
/// Every link of IPv6 takes this, and practically every path of IPv4.
const LEAST: u16 = 1280;
/// How long the first answer may take.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
/// How long others may take, in terms of the first one.
const PATIENCE: u32 = 4;
/// And at least: a host may be busy.
const LEAST_LIMIT: Duration = Duration::from_millis(150);

/// What was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Path {
    /// What the source's kernel sends at most; null if it has no route.
    pub(super) expected_mtu: Option<u16>,
    /// The largest packet that the path takes, up to that; null if no echo came back.
    pub(super) mtu: Option<u16>,
    /// The testudods that have been told of it.
    pub(super) told: Vec<Side>,
    /// The testudods that have forgotten it at the end.
    pub(super) restored: Vec<Side>,
    /// Why something is not known.
    pub(super) unknown: Option<String>,
}

/// Why the MTU is not known.
#[derive(Debug, thiserror::Error)]
enum PathError {
    #[error("no route to {to}: {error}")]
    NoRoute { to: IpAddr, error: io::Error },
    #[error("cannot send echo requests: {0}")]
    Echo(#[from] io::Error),
    #[error("no answer to echo requests of {LEAST} octets")]
    Silent,
}

impl Path {
    /// Searches, from this host.
    pub(super) fn search(to: IpAddr) -> Self {
        let expected = expected_mtu(to).map_err(|error| PathError::NoRoute { to, error });
        let expected_mtu = expected.as_ref().ok().copied();
        let found = expected.and_then(|most| {
            let echo = Echo::open(to)?;
            let mut limit = FIRST_LIMIT;
            let passes = |size| {
                let begun = Instant::now();
                let passes = echo.passes(size, limit)?;
                if passes && limit == FIRST_LIMIT {
                    limit = (begun.elapsed() * PATIENCE).clamp(LEAST_LIMIT, FIRST_LIMIT);
                }
                Ok::<bool, io::Error>(passes)
            };
            largest(most, passes)?.ok_or(PathError::Silent)
        });
        let unknown = found.as_ref().err().map(ToString::to_string);
        Self { expected_mtu, mtu: found.ok(), told: Vec::new(), restored: Vec::new(), unknown }
    }

    /// True if it takes less than the kernel would send.
    pub(super) fn is_narrow(&self) -> bool {
        self.mtu.zip(self.expected_mtu).is_some_and(|(path, expected)| path < expected)
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let Some(mtu) = self.mtu else {
            let why = self.unknown.as_deref().unwrap_or_default();
            return format!("The MTU of the path is not known: {why}");
        };
        let Some(expected) = self.expected_mtu.filter(|_| self.is_narrow()) else {
            return format!("The path takes packets of {mtu} octets, the largest that are sent");
        };
        let told = match self.told.len() {
            2 => "both testudods knew that",
            1 => "one of the testudods knew that",
            _ => "the testudods could not be told",
        };
        let left = self.told.iter().filter(|side| !self.restored.contains(side));
        let left: String = left.map(|side| format!(", and the {side}'s forgets it in a minute")).collect();
        format!("The path takes packets of {mtu} octets and not of {expected}: {told}{left}")
    }
}

/// The largest size that passes, up to a maximum; `None` if not even the least one does.
fn largest<E>(most: u16, mut passes: impl FnMut(u16) -> Result<bool, E>) -> Result<Option<u16>, E> {
    let least = LEAST.min(most);
    if !passes(least)? {
        return Ok(None);
    }
    if most == least || passes(most)? {
        return Ok(Some(most));
    }
    let (mut good, mut bad) = (least, most);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if passes(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(good))
}

/// The largest packet that this host's kernel sends there: the MTU of the interface, or of a path
/// that a router has told it.
fn expected_mtu(to: IpAddr) -> io::Result<u16> {
    let socket = probe::towards(SocketAddr::new(to, ANY_PORT))?;
    let mtu = if to.is_ipv4() { ip_mtu(&socket)? } else { ipv6_mtu(&socket)? };
    // The loopback interface has 65536.
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
