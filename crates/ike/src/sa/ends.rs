//! Where the two ends of an IKE SA are, and where they were when they showed that they can be
//! reached.

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
    /// The peer was somewhere else in IKE_SA_INIT, perhaps: nobody knows where.
    fn forgotten(path: Path) -> Self {
        let nowhere = match path.remote.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { local: path.local.ip(), remote: nowhere }
    }
}

impl IkeSa {
    /// For a state that says nothing of where it began. Only a peer behind a NAT moves, and is
    /// believed that without proof: so where it is now is not where it began, for all that is
    /// known.
    pub(crate) fn forget_first_ends(&mut self) {
        if self.is_established() && self.nat.remote {
            self.began_at = Some(Box::new(Ends::forgotten(self.path)));
        }
    }

    /// The ends in IKE_SA_INIT. Whoever has the keys has received what was sent to its address
    /// there: the keys come from it. A later message shows nothing of the address that it comes
    /// from, which its sender can forge.
    pub(crate) fn first_ends(&self) -> Ends {
        self.began_at.as_deref().copied().unwrap_or(self.path.into())
    }

    /// Messages go and come by another path from now on.
    pub(crate) fn move_to(&mut self, path: Path) {
        let first = self.first_ends();
        self.path = path;
        self.began_at = (Ends::from(path) != first).then(|| Box::new(first));
    }
}
