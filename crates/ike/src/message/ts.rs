//! Traffic Selector payloads (RFC 7296 §3.13).

use super::error::{EncodeError, ParseError};
use super::reader::{Reader, bad_value};
use super::writer::{narrow_u8, with_length};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// The traffic of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TsPayload {
    /// Selectors over IPv4 and IPv6 ranges, in order.
    pub selectors: Vec<TrafficSelector>,
    /// Selectors of unknown types; a responder narrows them away.
    pub unknown: Vec<UnknownSelector>,
}

/// A traffic selector of a type that we do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownSelector {
    /// TS type.
    pub kind: u8,
    /// IP protocol, where the type has one.
    pub protocol: u8,
    /// The octets after the length.
    pub body: Vec<u8>,
}

const TS_IPV4_ADDR_RANGE: u8 = 7;
const TS_IPV6_ADDR_RANGE: u8 = 8;

impl TsPayload {
    /// A payload of known selectors.
    pub fn new(selectors: Vec<TrafficSelector>) -> Self {
        Self { selectors, unknown: Vec::new() }
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let place = reader.place();
        let stated = reader.u8("number of traffic selectors")?;
        reader.take(3, "reserved octets of TS")?;
        let mut payload = Self::new(Vec::new());
        for _ in 0..stated {
            payload.read_selector(&mut reader)?;
        }
        if stated == 0 {
            return Err(bad_value(place, "number of traffic selectors", stated, "at least 1"));
        }
        reader.end("the last traffic selector")?;
        Ok(payload)
    }

    fn read_selector(&mut self, reader: &mut Reader<'_>) -> Result<(), ParseError> {
        let place = reader.place();
        let kind = reader.u8("TS type")?;
        let protocol = reader.u8("IP protocol of a selector")?;
        let length = reader.u16("selector length")?;
        let Some(body) = usize::from(length).checked_sub(4) else {
            return Err(bad_value(place, "selector length", length, "at least 4"));
        };
        let mut body = reader.sub(body, "traffic selector")?;
        let addr = match kind {
            TS_IPV4_ADDR_RANGE => read_ipv4,
            TS_IPV6_ADDR_RANGE => read_ipv6,
            _ => {
                self.unknown.push(UnknownSelector { kind, protocol, body: body.rest().to_vec() });
                return Ok(());
            }
        };
        let port_start = body.u16("first port")?;
        let port_end = body.u16("last port")?;
        // Only OPAQUE has its ports in the wrong order (RFC 7296 §3.13.1).
        if port_start > port_end && (port_start, port_end) != (u16::MAX, 0) {
            return Err(bad_value(place, "last port", port_end, "not below the first, or 65535 to 0"));
        }
        let (start, end) = (addr(&mut body)?, addr(&mut body)?);
        body.end("the addresses of a selector")?;
        let Some(addrs) = AddrRange::new(start, end) else {
            return Err(ParseError::AddressRange { place });
        };
        self.selectors.push(TrafficSelector { addrs, protocol, port_start, port_end });
        Ok(())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let count = self.selectors.len().saturating_add(self.unknown.len());
        out.extend_from_slice(&[narrow_u8("number of traffic selectors", count)?, 0, 0, 0]);
        for selector in &self.selectors {
            write_selector(selector, out)?;
        }
        for selector in &self.unknown {
            with_length(out, [selector.kind, selector.protocol], "selector length", |out| {
                out.extend_from_slice(&selector.body);
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn read_ipv4(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
    reader.array::<4>("IPv4 address").map(IpAddr::from)
}

fn read_ipv6(reader: &mut Reader<'_>) -> Result<IpAddr, ParseError> {
    reader.array::<16>("IPv6 address").map(IpAddr::from)
}

fn write_selector(selector: &TrafficSelector, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let kind = if selector.addrs.start().is_ipv4() { TS_IPV4_ADDR_RANGE } else { TS_IPV6_ADDR_RANGE };
    with_length(out, [kind, selector.protocol], "selector length", |out| {
        out.extend_from_slice(&selector.port_start.to_be_bytes());
        out.extend_from_slice(&selector.port_end.to_be_bytes());
        for addr in [selector.addrs.start(), selector.addrs.end()] {
            match addr {
                IpAddr::V4(addr) => out.extend_from_slice(&addr.octets()),
                IpAddr::V6(addr) => out.extend_from_slice(&addr.octets()),
            }
        }
        Ok(())
    })
}
