//! The certificate on which a peer's authentication rests.

use super::digest;
use crate::cert::Certificate;
use serde::{Deserialize, Serialize};

/// A CA, or a certificate that is trusted itself: its SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Anchor([u8; 32]);

impl Anchor {
    pub(crate) fn of(certificate: &Certificate) -> Self {
        Self(digest(certificate.to_der()))
    }
}
