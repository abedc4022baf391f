//! How many half-open IKE SAs there are, altogether and by source, and what that means for a new one. One that failed in
//! IKE_AUTH counts until it is forgotten: it takes up as much room.

use super::config::EndpointConfig;
use super::stats::Discard;
use crate::output::Time;
use crate::sa::HalfOpenSource;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Counts of half-open IKE SAs.
#[derive(Clone, Debug, Default)]
pub(crate) struct HalfOpens {
    total: usize,
    /// By IPv4 address or IPv6 /64.
    sources: BTreeMap<IpAddr, Source>,
    refused: Refused,
}

/// Requests that led to no IKE SA at all, in this second and, by halves, before it. They too take a look at the
/// connections.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    second: u64,
    count: usize,
}

impl Refused {
    fn at(self, now: Time) -> usize {
        let passed = now.0.as_secs().saturating_sub(self.second);
        u32::try_from(passed).ok().and_then(|passed| self.count.checked_shr(passed)).unwrap_or_default()
    }

    fn enter(&mut self, now: Time) {
        *self = Self { second: now.0.as_secs(), count: self.at(now).saturating_add(1) };
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    all: usize,
    /// Those that returned a cookie.
    proven: usize,
}

/// What to do with a request for a new IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admit,
    DemandCookie,
    Refuse(Discard),
}

impl HalfOpens {
    /// Decides about a request from `addr`, which `proven` says has returned a good cookie.
    ///
    /// Requests without a cookie may be forged. They count towards the demand for cookies only, so that nobody can
    /// use up another's share of the limit.
    pub(crate) fn admit(&self, config: &EndpointConfig, now: Time, addr: IpAddr, proven: bool) -> Admission {
        let load = self.total.saturating_add(self.refused.at(now));
        let source = self.sources.get(&key(addr)).copied().unwrap_or_default();
        if proven {
            if self.total >= config.half_open_limit {
                return Admission::Refuse(Discard::HalfOpenLimit);
            }
            if source.proven >= config.source_half_open_limit {
                return Admission::Refuse(Discard::SourceLimit);
            }
        } else if load >= config.cookie_threshold || source.all >= config.source_cookie_threshold {
            return Admission::DemandCookie;
        }
        Admission::Admit
    }

    /// A request was answered without an IKE SA, and not with the demand for a cookie.
    pub(crate) fn refused(&mut self, now: Time) {
        self.refused.enter(now);
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn enter(&mut self, source: HalfOpenSource) {
        self.total = self.total.saturating_add(1);
        let counts = self.sources.entry(key(source.addr)).or_default();
        counts.all = counts.all.saturating_add(1);
        counts.proven = counts.proven.saturating_add(usize::from(source.proven));
    }

    pub(crate) fn leave(&mut self, source: HalfOpenSource) {
        self.total = self.total.saturating_sub(1);
        let key = key(source.addr);
        if let Some(counts) = self.sources.get_mut(&key) {
            counts.all = counts.all.saturating_sub(1);
            counts.proven = counts.proven.saturating_sub(usize::from(source.proven));
            if counts.all == 0 {
                self.sources.remove(&key);
            }
        }
    }
}

/// A host can take any address of its IPv6 /64.
fn key(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => addr,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !0 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EndpointConfig {
        EndpointConfig {
            cookie_threshold: 6,
            source_cookie_threshold: 3,
            source_half_open_limit: 2,
            half_open_limit: 8,
            ..EndpointConfig::default()
        }
    }

    #[test]
    fn forged_requests_do_not_use_up_the_share_of_their_source() {
        let victim: IpAddr = "192.0.2.1".parse().unwrap();
        let mut counts = HalfOpens::default();
        for _ in 0..3 {
            assert_eq!(counts.admit(&config(), Time::default(), victim, false), Admission::Admit);
            counts.enter(HalfOpenSource { addr: victim, proven: false });
        }
        assert_eq!(counts.admit(&config(), Time::default(), victim, false), Admission::DemandCookie);
        for _ in 0..2 {
            assert_eq!(counts.admit(&config(), Time::default(), victim, true), Admission::Admit);
            counts.enter(HalfOpenSource { addr: victim, proven: true });
        }
        assert_eq!(
            counts.admit(&config(), Time::default(), victim, true),
            Admission::Refuse(Discard::SourceLimit)
        );
    }

    #[test]
    fn everybody_needs_a_cookie_from_the_threshold_on_and_nobody_enters_above_the_limit() {
        let mut counts = HalfOpens::default();
        for i in 0..8_u128 {
            let addr = IpAddr::V6(Ipv6Addr::from_bits(i << 64));
            let proven = i >= 6;
            assert_eq!(counts.admit(&config(), Time::default(), addr, proven), Admission::Admit);
            counts.enter(HalfOpenSource { addr, proven });
        }
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(counts.admit(&config(), Time::default(), other, false), Admission::DemandCookie);
        assert_eq!(
            counts.admit(&config(), Time::default(), other, true),
            Admission::Refuse(Discard::HalfOpenLimit)
        );
        counts.leave(HalfOpenSource { addr: IpAddr::V6(Ipv6Addr::from_bits(7 << 64)), proven: true });
        assert_eq!(counts.admit(&config(), Time::default(), other, true), Admission::Admit);
    }

    #[test]
    fn an_ipv6_host_is_its_64() {
        let mut counts = HalfOpens::default();
        for i in 0..3_u128 {
            counts
                .enter(HalfOpenSource { addr: IpAddr::V6(Ipv6Addr::from_bits(1 << 64 | i)), proven: false });
        }
        let next = IpAddr::V6(Ipv6Addr::from_bits(1 << 64 | 99));
        assert_eq!(counts.admit(&config(), Time::default(), next, false), Admission::DemandCookie);
        let other = IpAddr::V6(Ipv6Addr::from_bits(2 << 64));
        assert_eq!(counts.admit(&config(), Time::default(), other, false), Admission::Admit);
    }

    #[test]
    fn requests_that_are_refused_lead_to_cookies_too_and_are_forgotten() {
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let at = |seconds| Time(std::time::Duration::from_secs(seconds));
        let mut counts = HalfOpens::default();
        for _ in 0..6 {
            assert_eq!(counts.admit(&config(), at(10), other, false), Admission::Admit);
            counts.refused(at(10));
        }
        assert_eq!(counts.admit(&config(), at(10), other, false), Admission::DemandCookie);
        assert_eq!(counts.admit(&config(), at(10), other, true), Admission::Admit);
        assert_eq!(counts.admit(&config(), at(11), other, false), Admission::Admit);
        assert_eq!(counts.admit(&config(), at(1_000), other, false), Admission::Admit);
    }
}
