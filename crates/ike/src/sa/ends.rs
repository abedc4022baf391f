//! The addresses of both ends of an IKE SA, now and when they proved to be reachable.

use super::IkeSa;
use crate::output::Path;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The outer addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

impl From<Path> for Ends {
    fn from(path: Path) -> Self {
        Self { local: path.local.ip(), remote: path.remote.ip() }
    }
}

impl Ends {
    /// The peer's address in IKE_SA_INIT may have differed and is not known.
    fn forgotten(path: Path) -> Self {
        let nowhere = match path.remote.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { local: path.local.ip(), remote: nowhere }
    }
}

impl IkeSa {
    /// For a state without its first addresses. Only a peer behind a NAT moves without proof, so
    /// its present address may not be the first one.
    pub(crate) fn forget_first_ends(&mut self) {
        if self.is_established() && self.nat.remote {
            self.began_at = Some(Box::new(Ends::forgotten(self.path)));
        }
    }

    /// The ends in IKE_SA_INIT. The holder of the keys has received what was sent to its address
    /// there, because the keys come from it. A later message proves nothing about its source, which
    /// the sender can forge.
    pub(crate) fn first_ends(&self) -> Ends {
        self.began_at.as_deref().copied().unwrap_or(self.path.into())
    }

    /// Sets the path of further messages.
    pub(crate) fn move_to(&mut self, path: Path) {
        let first = self.first_ends();
        self.path = path;
        self.began_at = (Ends::from(path) != first).then(|| Box::new(first));
    }
}
