//! Reauthentication (RFC 7296 §2.8.3): a new IKE SA, set up from scratch, replaces another.

use crate::message::IkeSpi;
use serde::{Deserialize, Serialize};

/// The part of an IKE SA in it. Only the side that begins knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reauth {
    /// Another is being set up in its place.
    Begun,
    /// Another has replaced it, and this one is deleted when no packet can be under way through its
    /// Child SAs.
    Done,
    /// It replaces the one with this SPI of ours.
    Of(IkeSpi),
    /// The same, and it has its Child SAs; a pending request shows that to the peer.
    Shown(IkeSpi),
}
