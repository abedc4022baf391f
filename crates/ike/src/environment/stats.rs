//! Counters of an endpoint. Every datagram that is not processed is counted by its reason.

use super::exchanges::{ExchangeCounter, Exchanges};

testudo_base::reasons! {
    /// Why a datagram, or what it asked for, was refused.
    pub enum Discard {
        /// Not a well-formed IKE message.
        Malformed = "malformed",
        /// Larger than any message that we take in that state.
        TooLarge = "too_large",
        /// A major version that we do not speak.
        Version = "version",
        /// No IKE SA has these SPIs.
        UnknownSpi = "unknown_spi",
        /// Not from the IKE SA's peer: the wrong half of the conversation, or the wrong direction.
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
        /// A response that nothing waits for.
        UnexpectedResponse = "unexpected_response",
        /// A cookie that we did not make, or too old.
        BadCookie = "bad_cookie",
        /// Too many half-open IKE SAs altogether, and none that could go.
        HalfOpenLimit = "half_open_limit",
        /// Too many half-open IKE SAs of the source or its network.
        SourceLimit = "source_limit",
        /// No connection is configured between these addresses.
        NoConnection = "no_connection",
        /// No proposal of the offer is configured.
        NoProposal = "no_proposal",
        /// An unprotected message where only protected ones count.
        Unprotected = "unprotected",
        /// IKE_AUTH did not come in time.
        HalfOpenExpired = "half_open_expired",
        /// A newcomer took the place of a half-open IKE SA.
        HalfOpenEvicted = "half_open_evicted",
        /// IKE_AUTH came, and was refused.
        Refused = "refused",
        /// A response without what it must hold, or whose contents cannot be accepted.
        Unacceptable = "unacceptable",
        /// No SPI, number or IV was left to answer with.
        Exhausted = "exhausted",
        /// The answer to a stranger did not leave this host.
        NotSent = "not_sent",
        /// An IKE fragment that was not agreed on, is here already, does not fit the others, or is
        /// one too many.
        Fragment = "fragment",
        /// Fragments whose others did not come in time.
        FragmentsExpired = "fragments_expired",
        /// It came again while its answer, or what follows from it, was being computed.
        Repeated = "repeated",
        /// It needs a computation, and too many are out.
        Overload = "overload",
        /// The computation that it needed failed.
        Computation = "computation",
        /// A synchronization of counters that breaks the rules, or repeats an older one (RFC 6311
        /// §5.1).
        CounterSync = "counter_sync",
    }
}

/// Counters since the endpoint began.
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
}

impl Stats {
    /// How often this was the reason.
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.discards.get(reason as usize).copied().unwrap_or_default()
    }

    /// Every reason with its counter.
    pub fn discards(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Discard::ALL.into_iter().map(|reason| (reason.name(), self.discarded(reason)))
    }

    pub(crate) fn discard(&mut self, reason: Discard) {
        if let Some(counter) = self.discards.get_mut(reason as usize) {
            *counter += 1;
        }
        match reason {
            Discard::Malformed | Discard::Integrity => self.exchanges.count(None, ExchangeCounter::Invalid),
            Discard::UnknownSpi => self.exchanges.count(None, ExchangeCounter::InvalidSpi),
            _ => {}
        }
    }
}
