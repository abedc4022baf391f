//! Certificates: X.509 (RFC 5280) as far as IKE needs it (RFC 4945), keys with and without one (RFC
//! 7670), and the signatures of RFC 7427.
//!
//! Sans-IO: files and the time come from the host. Certificates from a peer are hostile: they are
//! decoded within bounds, and not trusted before a chain leads to a CA. Signing and verifying
//! ([`PrivateKey::sign`], [`PublicKey::verify`], [`Trust::verify`]) depend only on their arguments,
//! so that any thread can do them.

mod certificate;
mod chain;
mod crl;
mod dn;
mod error;
mod extensions;
mod pem;
mod private;
mod public;
mod raw;
mod scheme;
mod store;

pub use certificate::{Certificate, MAX_CERTIFICATE};
pub use chain::{Spent, Trust};
pub use crl::Crl;
pub use dn::DistinguishedName;
pub use error::{CertError, ChainError, OutOfDate};
pub use private::PrivateKey;
pub use public::{KeyKind, PublicKey};
pub use raw::{MAX_RAW_KEY, RawKey};
pub use scheme::{Hash, Hashes, Schemes, SignatureScheme};
pub use store::Credentials;
pub(crate) use store::{Candidate, Own, Shown};
