//! Reauthentication (RFC 7296 §2.8.3): a new IKE SA, set up from scratch, takes the place of
//! another.

use crate::message::IkeSpi;
use serde::{Deserialize, Serialize};

/// The part of an IKE SA in it. Only the side that begins knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reauth {
    /// Another is being set up in its place.
    Begun,
    /// Another has its place, and this one is deleted when nothing can be under way through its
    /// Child SAs.
    Done,
    /// It is to take the place of the one for which we chose that SPI.
    Of(IkeSpi),
    /// The same, and it has its Child SAs; a request under way shows the peer that it does.
    Shown(IkeSpi),
}
