//! Identification payloads (RFC 7296 §3.5).

use super::error::ParseError;
use super::number::IdType;
use super::reader::Reader;
use crate::cert::DistinguishedName;
use crate::config::Identity;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The claimed identity, as sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdPayload {
    kind: IdType,
    /// Ignored, but kept as received, because AUTH covers it.
    reserved: [u8; 3],
    data: Vec<u8>,
}

impl IdPayload {
    /// A payload to send.
    pub fn new(kind: IdType, data: Vec<u8>) -> Self {
        Self { kind, reserved: [0; 3], data }
    }

    /// The type of [`Self::data`].
    pub fn kind(&self) -> IdType {
        self.kind
    }

    /// The identity.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The payload without its generic header: the RestOfInitIDPayload and RestOfRespIDPayload of
    /// RFC 7296 §2.15.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.data.len().saturating_add(4));
        self.write(&mut body);
        body
    }

    /// The identity in the form of the configuration. `None` if there is none for its type, or the
    /// data does not fit the type.
    pub fn identity(&self) -> Option<Identity> {
        let text = || String::from_utf8(self.data.clone()).ok();
        match self.kind {
            IdType::Ipv4Addr => {
                <[u8; 4]>::try_from(self.data.as_slice()).ok().map(|a| Identity::Addr(IpAddr::from(a)))
            }
            IdType::Ipv6Addr => {
                <[u8; 16]>::try_from(self.data.as_slice()).ok().map(|a| Identity::Addr(IpAddr::from(a)))
            }
            IdType::Fqdn => text().map(Identity::Fqdn),
            IdType::Rfc822Addr => text().map(Identity::Email),
            IdType::KeyId => Some(Identity::KeyId(self.data.clone())),
            IdType::DerAsn1Dn => DistinguishedName::from_der(&self.data).ok().map(Identity::Dn),
            IdType::DerAsn1Gn | IdType::Unknown(_) => None,
        }
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let kind = IdType::from(reader.u8("ID type")?);
        let reserved = reader.array("reserved octets of ID")?;
        Ok(Self { kind, reserved, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.kind));
        out.extend_from_slice(&self.reserved);
        out.extend_from_slice(&self.data);
    }
}

impl From<&Identity> for IdPayload {
    fn from(identity: &Identity) -> Self {
        match identity {
            Identity::Addr(IpAddr::V4(addr)) => Self::new(IdType::Ipv4Addr, addr.octets().to_vec()),
            Identity::Addr(IpAddr::V6(addr)) => Self::new(IdType::Ipv6Addr, addr.octets().to_vec()),
            Identity::Fqdn(name) => Self::new(IdType::Fqdn, name.as_bytes().to_vec()),
            Identity::Email(address) => Self::new(IdType::Rfc822Addr, address.as_bytes().to_vec()),
            Identity::KeyId(id) => Self::new(IdType::KeyId, id.clone()),
            Identity::Dn(name) => Self::new(IdType::DerAsn1Dn, name.to_der().to_vec()),
        }
    }
}
