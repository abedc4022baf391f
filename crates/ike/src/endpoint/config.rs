//! Settings of the whole endpoint; the defaults are charon's where charon has them.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Settings of an [`super::Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The port on which a conversation begins.
    pub ike_port: u16,
    /// The port to which it moves when there is a NAT.
    pub nat_port: u16,
    /// How requests are repeated.
    pub retransmit: RetransmitPolicy,
    /// Bound on the octets of an IP datagram with a fragment of an IKE message (RFC 7383 §2.5.1).
    pub fragment_size: usize,
    /// How long fragments wait for the others.
    pub fragment_timeout: Duration,
    /// How long a delete of an IKE SA waits for its answer before the SA is gone anyway.
    pub delete_timeout: Duration,
    /// How long a responder waits for IKE_AUTH.
    pub half_open_timeout: Duration,
    /// From this number of half-open IKE SAs on, every request needs a cookie (RFC 7296 §2.6).
    pub cookie_threshold: usize,
    /// From this number of half-open IKE SAs of one source (an IPv4 address, an IPv6 /56) on, its
    /// requests need a cookie.
    pub source_cookie_threshold: usize,
    /// Bound on the half-open IKE SAs of one source that did return a cookie; more requests are
    /// dropped. An address that connections name may have one for each of them.
    pub source_half_open_limit: usize,
    /// Bound for one network (an IPv4 /24, an IPv6 /48), unless connections name the address. It
    /// applies only if there is no more room ([`Self::half_open_limit`]).
    pub network_half_open_limit: usize,
    /// Bound on all half-open IKE SAs; a quarter is reserved for addresses that connections name.
    /// One more displaces the oldest of the network that has the most.
    pub half_open_limit: usize,
    /// True if the host runs the jobs of [`super::Endpoint::take_job`]. Otherwise the endpoint runs
    /// them within the call that led to them.
    pub hand_out_jobs: bool,
    /// Bound on the jobs that are out for requests for new IKE SAs, likewise on those for half-open
    /// ones, and on all others. A message that needs one more is dropped.
    pub job_limit: usize,
    /// Keep a list of the IKE SAs that have changed, for [`super::ReplicationMut::take_changed`].
    /// Who sets this empties it.
    pub track_changes: bool,
    /// Synchronize counters with a cluster, or as one, after a failover (RFC 6311).
    pub counter_sync: bool,
    /// Allow RSA with SHA-1 in AUTH, if the peer has no digital signatures (RFC 7427) and the
    /// connection names no hash.
    pub legacy_signatures: bool,
    /// How long a responder waits for the next IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).
    pub followup_timeout: Duration,
    /// How long an initiator continues after an unauthenticated error notify (RFC 7296 §2.21.1).
    pub unauthenticated_error_wait: Duration,
    /// After which time a request is repeated that the peer could not accept, less up to half of it
    /// at random.
    pub rekey_retry: Duration,
    /// Interval between replacements of a changed connection's SAs: with many peers they are
    /// replaced one by one, so that neither this host nor the network is overloaded.
    pub replacement_pace: Duration,
    /// How long packets are still accepted on a Child SA that was replaced and deleted by both
    /// sides.
    pub rekeyed_linger: Duration,
    /// Bound on the IKE SAs of one peer, by its identity, on one connection, if `unique` allows
    /// several; more are refused. `None`: no bound.
    pub twin_limit: Option<NonZeroUsize>,
    /// Bound on the Child SAs of one IKE SA; more are refused.
    pub child_limit: usize,
    /// Bound on the traffic selectors of all Child SAs of one IKE SA: each may have to be compared
    /// with a packet.
    pub selector_limit: usize,
    /// Workers of this host, each of which may have a Child SA of its own (RFC 9611). Zero: such
    /// Child SAs are neither requested nor made.
    pub resource_workers: u16,
    /// Bound on the Child SAs that one child may have in one IKE SA for workers, beside the fallback
    /// SA; the peer may request no more.
    pub resource_limit: usize,
    /// SAs that a peer may create at once by CREATE_CHILD_SA, through an IKE SA and its renewals.
    pub creation_burst: u32,
    /// Interval after which it may create one more.
    pub creation_pace: Duration,
    /// How long an IKE SA stays that has never had a child. It holds memory, and an address of a
    /// pool, for a peer whose configuration does not match ours.
    pub childless_timeout: Duration,
    /// How long an IKE SA that is gone still repeats its last response.
    pub linger: Duration,
    /// Silence after which a peer behind our NAT gets a keepalive (RFC 3948 §4).
    pub keepalive_interval: Duration,
    /// Log the payloads of every message. This takes time, so it should be on only if somebody
    /// reads them.
    pub details: bool,
    /// Pause after a failed initiation before a child with `start_action = start` is tried again.
    pub start_retry: Duration,
    /// Interval between two resolutions of a connection's DNS name.
    pub name_refresh: Duration,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            ike_port: 500,
            nat_port: 4500,
            retransmit: RetransmitPolicy::default(),
            fragment_size: 1280,
            fragment_timeout: Duration::from_secs(30),
            delete_timeout: Duration::from_secs(20),
            half_open_timeout: Duration::from_secs(30),
            cookie_threshold: 30,
            source_cookie_threshold: 10,
            source_half_open_limit: 32,
            network_half_open_limit: 256,
            half_open_limit: 10_000,
            hand_out_jobs: false,
            job_limit: 1000,
            track_changes: false,
            counter_sync: true,
            legacy_signatures: false,
            followup_timeout: Duration::from_secs(20),
            unauthenticated_error_wait: Duration::from_secs(2),
            rekey_retry: Duration::from_secs(15),
            replacement_pace: Duration::from_millis(10),
            rekeyed_linger: Duration::from_secs(5),
            twin_limit: NonZeroUsize::new(256),
            child_limit: 256,
            selector_limit: 1024,
            resource_workers: 0,
            resource_limit: 64,
            creation_burst: 512,
            creation_pace: Duration::from_secs(1),
            childless_timeout: Duration::from_secs(20),
            linger: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(20),
            details: false,
            start_retry: Duration::from_secs(30),
            name_refresh: Duration::from_secs(60),
        }
    }
}

