//! The certificate on which a peer's authentication rests.

use super::{IkeSa, digest};
use crate::cert::Certificate;
use crate::config::Identity;
use serde::{Deserialize, Serialize};

/// A CA, or a certificate that is trusted itself: its SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Anchor([u8; 32]);

impl Anchor {
    pub(crate) fn of(certificate: &Certificate) -> Self {
        Self(digest(certificate.to_der()))
    }
}

/// The peer's rounds of authentication before its last (RFC 4739). A state that began in an older
/// build may lack some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EarlierRounds(Vec<EarlierRound>);

/// One of the peer's rounds before its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EarlierRound {
    /// Its number, counted from 0.
    pub(crate) number: usize,
    /// Our identity beside it.
    pub(crate) local: Identity,
    /// The peer's identity in it.
    pub(crate) remote: Identity,
    /// The peer's trust anchor in it, if it had a certificate.
    pub(crate) anchor: Option<Anchor>,
}

impl IkeSa {
    /// The peer's rounds before its last.
    pub(crate) fn earlier_rounds(&self) -> &[EarlierRound] {
        self.earlier_rounds.as_deref().map_or(&[], |rounds| &rounds.0)
    }

    /// Keeps a round that has succeeded, since another one follows.
    pub(crate) fn keep_round(&mut self, round: EarlierRound) {
        self.keep_shared_key(round.number);
        self.earlier_rounds.get_or_insert_default().0.push(round);
    }
}
