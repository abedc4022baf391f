//! The state of a Child SA.

use super::lifetime::ChildLimits;
use super::outdated::Outdated;
use crate::config::{ADDITIONAL_KE, KeyExchange};
use crate::message::Protocol;
use crate::output::{ChildSaId, Time};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use testudo_base::spi::Spi;
use testudo_ipsec::sa::ChildSaParams;

/// A Child SA that the data plane has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    /// `children.<name>`.
    pub(crate) name: String,
    pub(crate) reqid: u32,
    pub(crate) params: ChildSaParams,
    /// The key exchange of its own, and the additional ones.
    pub(crate) ke: Option<KeyExchange>,
    pub(crate) additional_ke: [Option<KeyExchange>; ADDITIONAL_KE],
    pub(crate) installed: Time,
    pub(crate) phase: ChildPhase,
    pub(crate) outbound: Outbound,
    pub(crate) limits: ChildLimits,
    /// Where its authentic packets come from, once that was another place than where ours go. Few
    /// have it.
    pub(crate) source: Option<Box<SocketAddr>>,
    /// It was made by a configuration that has changed.
    pub(crate) outdated: Option<Box<Outdated>>,
}

impl ChildSa {
    /// What protects its packets.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.params.algorithm.is_ah() { Protocol::Ah } else { Protocol::Esp }
    }

    /// What goes out finds the place from which packets come in.
    pub(crate) fn is_answerable(&self) -> bool {
        self.source.as_ref().is_none_or(|source| **source == self.params.remote)
    }

    /// The SPI of the one whose place it waits for.
    pub(crate) fn waits_for(&self) -> Option<Spi> {
        match self.outbound {
            Outbound::Waiting(old) => Some(old),
            Outbound::Active | Outbound::Retired | Outbound::Expired => None,
        }
    }

    /// In use, and not on its way out.
    pub(crate) fn is_installed(&self) -> bool {
        self.phase == ChildPhase::Installed
    }

    /// It carries nothing any more, and nothing has taken its place yet.
    pub(crate) fn is_missed(&self) -> bool {
        self.is_installed() && self.outbound == Outbound::Expired
    }

    /// It carries traffic, or is about to.
    pub(crate) fn is_up(&self) -> bool {
        self.is_installed() && !self.is_missed()
    }

    /// The peer has it too for sure: what it does not know yet it cannot renew.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_installed() && self.outbound == Outbound::Active
    }
}

/// The stages of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChildPhase {
    Installed,
    /// Another has taken its place. Whoever began that deletes it.
    Rekeyed,
    /// Our delete waits or is under way.
    Deleting,
    /// Both sides have let it go. What was under way by then is still taken in, until that time.
    Deleted(Time),
}

/// What of our traffic goes out through a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outbound {
    /// All that its selectors say.
    Active,
    /// Nothing yet: the peer, which renewed this SA, has not shown that it is ready for what comes
    /// through the new one (RFC 7296 §2.8). The SA, perhaps of another IKE SA, goes by the SPI that
    /// we chose for it: numbers differ from node to node.
    Waiting(Spi),
    /// Nothing any more.
    Retired,
    /// Nothing, nor does anything come in: its lifetime is over, and the data plane has it no more
    /// (RFC 7296 §2.8). What is left can be renewed or deleted, as the peer still knows it.
    Expired,
}
