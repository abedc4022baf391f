//! SPIs whose meaning depends on the protocol.

use super::header::IkeSpi;
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;

/// The SPI field of a proposal or notify, by its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaSpi {
    /// No octets: the IKE SA that is being set up, whose SPIs are in the header.
    None,
    /// Four octets: a Child SA.
    Child(Spi),
    /// Eight octets: a new IKE SA (RFC 7296 §1.3.2).
    Ike(IkeSpi),
    /// Any other length: of no known protocol.
    Other(Vec<u8>),
}

impl SaSpi {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            Self::None
        } else if let Ok(spi) = bytes.try_into() {
            Self::Child(Spi(u32::from_be_bytes(spi)))
        } else if let Ok(spi) = bytes.try_into() {
            Self::Ike(IkeSpi(u64::from_be_bytes(spi)))
        } else {
            Self::Other(bytes.to_vec())
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Child(spi) => spi.0.to_be_bytes().to_vec(),
            Self::Ike(spi) => spi.to_bytes().to_vec(),
            Self::Other(bytes) => bytes.clone(),
        }
    }
}
