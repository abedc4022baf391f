//! The choice between the two libraries.

use crate::error::CryptoError;
use crate::separate::{Cipher, SeparateAlgorithm};
use std::fmt;
use std::str::FromStr;

/// A library that implements every [`AeadAlgorithm`](crate::AeadAlgorithm) and every
/// [`SeparateAlgorithm`](crate::separate::SeparateAlgorithm).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// intel-ipsec-mb: x86-64 with AES-NI, if the build found it.
    IpsecMb,
    /// AWS-LC through aws-lc-rs: everywhere.
    AwsLc,
}

impl Library {
    /// Both, the preferred one first.
    pub const ALL: [Self; 2] = [Self::IpsecMb, Self::AwsLc];

    /// The fastest library available in this process.
    pub fn detect() -> Self {
        if Self::IpsecMb.available().is_ok() { Self::IpsecMb } else { Self::AwsLc }
    }

    /// The name in configuration and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::IpsecMb => "ipsec-mb",
            Self::AwsLc => "aws-lc",
        }
    }

    /// `Ok` if this process can use the library, otherwise the reason why it cannot.
    pub fn available(self) -> Result<(), CryptoError> {
        match self {
            #[cfg(ipsec_mb)]
            Self::IpsecMb => crate::ipsec_mb::functions().map(|_| ()),
            #[cfg(not(ipsec_mb))]
            Self::IpsecMb => Err(CryptoError::Unavailable { library: self, reason: "built without it" }),
            Self::AwsLc => Ok(()),
        }
    }

    /// The faster available library for these algorithms, if this one is preferred.
    ///
    /// ipsec-mb is slower only for 3DES, on processors without AVX-512: a tunnel carried some 3
    /// Mb/s. The other library looks into tables, so its timing may reveal the key to a program
    /// that shares the processor's cache; it is used only with `legacy = true`.
    #[must_use]
    pub fn suited(self, algorithm: SeparateAlgorithm) -> Self {
        match self {
            #[cfg(ipsec_mb)]
            Self::IpsecMb
                if algorithm.cipher == Cipher::TripleDesCbc
                    && !crate::ipsec_mb::functions().is_ok_and(|f| f.many_des()) =>
            {
                Self::AwsLc
            }
            _ => self,
        }
    }

    /// The version that the library reports, if it does.
    pub fn version(self) -> Option<&'static str> {
        match self {
            #[cfg(ipsec_mb)]
            Self::IpsecMb => crate::ipsec_mb::functions().ok().and_then(|f| f.version()),
            #[cfg(not(ipsec_mb))]
            Self::IpsecMb => None,
            Self::AwsLc => None,
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Library {
    type Err = CryptoError;

    fn from_str(name: &str) -> Result<Self, CryptoError> {
        Self::ALL
            .into_iter()
            .find(|library| library.name() == name)
            .ok_or_else(|| CryptoError::UnknownLibrary { found: name.to_owned() })
    }
}
