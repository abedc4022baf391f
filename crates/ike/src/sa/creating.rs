//! The state of our CREATE_CHILD_SA request until it is answered (RFC 7296 §1.3), and of the
//! IKE_FOLLOWUP_KE requests after it (RFC 9370 §2.2.4).

use super::series::{AgreedChild, AgreedIke, Series};
use crate::config::{Child, IkeProposal, KeyExchange};
use crate::message::{IkeSpi, Nonce};
use crate::output::ChildSaId;
use crate::suite::{KePrivate, Nonces};
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;

/// A requested SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Creating {
    pub(crate) what: What,
    pub(crate) nonce: Nonce,
    /// Our half of the pending key exchange.
    pub(crate) ke: Option<KePrivate>,
    /// Key exchange methods sent so far: a responder that asks for one twice leads us in circles.
    pub(crate) tried: Vec<KeyExchange>,
    /// The offer: an operator may load something else before the peer, which has the SA with its
    /// answer, has chosen.
    pub(crate) offered: Offered,
    /// True for a Child SA by the present configuration that replaces one of an older
    /// configuration: for the peer it is an additional one.
    pub(crate) anew: bool,
    /// The configuration has changed since the request.
    pub(crate) outdated: bool,
    /// The peer's exchange for the same SA.
    pub(crate) rival: Option<Rival>,
}

/// The offer from which a response must choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Offered {
    Ike(Vec<IkeProposal>),
    /// The child as it was configured then.
    Child(Box<Child>),
}

/// The requested SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// A Child SA.
    Child {
        /// `children.<name>`.
        name: String,
        /// Its SPI.
        spi_in: Spi,
        /// The Child SA that it renews; `None` for an additional one.
        replaces: Option<ChildSaId>,
        /// Number of this attempt.
        tries: u8,
        /// Set once CREATE_CHILD_SA is answered, if additional key exchanges follow.
        series: Option<Series<AgreedChild>>,
    },
    /// An IKE SA in place of this one.
    Ike(WantedIke),
}

/// A requested IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedIke {
    /// Its SPI.
    pub(crate) spi: IkeSpi,
    /// Set once CREATE_CHILD_SA is answered, if additional key exchanges follow.
    pub(crate) series: Option<Series<AgreedIke>>,
}

/// The outcome of an exchange in which the peer renewed the same SA at the same time (RFC 7296
/// §2.8.1, §2.8.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rival {
    /// The lower nonce of that exchange.
    pub(crate) lowest: Nonce,
    pub(crate) sa: RivalSa,
}

/// The SA that it has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RivalSa {
    Child(ChildSaId),
    /// An IKE SA, by our SPI.
    Ike(IkeSpi),
    /// None so far: additional key exchanges follow, see [`super::Followup`].
    Awaited,
}

impl Offered {
    /// For an IKE SA.
    pub(crate) fn ike(&self) -> &[IkeProposal] {
        match self {
            Self::Ike(proposals) => proposals,
            Self::Child(_) => &[],
        }
    }

    /// For a Child SA.
    pub(crate) fn child(&self) -> Option<&Child> {
        match self {
            Self::Child(child) => Some(child),
            Self::Ike(_) => None,
        }
    }
}

impl Creating {
    /// True if it makes a Child SA.
    pub(crate) fn makes_child(&self) -> bool {
        matches!(self.what, What::Child { .. })
    }

    /// The Child SA that it renews.
    pub(crate) fn renews(&self) -> Option<ChildSaId> {
        match self.what {
            What::Child { replaces, .. } => replaces,
            What::Ike(_) => None,
        }
    }

    /// True once CREATE_CHILD_SA is answered, if additional key exchanges follow.
    pub(crate) fn is_in_series(&self) -> bool {
        match &self.what {
            What::Child { series, .. } => series.is_some(),
            What::Ike(wanted) => wanted.series.is_some(),
        }
    }

    /// True if the peer's exchange for the same SA counts (RFC 7296 §2.8.1, §2.8.2). `nonces`:
    /// those of our exchange.
    pub(crate) fn is_outdone(&self, nonces: &Nonces) -> bool {
        self.rival.as_ref().is_some_and(|rival| lowest(nonces).as_ref() < rival.lowest.as_ref())
    }

    /// True if it is for an IKE SA.
    pub(crate) fn is_ike(&self) -> bool {
        matches!(self.what, What::Ike(_))
    }

    /// The name of the child, if it makes an additional Child SA.
    pub(crate) fn new_child(&self) -> Option<&str> {
        match &self.what {
            What::Child { name, replaces: None, .. } => Some(name),
            What::Child { .. } | What::Ike(_) => None,
        }
    }

    /// True if it makes an additional Child SA of this name.
    pub(crate) fn is_new_child(&self, wanted: &str) -> bool {
        self.new_child() == Some(wanted)
    }

    /// True if it makes one of this name in place of one whose configuration has changed.
    pub(crate) fn replaces_anew(&self, wanted: &str) -> bool {
        self.anew && matches!(&self.what, What::Child { name, .. } if name == wanted)
    }

    /// Visits every field that holds a Child SA's number.
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

/// The lower nonce of an exchange. The exchange with the lowest of all is void.
pub(crate) fn lowest(nonces: &Nonces) -> &Nonce {
    let Nonces { initiator, responder } = nonces;
    if initiator.as_ref() < responder.as_ref() { initiator } else { responder }
}
