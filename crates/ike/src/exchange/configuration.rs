//! Configuration payloads in IKE_AUTH (RFC 7296 §2.19): virtual addresses.

use crate::config::{Connection, TsSpec};
use crate::environment::pools::LeaseOwner;
use crate::environment::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::error::AnswerError;
use crate::exchange::session::Session;
use crate::message::{CfgAttribute, CfgAttributeType, CfgType, Configuration, NotifyType, Payload, Payloads};
use crate::output::Output;
use crate::sa::IkeSa;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use testudo_ipsec::selector::AddrRange;

/// The initiator's request: `vips`, and DNS servers. If any address will do, it asks for its
/// present one.
pub(super) fn request(connection: &Connection, held: &[IpAddr]) -> Option<Payload> {
    let wanted = |vip: &IpAddr| {
        let of_family = held.iter().find(|addr| vip.is_unspecified() && addr.is_ipv4() == vip.is_ipv4());
        *of_family.unwrap_or(vip)
    };
    let addresses = connection.vips.iter().map(|vip| CfgAttribute::inner_address(wanted(vip)));
    let servers = [(true, CfgAttributeType::Ip4Dns), (false, CfgAttributeType::Ip6Dns)];
    let servers =
        servers.into_iter().filter(|(v4, _)| connection.vips.iter().any(|vip| vip.is_ipv4() == *v4));
    let attributes: Vec<_> = addresses.chain(servers.map(|(_, kind)| CfgAttribute::request(kind))).collect();
    let asks = !connection.vips.is_empty();
    asks.then_some(Payload::Configuration(Configuration { kind: CfgType::Request, attributes }))
}

/// The meaning of `dynamic` for an initiator that does not know its virtual addresses yet.
pub(super) fn dynamic_before_reply(sa: &IkeSa, connection: &Connection) -> Vec<AddrRange> {
    if connection.vips.is_empty() {
        return sa.dynamic_local();
    }
    let range = |vip: &IpAddr| match vip {
        IpAddr::V4(vip) if vip.is_unspecified() => AddrRange::new((*vip).into(), Ipv4Addr::BROADCAST.into()),
        IpAddr::V6(vip) if vip.is_unspecified() => {
            AddrRange::new((*vip).into(), Ipv6Addr::from_bits(u128::MAX).into())
        }
        vip => AddrRange::new(*vip, *vip),
    };
    connection.vips.iter().filter_map(range).collect()
}

/// Among connections that match equally well, those for a peer that requests an address, or those
/// for one that does not. The address comes from one connection's pools, and so does the child.
pub(super) fn serving(connections: Vec<Arc<Connection>>, request: &Payloads) -> Vec<Arc<Connection>> {
    let asks = !wanted(request).is_empty();
    let serves = |connection: &&Arc<Connection>| connection.pools.is_empty() != asks;
    let serving: Vec<_> = connections.iter().filter(serves).cloned().collect();
    match serving.first() {
        None => connections,
        Some(first) if asks => vec![first.clone()],
        Some(_) => serving,
    }
}

/// The requested addresses, at most one of each family.
fn wanted(payloads: &Payloads) -> Vec<IpAddr> {
    one_of_each(payloads.configuration().filter(|cp| cp.kind == CfgType::Request))
}

fn one_of_each(configuration: Option<&Configuration>) -> Vec<IpAddr> {
    let families = [true, false].into_iter();
    families.filter_map(|v4| configuration?.addresses().find(|addr| addr.is_ipv4() == v4)).collect()
}

/// True for an address that a host can have: no other may be added to this host, whichever peer
/// assigns it.
pub(crate) fn is_host(addr: &IpAddr) -> bool {
    let broadcast = *addr == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() || broadcast)
}

/// True if the range names this address specifically: a range of all addresses does not.
fn names(range: &AddrRange, addr: IpAddr) -> bool {
    let last = match addr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::BROADCAST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
    };
    range.contains(addr) && !(range.start().is_unspecified() && range.end() == last)
}

/// Assigns the requested addresses. Returns the payload with them. The error is the notify in place
/// of a Child SA: no address is left, or the peer should have requested one (RFC 7296 §3.15.4,
/// §2.19).
pub(crate) fn answer(
    session: &mut Session<'_>,
    connection: &Connection,
    request: &Payloads,
) -> Result<Option<Payload>, NotifyType> {
    let wanted = wanted(request);
    let Some(identity) = session.sa.remote_id.clone().filter(|_| !wanted.is_empty()) else {
        let expected = !connection.pools.is_empty();
        return if expected { Err(NotifyType::FailedCpRequired) } else { Ok(None) };
    };
    let owner = LeaseOwner::new(&session.sa.connection, &identity);
    for &addr in &wanted {
        let homes = session.env.homes.as_deref();
        let may_lease = |addr| homes.is_none_or(|homes| homes.leases(addr));
        let lease = session.env.pools.lease(&connection.pools, addr, &owner, session.sa.id, &may_lease);
        let Some(lease) = lease else { continue };
        let line = format!("assigning virtual IP {} of pool {} to {identity}", lease.addr, lease.pool);
        session.log(ORDINARY, line);
        session.sa.virtual_ips.remote.push(lease);
    }
    if session.sa.virtual_ips.remote.is_empty() {
        let pools = session.env.pools.shortage(&connection.pools, &wanted);
        session.log(FAILURE, format!("no virtual IP is left for {identity}: {pools}"));
        return Err(NotifyType::InternalAddressFailure);
    }
    let leased = session.sa.virtual_ips.remote.iter().map(|lease| CfgAttribute::inner_address(lease.addr));
    let pools = connection.pools.iter().filter_map(|name| session.env.pools.get(name));
    let told = pools.flat_map(|pool| {
        let subnets = pool.subnets.iter().map(|(first, length)| CfgAttribute::subnet(*first, *length));
        pool.dns.iter().map(|addr| CfgAttribute::dns(*addr)).chain(subnets)
    });
    let attributes = leased.chain(told).collect();
    Ok(Some(Payload::Configuration(Configuration { kind: CfgType::Reply, attributes })))
}

