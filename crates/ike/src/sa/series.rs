//! An SA that is made by a series of exchanges: CREATE_CHILD_SA, and an IKE_FOLLOWUP_KE for each
//! additional key exchange (RFC 9370 §2.2.4).

use crate::config::{ADDITIONAL_KE, KeyExchange};
use crate::output::{ChildSaId, Time};
use crate::suite::{EspSuite, IkeSpis, IkeSuite, Nonces, Secret, next_additional};
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::Mode;
use testudo_ipsec::selector::TrafficSelector;

/// The material of an SA's keys, as far as it exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyExchanges {
    pub(crate) nonces: Nonces,
    /// SK(0) of CREATE_CHILD_SA, if it had a key exchange, and one of each additional key exchange
    /// so far.
    pub(crate) shared: Vec<Secret>,
    additional: [Option<KeyExchange>; ADDITIONAL_KE],
    /// Number of the first additional key exchange that is still to come, counted from 0.
    place: usize,
}

impl KeyExchanges {
    /// State after CREATE_CHILD_SA.
    pub(crate) fn new(
        nonces: Nonces,
        shared: Option<Secret>,
        additional: [Option<KeyExchange>; ADDITIONAL_KE],
    ) -> Self {
        Self { nonces, shared: shared.into_iter().collect(), additional, place: 0 }
    }

    /// The next key exchange, with its number counted from 0.
    pub(crate) fn due(&self) -> Option<(usize, KeyExchange)> {
        next_additional(&self.additional, self.place)
    }

    /// The due key exchange is complete.
    pub(crate) fn took_place(&mut self, shared: Secret) {
        if let Some((place, _)) = self.due() {
            self.place = place.saturating_add(1);
            self.shared.push(shared);
        }
    }
}

/// A Child SA as agreed by both sides, without its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgreedChild {
    pub(crate) suite: EspSuite,
    pub(crate) mode: Mode,
    pub(crate) spi_in: Spi,
    pub(crate) spi_out: Spi,
    pub(crate) local_ts: Vec<TrafficSelector>,
    pub(crate) remote_ts: Vec<TrafficSelector>,
}

/// An IKE SA in place of another, as agreed by both sides, without its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgreedIke {
    pub(crate) suite: IkeSuite,
    pub(crate) spis: IkeSpis,
}

/// A series that we have begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Series<T> {
    pub(crate) agreed: T,
    pub(crate) exchanges: KeyExchanges,
}

/// A series that the peer has begun, whose next IKE_FOLLOWUP_KE is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Followup {
    pub(crate) sa: FollowupSa,
    pub(crate) exchanges: KeyExchanges,
    /// The link by which a request names it.
    pub(crate) link: [u8; 16],
    /// When the wait ends.
    pub(crate) until: Time,
}

/// The SA of a peer's series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FollowupSa {
    Child {
        /// `children.<name>`.
        name: String,
        /// The Child SA that it renews; `None` for an additional one.
        replaces: Option<ChildSaId>,
        agreed: AgreedChild,
    },
    Ike(AgreedIke),
}

impl FollowupSa {
    /// True if it makes the same SA as `first`: a peer that begins it again has given up the first.
    pub(crate) fn is_another_try_of(&self, first: &Self) -> bool {
        match (self, first) {
            (Self::Child { name, replaces, .. }, Self::Child { name: first, replaces: old, .. }) => {
                (name, replaces) == (first, old)
            }
            (Self::Ike(_), Self::Ike(_)) => true,
            _ => false,
        }
    }

    /// The ESP SPI that it holds.
    pub(crate) fn spi_in(&self) -> Option<Spi> {
        match self {
            Self::Child { agreed, .. } => Some(agreed.spi_in),
            Self::Ike(_) => None,
        }
    }

    /// The Child SA that it renews.
    pub(crate) fn renews(&self) -> Option<ChildSaId> {
        match self {
            Self::Child { replaces, .. } => *replaces,
            Self::Ike(_) => None,
        }
    }

    /// True for an IKE SA.
    pub(crate) fn is_ike(&self) -> bool {
        matches!(self, Self::Ike(_))
    }

    /// The field that holds a Child SA's number.
    pub(super) fn child_number(&mut self) -> Option<&mut ChildSaId> {
        match self {
            Self::Child { replaces, .. } => replaces.as_mut(),
            Self::Ike(_) => None,
        }
    }
}
