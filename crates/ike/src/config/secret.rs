//! Shared secrets.

use super::Identity;
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The use of a shared secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretKind {
    /// `secrets.ike<suffix>`: authentication.
    #[default]
    Ike,
    /// `secrets.ppk<suffix>`: a post-quantum pre-shared key, whose owners are its PPK_IDs (RFC
    /// 8784).
    Ppk,
}

/// A `secrets.ike<suffix>` or `secrets.ppk<suffix>` section: a pre-shared key and the identities
/// that own it (none: any).
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct SharedSecret {
    /// Unique name of the secret, as given by VICI.
    pub name: String,
    /// Its use.
    #[zeroize(skip)]
    pub kind: SecretKind,
    /// Identities of the owners.
    #[zeroize(skip)]
    pub owners: Vec<Identity>,
    /// The key itself.
    pub secret: Vec<u8>,
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("owners", &self.owners)
            .finish_non_exhaustive()
    }
}