/// Accepts the addresses that the responder assigns. A requested address is indispensable.
pub(crate) fn accept(
    session: &mut Session<'_>,
    connection: &Connection,
    answer: &Payloads,
) -> Result<(), AnswerError> {
    if connection.vips.is_empty() {
        return Ok(());
    }
    let reply = answer.configuration().filter(|cp| cp.kind == CfgType::Reply);
    let mut given = one_of_each(reply);
    given.retain(|addr| {
        let refused = refusal_of_address(session, connection, *addr);
        if let Some(why) = refused {
            session.log(FAILURE, format!("refused virtual IP {addr}: {why}"));
        }
        refused.is_none()
    });
    if given.is_empty() {
        return Err(AnswerError::NoAddress);
    }
    for &addr in &given {
        session.log(IMPORTANT, format!("installing new virtual IP {addr}"));
        session.env.effects.outputs.push_back(Output::InstallAddress { ike: session.sa.id, addr });
    }
    let servers: Vec<String> =
        reply.into_iter().flat_map(Configuration::name_servers).map(|addr| addr.to_string()).collect();
    if !servers.is_empty() {
        session.log(ORDINARY, format!("the peer names DNS servers: {}", servers.join(" ")));
    }
    session.sa.virtual_ips.local = given;
    Ok(())
}

/// Why an assigned address cannot be ours. A peer may assign its own addresses, but none that
/// belongs to this host or to other peers: an address of ours attracts the traffic to it.
fn refusal_of_address(session: &Session<'_>, connection: &Connection, addr: IpAddr) -> Option<&'static str> {
    if !is_host(&addr) {
        return Some("no host can have it");
    }
    if !connection.vips.iter().any(|vip| vip.is_ipv4() == addr.is_ipv4()) {
        return Some("no address of its family was requested");
    }
    let within = &connection.vips_within;
    if !within.is_empty() && !within.iter().any(|range| range.contains(addr)) {
        return Some("it is outside vips_within");
    }
    // A second IKE SA with the same peer brings the same address.
    let mut with_peer =
        session.sa.remote_id.iter().flat_map(|identity| session.env.table.by_identity(identity));
    let brought = with_peer.any(|other| other.virtual_ips.local.contains(&addr));
    if addr == session.sa.path.local.ip() || session.env.loaded.local_addrs.contains(&addr) && !brought {
        return Some("this host has it already");
    }
    if within.is_empty() && !brought && session.env.loaded.reserved.iter().any(|range| range.contains(addr)) {
        return Some("it is in a network of this host, or a name server's; vips_within can allow it");
    }
    let named = |other: &Arc<Connection>| other.peer_address() == Some(addr);
    if addr == session.sa.path.remote.ip()
        || session.env.table.by_addr(addr).next().is_some()
        || session.env.loaded.connections.iter().any(named)
    {
        return Some("a peer has this address");
    }
    let elsewhere = session.env.loaded.connections.iter().filter(|other| {
        other.name != connection.name
            && (other.remote.id.is_none() || other.remote.id != connection.remote.id)
    });
    let reached = |spec: &TsSpec| matches!(spec, TsSpec::Fixed(ts) if names(&ts.addrs, addr));
    let mut selectors = elsewhere.flat_map(|other| &other.children).flat_map(|child| &child.remote_ts);
    selectors.any(reached).then_some("it is behind another peer")
}

/// An IKE SA ends: its addresses become free.
pub(crate) fn release_addresses(session: &mut Session<'_>) {
    let held = std::mem::take(&mut session.sa.virtual_ips);
    for addr in held.local {
        session.env.effects.outputs.push_back(Output::RemoveAddress { ike: session.sa.id, addr });
    }
    for lease in &held.remote {
        session.env.pools.release(lease, session.sa.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_an_address_that_is_its_alone() {
        let is_host = |text: &str| is_host(&text.parse().unwrap());
        for addr in ["10.0.0.1", "198.51.100.255", "223.255.255.255", "2001:db8::1", "fe80::1"] {
            assert!(is_host(addr), "{addr}");
        }
        for addr in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"] {
            assert!(!is_host(addr), "{addr}");
        }
    }

    #[test]
    fn a_range_of_all_addresses_names_none_of_them() {
        let names = |start: &str, end: &str, addr: &str| {
            let range = AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap();
            names(&range, addr.parse().unwrap())
        };
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for (start, end) in [("0.0.0.0", "127.255.255.255"), ("1.0.0.0", "255.255.255.255")] {
            assert!(names(start, end, "10.0.0.1"), "{start}-{end}");
        }
        assert!(names("::", "fd00:ffff::", "fd00::1") && names("::1", last, "fd00::1"));
        assert!(!names("0.0.0.0", "255.255.255.255", "10.0.0.1") && !names("::", last, "fd00::1"));
    }
}
