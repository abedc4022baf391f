//! A gateway of the lab with any daemon: all are configured and driven by the same swanctl.

use crate::cpu::CpuTime;
use crate::guest::Guest;
use crate::namespace::Offloads;
use crate::process::Process;
use crate::strongswan::Strongswan;
use crate::swanctl::Swanctl;
use crate::testudo::Testudo;
use crate::{Namespace, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The daemon of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Debian's strongSwan.
    Strongswan,
    /// Testudo.
    Testudo,
    /// Debian's strongSwan and Linux kernel in a guest.
    Guest,
}

impl Kind {
    /// Offloads of the links to it.
    pub fn offloads_towards(self) -> Offloads {
        match self {
            Self::Strongswan => Offloads::Default,
            Self::Testudo | Self::Guest => Offloads::None,
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strongswan => "strongSwan",
            Self::Testudo => "Testudo",
            Self::Guest => "strongSwan on Linux",
        })
    }
}

/// A running daemon.
#[derive(Debug)]
pub enum Gateway {
    /// charon.
    Strongswan(Strongswan),
    /// testudod.
    Testudo(Testudo),
    /// charon and XFRM in a guest.
    Guest(Guest),
}

impl Gateway {
    /// Starts a daemon of that kind in the namespace of a gateway, and waits until it answers.
    pub fn start(kind: Kind, namespace: &Namespace) -> Result<Self> {
        Ok(match kind {
            Kind::Strongswan => Self::Strongswan(Strongswan::start(namespace)?),
            Kind::Testudo => Self::Testudo(Testudo::start(namespace)?),
            Kind::Guest => Self::Guest(Guest::start(namespace)?),
        })
    }

    /// From now on kernel threads receive for its interfaces, as from a real wire. The interfaces
    /// of strongSwan have no NAPI for threads, and enabling it by GRO makes strongSwan no faster.
    pub fn receive_in_threads(&mut self) -> Result<()> {
        match self {
            Self::Strongswan(_) | Self::Guest(_) => Ok(()),
            Self::Testudo(testudod) => testudod.receive_in_threads(),
        }
    }

    /// A swanctl for it.
    pub fn swanctl(&self) -> &Swanctl {
        match self {
            Self::Strongswan(charon) => charon.swanctl(),
            Self::Testudo(testudod) => testudod.swanctl(),
            Self::Guest(guest) => guest.swanctl(),
        }
    }

    /// CPU time that it has used.
    pub fn cpu(&self) -> Result<CpuTime> {
        match self {
            Self::Strongswan(charon) => charon.cpu(),
            Self::Testudo(testudod) => testudod.cpu(),
            Self::Guest(guest) => guest.cpu(),
        }
    }

    /// Packets that it has dropped, by reason; `None` for charon, which does not report them.
    pub fn drops(&self) -> Result<Option<BTreeMap<String, u64>>> {
        match self {
            Self::Strongswan(_) | Self::Guest(_) => Ok(None),
            Self::Testudo(testudod) => testudod.drops().map(Some),
        }
    }

    /// Packets that it has refused because their sequence numbers are behind its window, or came
    /// before.
    pub fn replays(&self) -> Result<u64> {
        match self {
            Self::Strongswan(charon) => charon.replays(),
            Self::Testudo(testudod) => testudod.replays(),
            Self::Guest(guest) => guest.replays(),
        }
    }

    /// The daemon's log.
    pub fn log(&self) -> Result<String> {
        match self {
            Self::Strongswan(charon) => charon.log(),
            Self::Testudo(testudod) => testudod.log(),
            Self::Guest(guest) => guest.log(),
        }
    }

    /// The daemon's process.
    pub fn process(&mut self) -> &mut Process {
        match self {
            Self::Strongswan(charon) => charon.process(),
            Self::Testudo(testudod) => testudod.process(),
            Self::Guest(guest) => guest.process(),
        }
    }
}
