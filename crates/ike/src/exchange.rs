//! The exchanges of IKEv2: the meaning of each one's messages, on both sides.
//!
//! All code here works on one IKE SA that was taken out of the endpoint's table. It changes the SA
//! and leaves effects for the endpoint; it never searches for SAs, keeps time or counts
//! transmissions.

pub(crate) mod auth;
pub(crate) mod change;
pub(crate) mod child;
pub(crate) mod childless;
pub(crate) mod configuration;
pub(crate) mod counter_sync;
pub(crate) mod create_child;
pub(crate) mod describe;
mod error;
mod follow;
pub(crate) mod fragments;
mod informational;
pub(crate) mod init;
pub(crate) mod intermediate;
mod lifecycle;
mod mode;
pub(crate) mod narrow;
mod nat;
pub(crate) mod reauth;
pub(crate) mod receive;
mod refusal;
mod renewal;
pub(crate) mod send;
pub(crate) mod session;
mod timers;
pub(crate) mod unique;

pub(crate) use auth::local_identity;
pub(crate) use configuration::is_host;
pub(crate) use counter_sync::{WindowPlace, place};
pub(crate) use init::{InitRequest, InitResponder, Reply, certificate_request, key_request, nonce_fits};
pub(crate) use nat::float;

use crate::message::EncodeError;
use crate::output::Reason;
use crate::suite::SuiteError;

impl From<SuiteError> for Reason {
    fn from(error: SuiteError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<EncodeError> for Reason {
    fn from(error: EncodeError) -> Self {
        Self::Refused(error.to_string())
    }
}
