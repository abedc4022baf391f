//! Addresses: single, subnet, range, any.

use super::refusal::{Why, expected};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ipsec::selector::AddrRange;

const EXPECTED: &str = "an address, a subnet, a range or %any";
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// `local_addrs`, `remote_addrs`. An empty result means any address: so does `%any` alone.
pub(super) fn endpoints(items: Option<Vec<Endpoint>>) -> Vec<AddrRange> {
    let items = items.unwrap_or_default();
    if items.iter().all(|item| *item == Endpoint::Any) {
        return Vec::new();
    }
    let ranges = items.into_iter().flat_map(|item| match item {
        Endpoint::Any => ALL.into_iter().filter_map(range).collect(),
        Endpoint::Range(range) => vec![range],
    });
    ranges.collect()
}

/// One item of `local_addrs` or `remote_addrs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Any,
    Range(AddrRange),
}

/// Parses one item of `local_addrs` or `remote_addrs`.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, Why> {
    let subnet = match text {
        "%any" => return Ok(Endpoint::Any),
        "%any4" | "0.0.0.0" => "0.0.0.0/0",
        "%any6" | "::" => "::/0",
        other => other,
    };
    range(subnet).map(Endpoint::Range).ok_or_else(|| expected(hint(text)))
}

fn hint(text: &str) -> &'static str {
    let label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.chars().all(label) && text.chars().any(|c| c.is_ascii_alphabetic()) {
        "an address, a subnet, a range or %any (names are not looked up in DNS)"
    } else {
        EXPECTED
    }
}

/// `192.0.2.1`, `192.0.2.0/24`, `192.0.2.1-192.0.2.9`, or the same of IPv6. Host bits of a subnet are cleared, as
/// strongSwan does.
pub(super) fn range(text: &str) -> Option<AddrRange> {
    if let Some((first, last)) = text.split_once('-') {
        return AddrRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?);
    }
    let Some((address, length)) = text.split_once('/') else {
        let address = text.parse().ok()?;
        return AddrRange::new(address, address);
    };
    if length.is_empty() || !length.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    subnet(address.parse().ok()?, length.parse().ok()?)
}

/// A subnet or an address that a command is about. Bits behind the length are refused: who writes
/// some may mean another subnet.
pub(crate) fn prefix(text: &str) -> Result<AddrRange, Why> {
    let address = text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    let found = range(text).filter(|range| Some(range.start()) == address);
    found
        .ok_or_else(|| expected("an address or a subnet such as 10.2.0.0/16, with no bits behind its length"))
}

fn subnet(address: IpAddr, length: u32) -> Option<AddrRange> {
    match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            let (first, last) = (Ipv4Addr::from_bits(bits & !host), Ipv4Addr::from_bits(bits | host));
            if length <= 32 { AddrRange::new(first.into(), last.into()) } else { None }
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            let bits = address.to_bits();
            let (first, last) = (Ipv6Addr::from_bits(bits & !host), Ipv6Addr::from_bits(bits | host));
            if length <= 128 { AddrRange::new(first.into(), last.into()) } else { None }
        }
    }
}
