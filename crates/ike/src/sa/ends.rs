//! Where the two ends of an IKE SA are, and where they were when they showed that they can be
//! reached.

use super::IkeSa;
use crate::output::Path;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

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

impl IkeSa {
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
