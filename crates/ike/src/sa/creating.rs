//! What a CREATE_CHILD_SA request of ours must remember until it is answered (RFC 7296 §1.3), and
//! the IKE_FOLLOWUP_KE requests after it (RFC 9370 §2.2.4).

use super::series::{AgreedChild, AgreedIke, Series};
use crate::config::{Child, IkeProposal, KeyExchange};
use crate::message::{IkeSpi, Nonce};
use crate::output::ChildSaId;
use crate::suite::{KePrivate, Nonces};
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;

/// An SA that we have asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Creating {
    pub(crate) what: What,
    pub(crate) nonce: Nonce,
    /// Our half of the key exchange under way.
    pub(crate) ke: Option<KePrivate>,
    /// Key exchange methods sent so far: a responder that asks for one twice leads us in circles.
    pub(crate) tried: Vec<KeyExchange>,
    /// What was offered: an operator may load something else before the peer, which has the SA with
    /// its answer, has chosen.
    pub(crate) offered: Offered,
    /// A Child SA by the configuration as it is now, which takes the place of one made by what it
    /// was: for the peer a further one.
    pub(crate) anew: bool,
    /// The configuration has changed since we asked.
    pub(crate) outdated: bool,
    /// What the peer made of the same SA meanwhile.
    pub(crate) rival: Option<Rival>,
}

/// What an answer must be a choice from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Offered {
    Ike(Vec<IkeProposal>),
    /// As it was configured then.
    Child(Box<Child>),
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
        /// Set once CREATE_CHILD_SA is answered, where additional key exchanges follow.
        series: Option<Series<AgreedChild>>,
    },
    /// The IKE SA in the place of this one.
    Ike(WantedIke),
}

/// An IKE SA that we have asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WantedIke {
    /// Its SPI.
    pub(crate) spi: IkeSpi,
    /// Set once CREATE_CHILD_SA is answered, where additional key exchanges follow.
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

/// The SA that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RivalSa {
    Child(ChildSaId),
    /// By the SPI that we chose.
    Ike(IkeSpi),
    /// None so far: additional key exchanges are to follow, see [`super::Followup`].
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
    /// A Child SA comes of it.
    pub(crate) fn makes_child(&self) -> bool {
        matches!(self.what, What::Child { .. })
    }

    /// The Child SA that is being renewed.
    pub(crate) fn renews(&self) -> Option<ChildSaId> {
        match self.what {
            What::Child { replaces, .. } => replaces,
            What::Ike(_) => None,
        }
    }

    /// True once CREATE_CHILD_SA is answered, where additional key exchanges follow.
    pub(crate) fn is_in_series(&self) -> bool {
        match &self.what {
            What::Child { series, .. } => series.is_some(),
            What::Ike(wanted) => wanted.series.is_some(),
        }
    }

    /// True if the peer's exchange for the same SA is the one that counts (RFC 7296 §2.8.1,
    /// §2.8.2). `nonces`: of ours.
    pub(crate) fn is_outdone(&self, nonces: &Nonces) -> bool {
        self.rival.as_ref().is_some_and(|rival| lowest(nonces).as_ref() < rival.lowest.as_ref())
    }

    /// True if it is for an IKE SA.
    pub(crate) fn is_ike(&self) -> bool {
        matches!(self.what, What::Ike(_))
    }

    /// The name of the child, if it is for another Child SA, not for the renewal of one.
    pub(crate) fn new_child(&self) -> Option<&str> {
        match &self.what {
            What::Child { name, replaces: None, .. } => Some(name),
            What::Child { .. } | What::Ike(_) => None,
        }
    }

    /// True if it is for another Child SA of that name.
    pub(crate) fn is_new_child(&self, wanted: &str) -> bool {
        self.new_child() == Some(wanted)
    }

    /// True if it is for one of that name in the place of one whose configuration has changed.
    pub(crate) fn replaces_anew(&self, wanted: &str) -> bool {
        self.anew && matches!(&self.what, What::Child { name, .. } if name == wanted)
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

/// The lower nonce of an exchange. The exchange that has the lowest of all is the one that was for
/// nothing.
pub(crate) fn lowest(nonces: &Nonces) -> &Nonce {
    let Nonces { initiator, responder } = nonces;
    if initiator.as_ref() < responder.as_ref() { initiator } else { responder }
}