/// Exponential back-off: transmission n+1 follows transmission n after `timeout * base^n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetransmitPolicy {
    /// Wait after the first transmission.
    pub timeout: Duration,
    /// Growth of the wait, in thousandths: 1800 for 1.8.
    pub base_milli: u32,
    /// Repetitions after the first transmission.
    pub tries: u32,
    /// No wait is longer than this.
    pub limit: Duration,
}

impl Default for RetransmitPolicy {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(4), base_milli: 1800, tries: 5, limit: Duration::from_secs(120) }
    }
}

impl RetransmitPolicy {
    /// How long a request is repeated before its sender gives up.
    pub fn patience(&self) -> Duration {
        // However many tries are set, no request waits for more than these.
        const MOST: u32 = 32;
        (1..=self.tries.saturating_add(1).min(MOST)).map(|number| self.wait_after(number)).sum()
    }

    /// The wait after a first transmission whose response may well be lost.
    pub(crate) fn wait_for_lost(&self) -> Duration {
        /// Longer than a peer usually takes, and short for a tunnel that is down meanwhile.
        const SOON: Duration = Duration::from_millis(500);
        self.wait_after(1).min(SOON)
    }

    /// The wait after transmission number `transmissions`, counted from 1.
    pub fn wait_after(&self, transmissions: u32) -> Duration {
        let mut wait = self.timeout;
        for _ in 1..transmissions {
            if wait >= self.limit {
                break;
            }
            wait = wait.saturating_mul(self.base_milli) / 1000;
        }
        wait.min(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_as_charons_do() {
        let policy = RetransmitPolicy::default();
        let waits: Vec<u128> = (1..=6).map(|n| policy.wait_after(n).as_millis()).collect();
        assert_eq!(waits, [4000, 7200, 12960, 23328, 41990, 75582]);
        assert_eq!(policy.patience().as_secs(), 165);
    }

    #[test]
    fn a_wait_never_passes_the_limit() {
        let policy = RetransmitPolicy { limit: Duration::from_secs(5), ..RetransmitPolicy::default() };
        assert_eq!(policy.wait_after(u32::MAX), Duration::from_secs(5));
    }
}
