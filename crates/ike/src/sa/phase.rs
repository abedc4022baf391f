//! The phases of an IKE SA, and the state of each.

use super::Anchor;
use crate::config::{Child, Identity, KeyExchange, LocalAuth, PpkPolicy, RemoteAuth};
use crate::message::{Nonce, Payloads};
use crate::output::Time;
use crate::suite::{IkeKeys, IntAuth, KePrivate, Nonces, SkOpener};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_base::spi::Spi;

/// The phases of an IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Initiator: IKE_SA_INIT is sent.
    InitSent(Box<InitSent>),
    /// Initiator: an IKE_INTERMEDIATE is sent (RFC 9242).
    Intermediate(Box<IntermediateSent>),
    /// Initiator: IKE_AUTH is sent.
    AuthSent(Box<AuthSent>),
    /// Responder: IKE_SA_INIT is answered; IKE_AUTH is awaited, or an IKE_INTERMEDIATE before it.
    HalfOpen(Box<HalfOpen>),
    /// Both sides are authenticated.
    Established,
    /// Initiator: the responder is not the expected one, and is being told.
    Rejecting,
    /// Only the last response is left, to be repeated until then.
    Gone {
        /// When the SA is forgotten.
        until: Time,
        /// The source that it counts against until then, if it was never more than half-open.
        source: Option<HalfOpenSource>,
    },
    // The following phases came with RFC 4739. An older build has no connection that leads there.
    /// Initiator: IKE_AUTH is sent, and takes several rounds.
    AuthRounds(Box<AuthRounds>),
    /// Responder: some rounds of the initiator or of ours have succeeded; nobody is authenticated
    /// yet.
    HalfProven(Box<HalfProven>),
}

impl Phase {
    /// The source that the IKE SA counts against, even after it has failed, for as long as it takes
    /// memory.
    pub(crate) fn half_open_source(&self) -> Option<HalfOpenSource> {
        match self {
            Self::HalfOpen(half) => Some(half.source),
            Self::HalfProven(proven) => Some(proven.half.source),
            Self::Gone { until: _, source } => *source,
            Self::InitSent(_)
            | Self::Intermediate(_)
            | Self::AuthSent(_)
            | Self::AuthRounds(_)
            | Self::Established
            | Self::Rejecting => None,
        }
    }

    /// When the phase ends by itself.
    pub(super) fn time(&mut self) -> Option<&mut Time> {
        match self {
            Self::InitSent(init) => init.error.as_mut().map(|error| &mut error.until),
            Self::HalfOpen(half) => Some(&mut half.until),
            Self::HalfProven(proven) => Some(&mut proven.half.until),
            Self::Gone { until, source: _ } => Some(until),
            Self::Intermediate(_)
            | Self::AuthSent(_)
            | Self::AuthRounds(_)
            | Self::Established
            | Self::Rejecting => None,
        }
    }

    /// The purpose of a pending initiation.
    pub(crate) fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::InitSent(init) => Some(&init.attempt),
            Self::Intermediate(sent) => Some(&sent.opening.attempt),
            phase => phase.auth_sent().map(|sent| &sent.attempt),
        }
    }

    /// The initiator's IKE_AUTH state, until the responder is authenticated.
    pub(crate) fn auth_sent(&self) -> Option<&AuthSent> {
        match self {
            Self::AuthSent(sent) => Some(sent),
            Self::AuthRounds(rounds) => Some(&rounds.sent),
            _ => None,
        }
    }

    /// A responder's state before the initiator is authenticated.
    pub(crate) fn half_open(&self) -> Option<&HalfOpen> {
        match self {
            Self::HalfOpen(half) => Some(half),
            Self::HalfProven(proven) => Some(&proven.half),
            _ => None,
        }
    }

    /// IntAuth of the IKE_INTERMEDIATE messages so far, while more may come.
    pub(crate) fn int_auth(&self) -> Option<&IntAuth> {
        match self {
            Self::Intermediate(sent) => Some(&sent.opening.int_auth),
            Self::HalfOpen(half) => Some(&half.int_auth),
            _ => None,
        }
    }
}

/// The purpose of an initiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    /// `children.<name>`; empty for an IKE SA alone (RFC 6023).
    pub(crate) child: String,
    /// Number of the attempt, from 1.
    pub(crate) number: u32,
    /// The child has changed since the request.
    pub(crate) outdated: bool,
}

impl Attempt {
    /// True if no child is requested, now or later.
    pub(crate) fn is_alone(&self) -> bool {
        self.child.is_empty()
    }

    /// The initiation's purpose, for the log.
    pub(crate) fn describe(&self, connection: &str) -> String {
        match self.is_alone() {
            true => format!("IKE_SA {connection}"),
            false => format!("CHILD_SA {} of {connection}", self.child),
        }
    }
}

/// An initiator's state before the responder's keys are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitSent {
    pub(crate) attempt: Attempt,
    pub(crate) ke: KePrivate,
    pub(crate) nonce: Nonce,
    pub(crate) cookie: Option<Vec<u8>>,
    /// Key exchange methods sent so far in this attempt: a responder that asks for one twice leads
    /// us in circles.
    pub(crate) tried: Vec<KeyExchange>,
    /// Cookies taken so far in this attempt.
    pub(crate) cookies: u8,
    pub(crate) error: Option<UnauthenticatedError>,
}

