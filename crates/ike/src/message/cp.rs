//! Configuration payload (RFC 7296 §3.15): requests for, and assignments of, addresses and servers
//! of the peer's network.

use super::error::{EncodeError, ParseError};
use super::number::{CfgAttributeType, CfgType};
use super::reader::{Reader, bad_value};
use super::writer::narrow_u16;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bound on the attributes of a payload. Honest ones have a dozen; the bound limits what a datagram
/// of empty attributes can make us allocate.
const MAX_ATTRIBUTES: usize = 256;
/// The first bit of an attribute's type is reserved, and ignored (RFC 7296 §3.15.1).
const RESERVED: u16 = 0x8000;
/// A virtual address is one address, whatever network it lies in.
const HOST_PREFIX: u8 = 128;

/// A set of attributes, and what to do with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Request, reply, ...
    pub kind: CfgType,
    /// In order.
    pub attributes: Vec<CfgAttribute>,
}

/// An attribute as in the payload. Without a value it requests one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CfgAttribute {
    /// Type of the value.
    pub kind: CfgAttributeType,
    /// The value, of any length: one that does not fit the type must be ignored (RFC 7296 §3.15.1).
    pub value: Vec<u8>,
}

impl Configuration {
    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let kind = CfgType::from(reader.u8("CFG type")?);
        reader.take(3, "reserved octets of CP")?;
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            let place = reader.place();
            if attributes.len() >= MAX_ATTRIBUTES {
                return Err(bad_value(
                    place,
                    "number of attributes",
                    attributes.len() as u64 + 1,
                    "at most 256",
                ));
            }
            let kind = CfgAttributeType::from(reader.u16("attribute type")? & !RESERVED);
            let length = reader.u16("attribute length")?;
            let value = reader.take(usize::from(length), "attribute value")?.to_vec();
            attributes.push(CfgAttribute { kind, value });
        }
        Ok(Self { kind, attributes })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&[u8::from(self.kind), 0, 0, 0]);
        for CfgAttribute { kind, value } in &self.attributes {
            out.extend_from_slice(&(u16::from(*kind) & !RESERVED).to_be_bytes());
            out.extend_from_slice(&narrow_u16("length of an attribute", value.len())?.to_be_bytes());
            out.extend_from_slice(value);
        }
        Ok(())
    }

    /// The inner addresses, in order. In a request an unspecified address asks for any.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.attributes.iter().filter_map(CfgAttribute::address)
    }

    /// The name servers in it.
    pub fn name_servers(&self) -> impl Iterator<Item = IpAddr> {
        self.attributes.iter().filter_map(CfgAttribute::name_server)
    }
}

impl CfgAttribute {
    /// An attribute that requests a value.
    pub fn request(kind: CfgAttributeType) -> Self {
        Self { kind, value: Vec::new() }
    }

    /// An inner address; an unspecified one asks for any.
    pub fn inner_address(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) if addr.is_unspecified() => Self::request(CfgAttributeType::Ip4Address),
            IpAddr::V4(addr) => Self { kind: CfgAttributeType::Ip4Address, value: addr.octets().to_vec() },
            IpAddr::V6(addr) if addr.is_unspecified() => Self::request(CfgAttributeType::Ip6Address),
            IpAddr::V6(addr) => {
                let value = [&addr.octets()[..], &[HOST_PREFIX]].concat();
                Self { kind: CfgAttributeType::Ip6Address, value }
            }
        }
    }

    /// A name server of the inner network.
    pub fn dns(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self { kind: CfgAttributeType::Ip4Dns, value: addr.octets().to_vec() },
            IpAddr::V6(addr) => Self { kind: CfgAttributeType::Ip6Dns, value: addr.octets().to_vec() },
        }
    }

    /// A subnet behind the sender, by its first address and prefix length.
    pub fn subnet(first: IpAddr, length: u8) -> Self {
        match first {
            IpAddr::V4(first) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or_default();
                let value = [first.octets(), mask.to_be_bytes()].concat();
                Self { kind: CfgAttributeType::Ip4Subnet, value }
            }
            IpAddr::V6(first) => {
                let value = [&first.octets()[..], &[length]].concat();
                Self { kind: CfgAttributeType::Ip6Subnet, value }
            }
        }
    }

    /// The inner address of the attribute. A prefix length follows an IPv6 address, but some
    /// senders leave it out.
    fn address(&self) -> Option<IpAddr> {
        match (self.kind, self.value.as_slice()) {
            (CfgAttributeType::Ip4Address, []) => Some(Ipv4Addr::UNSPECIFIED.into()),
            (CfgAttributeType::Ip6Address, []) => Some(Ipv6Addr::UNSPECIFIED.into()),
            (CfgAttributeType::Ip4Address, value) => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
            (CfgAttributeType::Ip6Address, value) if value.len() <= 17 => {
                value.first_chunk::<16>().copied().map(IpAddr::from)
            }
            _ => None,
        }
    }

    fn name_server(&self) -> Option<IpAddr> {
        match self.kind {
            CfgAttributeType::Ip4Dns => <[u8; 4]>::try_from(self.value.as_slice()).ok().map(IpAddr::from),
            CfgAttributeType::Ip6Dns => <[u8; 16]>::try_from(self.value.as_slice()).ok().map(IpAddr::from),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
