//! The variables of updown scripts, as strongSwan sets them: `PLUTO_VERB` and the rest, which its
//! own `_updown` explains.

use super::Risen;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_vici::render::identity;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// One run of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// What follows `up-` and `down-` in PLUTO_VERB.
    pub(super) verb: &'static str,
    /// All variables but PLUTO_VERB.
    pub(super) variables: Vec<(String, String)>,
}

/// A run for each pair of selectors that one packet can match.
pub(super) fn runs(risen: Risen<'_>, host_access: bool) -> Vec<Run> {
    let child = risen.child;
    let pairs =
        child.local_ts.iter().flat_map(|local| child.remote_ts.iter().map(move |remote| (local, remote)));
    let possible = pairs.filter(|(local, remote)| {
        let same_family = local.addrs.start().is_ipv4() == remote.addrs.start().is_ipv4();
        let protocols = [local.protocol, remote.protocol];
        same_family && (protocols.contains(&0) || local.protocol == remote.protocol)
    });
    possible.map(|(local, remote)| run(risen, local, remote, host_access)).collect()
}

fn run(risen: Risen<'_>, local: &TrafficSelector, remote: &TrafficSelector, host_access: bool) -> Run {
    let Risen { ike, child, .. } = risen;
    let me = ike.local.ip();
    let is_host = (local.addrs.start(), local.addrs.end()) == (me, me);
    let verb = match (is_host, local.addrs.start()) {
        (true, IpAddr::V4(_)) => "host",
        (true, IpAddr::V6(_)) => "host-v6",
        (false, IpAddr::V4(_)) => "client",
        (false, IpAddr::V6(_)) => "client-v6",
    };
    let id = |id: &Option<_>| id.as_ref().map_or_else(|| "%any".to_owned(), identity);
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| variables.push((name.to_owned(), plain(&value)));
    add("PLUTO_VERSION", "1.1".to_owned());
    add("PLUTO_CONNECTION", child.name.clone());
    add("PLUTO_INTERFACE", risen.interface.unwrap_or("unknown").to_owned());
    add("PLUTO_REQID", child.reqid.to_string());
    add("PLUTO_PROTO", if child.ah { "ah" } else { "esp" }.to_owned());
    add("PLUTO_UNIQUEID", ike.id.0.to_string());
    add("PLUTO_ME", me.to_string());
    add("PLUTO_MY_ID", id(&ike.local_id));
    add("PLUTO_MY_CLIENT", subnet(&local.addrs));
    add("PLUTO_MY_PORT", port(local, remote, Side::Local));
    add("PLUTO_MY_PROTOCOL", local.protocol.to_string());
    add("PLUTO_PEER", ike.remote.ip().to_string());
    add("PLUTO_PEER_ID", id(&ike.remote_id));
    add("PLUTO_PEER_CLIENT", subnet(&remote.addrs));
    add("PLUTO_PEER_PORT", port(local, remote, Side::Remote));
    add("PLUTO_PEER_PROTOCOL", remote.protocol.to_string());
    virtual_addresses("MY", &ike.local_vips, &mut add);
    virtual_addresses("PEER", &ike.remote_vips, &mut add);
    if ike.nat.any() {
        add("PLUTO_UDP_ENC", ike.remote.port().to_string());
    }
    if host_access {
        add("PLUTO_HOST_ACCESS", "1".to_owned());
    }
    Run { verb, variables }
}

/// An identity is the peer's choice, and a variable can hold no NUL.
fn plain(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The first address stands once more under strongSwan's old name.
fn virtual_addresses(whose: &str, addresses: &[IpAddr], add: &mut impl FnMut(&str, String)) {
    if let Some(first) = addresses.first() {
        add(&format!("PLUTO_{whose}_SOURCEIP"), first.to_string());
    }
    for (family, wanted) in [(4, true), (6, false)] {
        let of_family = addresses.iter().filter(|address| address.is_ipv4() == wanted);
        for (number, address) in (1..).zip(of_family) {
            add(&format!("PLUTO_{whose}_SOURCEIP{family}_{number}"), address.to_string());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Local,
    Remote,
}

/// A port, or `first:last`. For ICMP our side shows the type and the peer's side the code,
/// whichever selector has them.
fn port(local: &TrafficSelector, remote: &TrafficSelector, side: Side) -> String {
    if [ICMP, ICMPV6].contains(&local.protocol.max(remote.protocol)) {
        let [kind, code] = local.port_start.max(remote.port_start).to_be_bytes();
        return if side == Side::Local { kind } else { code }.to_string();
    }
    let selector = if side == Side::Local { local } else { remote };
    let (first, last) = (selector.port_start, selector.port_end);
    if first == last || (first, last) == (0, u16::MAX) {
        first.to_string()
    } else {
        format!("{first}:{last}")
    }
}

/// The smallest subnet that holds the addresses.
fn subnet(range: &AddrRange) -> String {
    match (range.start(), range.end()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let length = (first.to_bits() ^ last.to_bits()).leading_zeros();
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            format!("{}/{length}", Ipv4Addr::from_bits(first.to_bits() & !host))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let length = (first.to_bits() ^ last.to_bits()).leading_zeros();
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            format!("{}/{length}", Ipv6Addr::from_bits(first.to_bits() & !host))
        }
        // A range has one family.
        (first, _) => first.to_string(),
    }
}

#[cfg(test)]
mod tests;
