//! Counters of an endpoint. Every datagram that is not processed is counted by its reason.

use super::exchanges::{ExchangeCounter, Exchanges};

/// Why a datagram, or what it asked for, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Discard {
    /// Not a well-formed IKE message.
    Malformed,
    /// Larger than any message that we take in that state.
    TooLarge,
    /// A major version that we do not speak.
    Version,
    /// No IKE SA has these SPIs.
    UnknownSpi,
    /// Not from the IKE SA's peer: the wrong half of the conversation, or the wrong direction.
    WrongRole,
    /// From another address than IKE_SA_INIT came from, although there is no NAT that could have
    /// changed it.
    Elsewhere,
    /// The exchange type does not fit the state or the Message ID.
    WrongExchange,
    /// The integrity check failed.
    Integrity,
    /// A Message ID outside the window.
    MessageId,
    /// A response that nothing waits for.
    UnexpectedResponse,
    /// A cookie that we did not make, or too old.
    BadCookie,
    /// Too many half-open IKE SAs altogether, and none that could go.
    HalfOpenLimit,
    /// Too many half-open IKE SAs of the source or its network.
    SourceLimit,
    /// No connection is configured between these addresses.
    NoConnection,
    /// No proposal of the offer is configured.
    NoProposal,
    /// An unprotected message where only protected ones count.
    Unprotected,
    /// IKE_AUTH did not come in time.
    HalfOpenExpired,
    /// A newcomer took the place of a half-open IKE SA.
    HalfOpenEvicted,
    /// IKE_AUTH came, and was refused.
    Refused,
    /// A response without what it must hold, or whose contents cannot be accepted.
    Unacceptable,
    /// No SPI, number or IV was left to answer with.
    Exhausted,
    /// The answer to a stranger did not leave this host.
    NotSent,
    /// An IKE fragment that was not agreed on, is here already, does not fit the others, or is one
    /// too many.
    Fragment,
    /// Fragments whose others did not come in time.
    FragmentsExpired,
    /// It came again while its answer, or what follows from it, was being computed.
    Repeated,
    /// It needs a computation, and too many are out.
    Overload,
    /// The computation that it needed failed.
    Computation,
    /// A synchronization of counters that breaks the rules, or repeats an older one (RFC 6311
    /// §5.1).
    CounterSync,
}

impl Discard {
    /// Every reason.
    pub const ALL: [Self; 28] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Version,
        Self::UnknownSpi,
        Self::WrongRole,
        Self::Elsewhere,
        Self::WrongExchange,
        Self::Integrity,
        Self::MessageId,
        Self::UnexpectedResponse,
        Self::BadCookie,
        Self::HalfOpenLimit,
        Self::SourceLimit,
        Self::NoConnection,
        Self::NoProposal,
        Self::Unprotected,
        Self::HalfOpenExpired,
        Self::HalfOpenEvicted,
        Self::Refused,
        Self::Unacceptable,
        Self::Exhausted,
        Self::NotSent,
        Self::Fragment,
        Self::FragmentsExpired,
        Self::Repeated,
        Self::Overload,
        Self::Computation,
        Self::CounterSync,
    ];

    /// Name of the counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Version => "version",
            Self::UnknownSpi => "unknown_spi",
            Self::WrongRole => "wrong_role",
            Self::Elsewhere => "elsewhere",
            Self::WrongExchange => "wrong_exchange",
            Self::Integrity => "integrity",
            Self::MessageId => "message_id",
            Self::UnexpectedResponse => "unexpected_response",
            Self::BadCookie => "bad_cookie",
            Self::HalfOpenLimit => "half_open_limit",
            Self::SourceLimit => "source_limit",
            Self::NoConnection => "no_connection",
            Self::NoProposal => "no_proposal",
            Self::Unprotected => "unprotected",
            Self::HalfOpenExpired => "half_open_expired",
            Self::HalfOpenEvicted => "half_open_evicted",
            Self::Refused => "refused",
            Self::Unacceptable => "unacceptable",
            Self::Exhausted => "exhausted",
            Self::NotSent => "not_sent",
            Self::Fragment => "fragment",
            Self::FragmentsExpired => "fragments_expired",
            Self::Repeated => "repeated",
            Self::Overload => "overload",
            Self::Computation => "computation",
            Self::CounterSync => "counter_sync",
        }
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
    discards: [u64; Discard::ALL.len()],
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
