//! Secret octets.

use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A key or a shared secret: wiped when dropped, compared in constant time, hidden from `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes the octets.
    pub fn new(octets: Vec<u8>) -> Self {
        if octets.capacity() == octets.len() {
            return Self(octets.into_boxed_slice());
        }
        // Shrinking may move the octets, and leave them behind unwiped.
        Self(Zeroizing::new(octets).as_slice().into())
    }

    /// A copy of octets that the caller keeps or wipes.
    pub fn from(octets: &[u8]) -> Self {
        Self(octets.into())
    }

    /// The octets, for a computation.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many octets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is no octet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}
