//! Why an initiator cannot use the peer's answer about an SA.

use crate::exchange::describe;
use crate::exchange::narrow::Selectors;
use crate::output::Reason;
use crate::suite::SuiteError;

/// Why the peer's answer brings no SA, for the log and for the command that asked for the SA.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    // What has changed since the request.
    /// An operator has unloaded the child.
    #[error("the child was unloaded meanwhile")]
    Unloaded,
    /// The request was not for a Child SA.
    #[error("no child was asked for")]
    NoChildAsked,

    // What the answer lacks.
    /// An answer about a Child SA lacks a payload.
    #[error("the answer has no SA, TSi or TSr")]
    NoSaOrSelectors,
    /// An answer about an IKE SA has no SA payload.
    #[error("the answer has no SA")]
    NoSa,
    /// The SA payload has no SPI of the new IKE SA.
    #[error("the answer has no SPI")]
    NoSpi,
    /// The nonce is missing, or shorter than half the key of the PRF (RFC 7296 §2.10).
    #[error("its nonce is missing, or too short for the PRF")]
    Nonce,
    /// A key exchange is due, and the answer has none.
    #[error("the answer has no KE")]
    NoKe,
    /// Another key exchange is due, and the answer has no link to it (RFC 9370 §2.2.4).
    #[error("the answer has no ADDITIONAL_KEY_EXCHANGE, and one is to follow")]
    NoLink,
    /// An address was requested, and none that the peer assigns is acceptable.
    #[error("the peer gives no virtual IP that can be ours")]
    NoAddress,

    // What was not offered.
    /// The KE payload is missing, or of another method than the chosen proposal's.
    #[error("its key exchange is not the one that it chose")]
    OtherKe,
    /// The answer announces a key exchange that the chosen proposal does not have.
    #[error("the peer wants more key exchanges than agreed on")]
    SurplusKe,
    /// The peer agrees to transport mode, which was not requested.
    #[error("the peer answers USE_TRANSPORT_MODE, which was not asked for")]
    Mode,
    /// The selectors are not a part of the requested ones.
    #[error(
        "the peer's selectors {} === {} do not lie within ours",
        describe::selectors(&.0.local),
        describe::selectors(&.0.remote)
    )]
    Selectors(Selectors),

    // Algorithms and keys.
    /// The chosen proposal or the key material is not usable.
    #[error(transparent)]
    Suite(#[from] SuiteError),
}

impl From<AnswerError> for Reason {
    fn from(error: AnswerError) -> Self {
        Self::Refused(error.to_string())
    }
}
