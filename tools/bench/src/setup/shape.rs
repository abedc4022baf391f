//! The shapes of the responder's configuration.

use serde::Serialize;
use std::fmt;

/// Whether peers share a connection and a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Shape {
    /// Yes, as for remote access.
    #[serde(rename = "one connection for all")]
    OneForAll,
    /// No, as between sites: each lookup is among very many.
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
