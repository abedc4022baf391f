//! What the data plane knows of a Child SA, beside what `testudo_ike` tells.

use std::time::Duration;

/// Traffic of a Child SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// What came in and was accepted.
    pub inbound: Usage,
    /// What went out.
    pub outbound: Usage,
}

/// Traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Octets of inner packets.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time since the last packet, if there was one.
    pub idle: Option<Duration>,
}

/// What `list-certs` shows.
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
    /// A list of revoked certificates, in DER.
    Crl(Vec<u8>),
}
