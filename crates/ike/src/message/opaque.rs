//! Payloads whose content is not looked into here.

use super::number::PayloadType;
use serde::{Deserialize, Serialize};

/// Vendor ID payload (RFC 7296 §3.12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorId(pub Vec<u8>);

/// A payload without a type of its own here. It was not critical, or it is of RFC 7296 (CERT,
/// CERTREQ, EAP), where the critical bit says nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPayload {
    /// Its type.
    pub kind: PayloadType,
    /// What follows the generic header.
    pub body: Vec<u8>,
}
