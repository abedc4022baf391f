//! The state of a Child SA.

use crate::output::{ChildSaId, Time};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use testudo_ipsec::sa::ChildSaParams;

/// A Child SA that the data plane has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSa {
    pub(crate) id: ChildSaId,
    /// `children.<name>`.
    pub(crate) name: String,
    pub(crate) reqid: u32,
    pub(crate) params: ChildSaParams,
    pub(crate) installed: Time,
    pub(crate) phase: ChildPhase,
    /// Where its authentic packets come from, once that was another place than where ours go.
    pub(crate) source: Option<SocketAddr>,
}

impl ChildSa {
    /// What goes out finds the place from which packets come in.
    pub(crate) fn is_answerable(&self) -> bool {
        self.source.is_none_or(|source| source == self.params.remote)
    }
}

/// The stages of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChildPhase {
    Installed,
    /// Our delete waits or is under way.
    Deleting,
}