/// An error notify that may be forged (RFC 7296 §2.21.1): believed if nothing better comes before
/// `until`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnauthenticatedError {
    pub(crate) text: String,
    pub(crate) until: Time,
}

/// The messages before IKE_AUTH that an initiator keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) attempt: Attempt,
    pub(crate) nonces: Nonces,
    /// Our IKE_SA_INIT message, which our AUTH covers.
    pub(crate) init_request: Vec<u8>,
    /// The responder's IKE_SA_INIT message, which its AUTH covers.
    pub(crate) init_response: Vec<u8>,
    pub(crate) int_auth: IntAuth,
}

/// An initiator's state during an additional key exchange (RFC 9370 §2.2.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IntermediateSent {
    pub(crate) opening: Opening,
    /// Number of the additional key exchange, counted from 0.
    pub(crate) place: usize,
    pub(crate) ke: KePrivate,
}

/// An initiator's state before the responder is authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuthSent {
    pub(crate) attempt: Attempt,
    pub(crate) nonces: Nonces,
    /// The responder's IKE_SA_INIT message, which its AUTH covers.
    pub(crate) init_response: Vec<u8>,
    /// IntAuth (RFC 9242 §3.3.2), which both AUTH cover.
    pub(crate) int_auth: Vec<u8>,
    /// The PPK that we offered.
    pub(crate) ppk: Option<OfferedPpk>,
    /// The requested child; `None` if the IKE SA comes up without one (RFC 6023).
    #[serde(with = "asked")]
    pub(crate) asked: Option<AskedChild>,
}

/// The child of an IKE_AUTH request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedChild {
    /// The child as it was configured then.
    pub(crate) offered: Child,
    /// Its SPI.
    pub(crate) spi_in: Spi,
}

/// "No child" is encoded as one without a name, which no configured child is: so the octets equal
/// those of builds in which every IKE_AUTH requests a child.
mod asked {
    use super::AskedChild;
    use crate::config::Child;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use testudo_base::spi::Spi;

    pub(super) fn serialize<S: Serializer>(asked: &Option<AskedChild>, to: S) -> Result<S::Ok, S::Error> {
        match asked {
            Some(asked) => asked.serialize(to),
            None => AskedChild { offered: Child::default(), spi_in: Spi(0) }.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AskedChild>, D::Error> {
        Ok(Some(AskedChild::deserialize(from)?).filter(|asked| !asked.offered.name.is_empty()))
    }
}

/// An initiator's state in an IKE_AUTH of several rounds (RFC 4739).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuthRounds {
    pub(crate) sent: AuthSent,
    /// Our IKE_SA_INIT message, which every AUTH of ours covers.
    pub(crate) init_request: Vec<u8>,
    /// Rounds that we have sent.
    pub(crate) ours: usize,
    /// Rounds of the responder that have succeeded.
    pub(crate) theirs: usize,
}

/// A PPK that an initiator has named (RFC 8784 §3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfferedPpk {
    pub(crate) id: Identity,
    /// Our keys with it.
    pub(crate) keys: IkeKeys,
    /// The responder was told how to go on without it.
    pub(crate) optional: bool,
}

/// A responder's state before the initiator is authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HalfOpen {
    pub(crate) nonces: Nonces,
    /// The initiator's IKE_SA_INIT message, which its AUTH covers.
    pub(crate) init_request: Vec<u8>,
    /// Our answer, which our AUTH covers.
    pub(crate) init_response: Vec<u8>,
    pub(crate) int_auth: IntAuth,
    /// The first additional key exchange that has not taken place, counted from 0.
    pub(crate) place: usize,
    /// The opener of the last IKE_INTERMEDIATE, in case it comes again in other fragments.
    pub(crate) last_opener: Option<SkOpener>,
    pub(crate) source: HalfOpenSource,
    /// When we give up waiting.
    pub(crate) until: Time,
}

/// A responder's state between two rounds of IKE_AUTH (RFC 4739).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HalfProven {
    pub(crate) half: HalfOpen,
    /// IntAuth (RFC 9242 §3.3.2), which every AUTH covers as it was at the first.
    pub(crate) int_auth: Vec<u8>,
    /// The first request of IKE_AUTH: its wishes are answered when all rounds have succeeded.
    pub(crate) request: Payloads,
    /// Names of the connections that are still possible, the best first.
    pub(crate) connections: Vec<String>,
    pub(crate) ppk: PpkPolicy,
    /// The requirement of each successful round of the initiator, and its identity in it.
    pub(crate) theirs: Vec<(RemoteAuth, Identity)>,
    /// Our proof of each round, and our identity in it.
    pub(crate) ours: Vec<(LocalAuth, Identity)>,
    /// The initiator's identity in its last round.
    pub(crate) remote: Identity,
    /// Its trust anchor in that round.
    pub(crate) anchor: Option<Anchor>,
    /// Our identity in our last round.
    pub(crate) local: Identity,
    /// The initiator has announced another round.
    pub(crate) follows: bool,
}

/// The source that a half-open IKE SA counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HalfOpenSource {
    pub(crate) addr: IpAddr,
    /// It returned a cookie, so the address is not forged.
    pub(crate) proven: bool,
}
