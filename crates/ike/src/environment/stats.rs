//! Counters of an endpoint. Every datagram that is not processed is counted by its reason.

use super::exchanges::{ExchangeCounter, Exchanges};
use std::net::IpAddr;

testudo_base::reasons! {
    /// Why a datagram, or its request, was refused.
    pub enum Discard {
        /// Not a well-formed IKE message.
        Malformed = "malformed",
        /// It is larger than any message that is accepted in this state.
        TooLarge = "too_large",
        /// Its major version is not supported.
        Version = "version",
        /// No IKE SA has these SPIs.
        UnknownSpi = "unknown_spi",
        /// It is not from the IKE SA's peer: the wrong role, or the wrong direction.
        WrongRole = "wrong_role",
        /// From another address than IKE_SA_INIT came from, although there is no NAT that could
        /// have changed it.
        Elsewhere = "elsewhere",
        /// The exchange type does not fit the state or the Message ID.
        WrongExchange = "wrong_exchange",
        /// The integrity check failed.
        Integrity = "integrity",
        /// A Message ID outside the window.
        MessageId = "message_id",
        /// There is no request for this response.
        UnexpectedResponse = "unexpected_response",
        /// The cookie is not ours, or too old.
        BadCookie = "bad_cookie",
        /// There are too many half-open IKE SAs, and none can be displaced.
        HalfOpenLimit = "half_open_limit",
        /// Too many half-open IKE SAs of the source or its network.
        SourceLimit = "source_limit",
        /// No connection is configured between these addresses.
        NoConnection = "no_connection",
        /// No proposal of the offer is configured.
        NoProposal = "no_proposal",
        /// It is not protected, where only protected messages count.
        Unprotected = "unprotected",
        /// IKE_AUTH did not come in time.
        HalfOpenExpired = "half_open_expired",
        /// A half-open IKE SA was displaced by a newcomer.
        HalfOpenEvicted = "half_open_evicted",
        /// IKE_AUTH was refused.
        Refused = "refused",
        /// A response lacks something, or its contents are not acceptable.
        Unacceptable = "unacceptable",
        /// No SPI, number or IV is left for an answer.
        Exhausted = "exhausted",
        /// The answer to a stranger could not be sent by this host.
        NotSent = "not_sent",
        /// An IKE fragment that was not agreed on, is here already, does not fit the others, or is
        /// one too many.
        Fragment = "fragment",
        /// Fragments that were not completed in time.
        FragmentsExpired = "fragments_expired",
        /// It was repeated while its answer, or its consequence, was being computed.
        Repeated = "repeated",
        /// It needs a computation, and too many are out.
        Overload = "overload",
        /// The computation that it needed has failed.
        Computation = "computation",
        /// A synchronisation of counters that breaks the rules, or repeats an older one (RFC 6311
        /// §5.1).
        CounterSync = "counter_sync",
    }
}

/// Sources that are remembered for each reason until they are taken.
const MAX_SOURCES: usize = 16;

/// Counters since the start of the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams handed in.
    pub received: u64,
    /// Messages handed out.
    pub sent: u64,
    /// Of those, repetitions of a request.
    pub retransmitted: u64,
    /// Of those, repetitions of a response to a repeated request.
    pub responses_repeated: u64,
    /// Cookies demanded.
    pub cookies_demanded: u64,
    /// IKE SAs that came up.
    pub established: u64,
    /// Negotiations that failed, on either side.
    pub failed: u64,
    /// Messages by exchange, in total and by connection.
    pub exchanges: Exchanges,
    discards: [u64; Discard::COUNT],
    /// The address whose datagram is being processed.
    source: Option<IpAddr>,
    /// How many datagrams of which source were refused for each reason, since they were taken.
    sources: [Vec<(IpAddr, u64)>; Discard::COUNT],
}

impl Stats {
    /// Number of datagrams refused for this reason.
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.discards.get(reason as usize).copied().unwrap_or_default()
    }

    /// Takes the sources of datagrams that were refused for this reason, with the number of each:
    /// the first few since the last call. Anybody can forge one until IKE_AUTH.
    pub fn take_sources(&mut self, reason: Discard) -> Vec<(IpAddr, u64)> {
        self.sources.get_mut(reason as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Sets whose datagram is refused by what follows.
    pub(crate) fn set_source(&mut self, source: Option<IpAddr>) {
        self.source = source;
    }

    /// Every reason with its counter.
    pub fn discards(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Discard::ALL.into_iter().map(|reason| (reason.name(), self.discarded(reason)))
    }

    pub(crate) fn discard(&mut self, reason: Discard) {
        if let Some(counter) = self.discards.get_mut(reason as usize) {
            *counter += 1;
        }
        if let Some((source, sources)) = self.source.zip(self.sources.get_mut(reason as usize)) {
            if let Some((_, count)) = sources.iter_mut().find(|(known, _)| *known == source) {
                *count += 1;
            } else if sources.len() < MAX_SOURCES {
                sources.push((source, 1));
            }
        }
        match reason {
            Discard::Malformed | Discard::Integrity => self.exchanges.count(None, ExchangeCounter::Invalid),
            Discard::UnknownSpi => self.exchanges.count(None, ExchangeCounter::InvalidSpi),
            _ => {}
        }
    }
}
