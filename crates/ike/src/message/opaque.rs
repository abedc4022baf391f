//! Payloads whose content is not decoded here.

use super::number::PayloadType;
use serde::{Deserialize, Serialize};

/// Vendor ID payload (RFC 7296 §3.12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorId(pub Vec<u8>);

/// A payload without a type here. It was not critical, or it is of RFC 7296 (CERT, CERTREQ, EAP),
/// where the critical bit is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPayload {
    /// Its type.
    pub kind: PayloadType,
    /// The octets after the generic header.
    pub body: Vec<u8>,
}
