//! How the responder is configured for the swarm.

use serde::Serialize;
use std::fmt;

/// What peers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Shape {
    /// As for remote access.
    #[serde(rename = "one connection for all")]
    OneForAll,
    /// As between sites: what has to be found for each peer is one of very many.
    #[serde(rename = "a connection and a secret each")]
    Each,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneForAll => "one connection for all",
            Self::Each => "a connection and a secret each",
        })
    }
}
