//! What a CREATE_CHILD_SA request of ours must remember until it is answered (RFC 7296 §1.3).

use crate::config::KeyExchange;
use crate::message::{IkeSpi, Nonce};
use crate::output::ChildSaId;
use crate::suite::{KePrivate, Nonces};
use serde::{Deserialize, Serialize};
use testudo_ipsec::spi::Spi;

/// An SA that we have asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Creating {
    pub(crate) what: What,
    pub(crate) nonce: Nonce,
    pub(crate) ke: Option<KePrivate>,
    /// Key exchange methods sent so far: a responder that asks for one twice leads us in circles.
    pub(crate) tried: Vec<KeyExchange>,
    /// What the peer made of the same SA meanwhile.
    pub(crate) rival: Option<Rival>,
}

/// Which SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A Child SA.
    Child {
        /// `children.<name>`.
        name: String,
        /// Its SPI.
        spi_in: Spi,
        /// The one that it renews; none for a further one.
        replaces: Option<ChildSaId>,
        /// Tries so far, with this one.
        tries: u8,
    },
    /// The IKE SA in the place of this one, and its SPI.
    Ike(IkeSpi),
}

/// The outcome of an exchange in which the peer renewed the same SA at the same time (RFC 7296 §2.8.1, §2.8.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rival {
    /// The lower nonce of that exchange.
    pub(crate) lowest: Nonce,
    pub(crate) sa: RivalSa,
}

/// The SA that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RivalSa {
    Child(ChildSaId),
    /// By the SPI that we chose.
    Ike(IkeSpi),
}

impl Creating {
    /// The Child SA that is being renewed.
    pub(crate) fn renews(&self) -> Option<ChildSaId> {
        match self.what {
            What::Child { replaces, .. } => replaces,
            What::Ike(_) => None,
        }
    }

    /// True if it is for another Child SA of that name, not for the renewal of one.
    pub(crate) fn is_new_child(&self, wanted: &str) -> bool {
        matches!(&self.what, What::Child { name, replaces: None, .. } if name == wanted)
    }

    /// Every place that names a Child SA by number.
    pub(super) fn for_each_child_number(&mut self, mut visit: impl FnMut(&mut ChildSaId)) {
        if let What::Child { replaces: Some(id), .. } = &mut self.what {
            visit(id);
        }
        if let Some(Rival { sa: RivalSa::Child(id), .. }) = &mut self.rival {
            visit(id);
        }
    }

    /// The ESP SPI that it holds.
    pub(crate) fn spi_in(&self) -> Option<Spi> {
        match self.what {
            What::Child { spi_in, .. } => Some(spi_in),
            What::Ike(_) => None,
        }
    }
}

/// The lower nonce of an exchange. The exchange that has the lowest of all is the one that was for nothing.
pub(crate) fn lowest(nonces: &Nonces) -> &Nonce {
    let Nonces { initiator, responder } = nonces;
    if initiator.as_ref() < responder.as_ref() { initiator } else { responder }
}
