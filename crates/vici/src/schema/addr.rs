//! Addresses: single, subnet, range, name, any.

use super::refusal::{Why, expected};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ike::config::HostName;
use testudo_ipsec::selector::AddrRange;

const EXPECTED: &str = "an address, a subnet, a range, a DNS name or %any";
/// A name has 253 octets at most, and its labels 63 (RFC 1035 §2.3.4).
const MAX_NAME_OCTETS: usize = 253;
const MAX_LABEL_OCTETS: usize = 63;
const ALL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// The addresses of `local_addrs` or `remote_addrs`: ranges and names. An empty result means any
/// address, and so does `%any` alone.
pub(super) fn endpoints(items: Option<Vec<Endpoint>>) -> (Vec<AddrRange>, Vec<HostName>) {
    let items = items.unwrap_or_default();
    let (mut ranges, mut names) = (Vec::new(), Vec::new());
    if items.iter().all(|item| *item == Endpoint::Any) {
        return (ranges, names);
    }
    for item in items {
        match item {
            Endpoint::Any => ranges.extend(ALL.into_iter().filter_map(range)),
            Endpoint::Range(range) => ranges.push(range),
            Endpoint::Name(name) => names.push(HostName { name, place: ranges.len(), addrs: Vec::new() }),
        }
    }
    (ranges, names)
}

/// One item of `local_addrs` or `remote_addrs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Any,
    Range(AddrRange),
    Name(String),
}

/// Parses one item of `local_addrs` or `remote_addrs`.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, Why> {
    let subnet = match text {
        "%any" => return Ok(Endpoint::Any),
        "%any4" | "0.0.0.0" => "0.0.0.0/0",
        "%any6" | "::" => "::/0",
        other => other,
    };
    let named = || is_name(text).then(|| Endpoint::Name(text.to_owned()));
    range(subnet).map(Endpoint::Range).or_else(named).ok_or_else(|| expected(EXPECTED))
}

/// True for a DNS name that may be resolved. A text of digits and dots alone is a misspelt address.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=MAX_LABEL_OCTETS).contains(&label.len()) && label.chars().all(fits) && !label.starts_with('-')
    };
    let last = text.strip_suffix('.').unwrap_or(text);
    let named = last.rsplit('.').next().is_some_and(|top| top.chars().any(|c| c.is_ascii_alphabetic()));
    text.len() <= MAX_NAME_OCTETS && named && last.split('.').all(label)
}

/// `192.0.2.1`, `192.0.2.0/24`, `192.0.2.1-192.0.2.9`, or the same for IPv6. Host bits of a subnet
/// are cleared, as in strongSwan.
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

/// A subnet or an address as the argument of a command. Host bits are refused, because the operator
/// may mean another subnet.
pub(crate) fn prefix(text: &str) -> Result<AddrRange, Why> {
    let address = text.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    let found = range(text).filter(|range| Some(range.start()) == address);
    found.ok_or_else(|| {
        expected("an address or a subnet such as 10.2.0.0/16, with no bits set after the prefix length")
    })
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
