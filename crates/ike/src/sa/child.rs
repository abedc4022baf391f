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

/// A Child SA in the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    /// `children.<name>`.
    pub(crate) name: String,
    pub(crate) reqid: u32,
    pub(crate) params: ChildSaParams,
    /// Its own key exchange, and the additional ones.
    pub(crate) ke: Option<KeyExchange>,
    pub(crate) additional_ke: [Option<KeyExchange>; ADDITIONAL_KE],
    pub(crate) installed: Time,
    pub(crate) phase: ChildPhase,
    pub(crate) outbound: Outbound,
    pub(crate) limits: ChildLimits,
    /// The source of its authentic packets, once that differs from the destination of ours. Few
    /// have it.
    pub(crate) source: Option<Box<SocketAddr>>,
    /// Set if its configuration has changed since.
    pub(crate) outdated: Option<Box<Outdated>>,
}

impl ChildSa {
    /// The protocol of its packets.
    pub(crate) fn protocol(&self) -> Protocol {
        if self.params.algorithm.is_ah() { Protocol::Ah } else { Protocol::Esp }
    }

    /// True if outbound packets reach the source of inbound ones.
    pub(crate) fn is_answerable(&self) -> bool {
        self.source.as_ref().is_none_or(|source| **source == self.params.remote)
    }

    /// The SPI of the Child SA whose place it waits for.
    pub(crate) fn waits_for(&self) -> Option<Spi> {
        match self.outbound {
            Outbound::Waiting(old) => Some(old),
            Outbound::Active | Outbound::Retired | Outbound::Expired => None,
        }
    }

    /// True if it is in use and not being deleted.
    pub(crate) fn is_installed(&self) -> bool {
        self.phase == ChildPhase::Installed
    }

    /// True if it carries nothing any more, and nothing has replaced it yet.
    pub(crate) fn is_missed(&self) -> bool {
        self.is_installed() && self.outbound == Outbound::Expired
    }

    /// True if it carries traffic, or is about to.
    pub(crate) fn is_up(&self) -> bool {
        self.is_installed() && !self.is_missed()
    }

    /// True if outbound traffic goes through it.
    pub(crate) fn is_sending(&self) -> bool {
        self.outbound == Outbound::Active
    }

    /// True if the peer surely has it too: the peer cannot renew one that it does not know yet.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_installed() && self.is_sending()
    }
}

/// The stages of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChildPhase {
    Installed,
    /// Another has replaced it. The side that began that deletes it.
    Rekeyed,
    /// Our delete waits or is pending.
    Deleting,
    /// Both sides have deleted it. Packets under way are still accepted until this time.
    Deleted(Time),
}

/// The outbound traffic of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outbound {
    /// All that its selectors cover.
    Active,
    /// None yet: the peer, which renewed this SA, has not shown that it is ready for packets
    /// through the new one (RFC 7296 §2.8). The replaced SA, perhaps of another IKE SA, is named by
    /// our SPI, because numbers differ from node to node.
    Waiting(Spi),
    /// None any more.
    Retired,
    /// None in either direction: its lifetime is over, and it is not in the data plane any more
    /// (RFC 7296 §2.8). The rest can be renewed or deleted, because the peer still knows it.
    Expired,
}
