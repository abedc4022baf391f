//! The data plane's knowledge of a Child SA, besides that of `testudo_ike`.

use std::time::Duration;

/// Traffic of a Child SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// Inbound packets that were accepted.
    pub inbound: Usage,
    /// Outbound packets.
    pub outbound: Usage,
}

/// Traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Octets of inner packets.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time since the last packet; `None` without one.
    pub idle: Option<Duration>,
}

/// An entry of `list-certs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedCert {
    /// A certificate.
    Certificate {
        /// The certificate.
        certificate: testudo_ike::cert::Certificate,
        /// Its private key is loaded.
        has_private_key: bool,
    },
    /// A public key without a certificate.
    PublicKey {
        /// The key.
        key: testudo_ike::cert::RawKey,
        /// Its private key is loaded.
        has_private_key: bool,
    },
    /// A CRL, in DER.
    Crl(Vec<u8>),
}
