//! `load-pool`: a pool of virtual addresses and the attributes sent with them.

use super::addr;
use super::connection::check_name;
use super::fields::Fields;
use super::keys::POOL;
use super::refusal::{Refusal, Why, expected};
use crate::message::{Element, Message};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ike::config::Pool;
use testudo_ipsec::selector::AddrRange;

const EXPECTED: &str = "a subnet such as 10.3.0.0/24 or a range such as 10.3.0.10-10.3.0.99";

/// Decodes the argument of `load-pool`: one section, named like the pool.
pub fn pool(message: &Message) -> Result<Pool, Refusal> {
    let [Element::Section(name, content)] = message.elements() else {
        return Err(Refusal::Missing { path: "pools".to_owned(), expected: "exactly one pool" });
    };
    check_name(name, "pools")?;
    let mut section = Fields::new(&format!("pools.{name}"), content)?.known(POOL)?;
    let missing = Refusal::Missing { path: section.path("addrs"), expected: EXPECTED };
    let (base, addrs) = section.parsed("addrs", addresses)?.ok_or(missing)?;
    let mut subnets = Vec::new();
    for key in ["subnet", "split_include"] {
        subnets.extend(section.list(key, subnet)?.unwrap_or_default());
    }
    let dns = section.list("dns", |text| text.parse().map_err(|_| expected("an address")))?;
    section.finish_with(POOL)?;
    Ok(Pool { name: name.clone(), base, addrs, dns: dns.unwrap_or_default(), subnets })
}

/// The first address of the pool, and the range that is assigned: all of a subnet but its first and
/// last address, as in strongSwan, unless it has no others.
fn addresses(text: &str) -> Result<(IpAddr, AddrRange), Why> {
    let whole = addr::range(text).ok_or_else(|| expected(EXPECTED))?;
    let base = whole.start();
    let inner = match (whole.start(), whole.end()) {
        (IpAddr::V4(first), IpAddr::V4(last)) if text.contains('/') => {
            let (first, last) = (first.to_bits().checked_add(1), last.to_bits().checked_sub(1));
            let range = |first, last| AddrRange::new(IpAddr::V4(first), IpAddr::V4(last));
            first.zip(last).and_then(|(f, l)| range(Ipv4Addr::from_bits(f), Ipv4Addr::from_bits(l)))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if text.contains('/') => {
            let (first, last) = (first.to_bits().checked_add(1), last.to_bits().checked_sub(1));
            let range = |first, last| AddrRange::new(IpAddr::V6(first), IpAddr::V6(last));
            first.zip(last).and_then(|(f, l)| range(Ipv6Addr::from_bits(f), Ipv6Addr::from_bits(l)))
        }
        _ => None,
    };
    Ok((base, inner.unwrap_or(whole)))
}

/// A subnet by its first address and prefix length.
fn subnet(text: &str) -> Result<(IpAddr, u8), Why> {
    let why = || expected("a subnet such as 10.1.0.0/16");
    let range = addr::range(text).filter(|_| !text.contains('-')).ok_or_else(why)?;
    let host = if range.start().is_ipv4() { 32 } else { 128 };
    let length = text.split_once('/').map_or(Ok(host), |(_, length)| length.parse().map_err(|_| why()))?;
    Ok((range.start(), length))
}
