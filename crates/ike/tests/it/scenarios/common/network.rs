//! A network that delays, loses, doubles and reorders, in virtual time, and NATs that translate
//! sources.

use super::random::Random;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use testudo_ike::output::{Path, Time};

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Shortest delay, and by how much it varies: what varies is reordered.
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    /// In percent.
    pub(crate) loss: u64,
    /// In percent.
    pub(crate) duplication: u64,
}

impl Weather {
    pub(crate) const FAIR: Self =
        Self { delay: Duration::from_millis(10), jitter: Duration::ZERO, loss: 0, duplication: 0 };
    pub(crate) const FOUL: Self = Self {
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(9000),
        loss: 25,
        duplication: 25,
    };
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// A NAT in front of one address: sources get the outer address and new ports.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    pub(crate) inner: std::net::IpAddr,
    pub(crate) outer: std::net::IpAddr,
    ports: BTreeMap<u16, u16>,
    next_port: u16,
}

impl Nat {
    pub(crate) fn new(inner: &str, outer: &str) -> Self {
        let (inner, outer) = (inner.parse().unwrap(), outer.parse().unwrap());
        Self { inner, outer, ports: BTreeMap::new(), next_port: 40_000 }
    }

    /// Forgets its mappings, as after a reboot.
    pub(crate) fn forget(&mut self) {
        self.ports.clear();
    }

    fn outwards(&mut self, from: SocketAddr) -> SocketAddr {
        if from.ip() != self.inner {
            return from;
        }
        let next_port = &mut self.next_port;
        let port = *self.ports.entry(from.port()).or_insert_with(|| {
            *next_port += 1;
            *next_port
        });
        SocketAddr::new(self.outer, port)
    }

    fn inwards(&self, to: SocketAddr) -> Option<SocketAddr> {
        if to.ip() != self.outer {
            return Some(to);
        }
        let inner = self.ports.iter().find(|(_, outer)| **outer == to.port())?;
        Some(SocketAddr::new(self.inner, *inner.0))
    }
}

/// Everything between the hosts.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) weather: Weather,
    pub(crate) nat: Option<Nat>,
    pub(crate) random: Random,
    /// False: nothing gets through.
    pub(crate) up: bool,
    flying: BTreeMap<(Time, u64), Datagram>,
    sent: u64,
}

impl Network {
    pub(crate) fn new(weather: Weather, random: Random) -> Self {
        Self { weather, nat: None, random, up: true, flying: BTreeMap::new(), sent: 0 }
    }

    pub(crate) fn send(&mut self, now: Time, path: Path, bytes: &[u8]) {
        let from = self.nat.as_mut().map_or(path.local, |nat| nat.outwards(path.local));
        let copies = 1 + u64::from(self.random.percent(self.weather.duplication));
        for _ in 0..copies {
            if !self.up || self.random.percent(self.weather.loss) {
                continue;
            }
            let to = match &self.nat {
                Some(nat) => match nat.inwards(path.remote) {
                    Some(to) => to,
                    None => continue,
                },
                None => path.remote,
            };
            self.inject(now, Datagram { from, to, bytes: bytes.to_vec() });
        }
    }

    /// Puts a datagram on its way, past loss and NAT.
    pub(crate) fn inject(&mut self, now: Time, datagram: Datagram) {
        let jitter = u64::try_from(self.weather.jitter.as_micros()).unwrap();
        let delay = self.weather.delay + Duration::from_micros(self.random.below(jitter + 1));
        self.sent += 1;
        self.flying.insert((now.plus(delay), self.sent), datagram);
    }

    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.flying.first_key_value().map(|((time, _), _)| *time)
    }

    pub(crate) fn arrive(&mut self, now: Time) -> Option<Datagram> {
        let key = *self.flying.first_key_value()?.0;
        (key.0 <= now).then(|| self.flying.remove(&key)).flatten()
    }
}
