//! Addresses of other hosts around this one. A peer may not assign them to us as virtual addresses,
//! unless the connection says so: else it would get the traffic of our neighbours, routers and name
//! servers.

use crate::prefix::range_of;
use std::net::IpAddr;
use testudo_fastpath::fib::Fib;
use testudo_ipsec::selector::AddrRange;

/// Files that name the name servers: the one that programs read, and the one with the servers of
/// systemd-resolved, which names itself in the first.
const RESOLVER_FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The networks on our links, the neighbours in networks that are handed out, and this host's name
/// servers.
pub(crate) fn reserved(fib: &Fib) -> Vec<AddrRange> {
    let networks = fib.connected().iter().filter_map(range_of);
    let neighbours = fib.neighbours().map(|(_, addr)| addr);
    // A missing file names no servers.
    let texts = RESOLVER_FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let servers = texts.flat_map(|text| name_servers(&text).collect::<Vec<_>>());
    let singles = neighbours.chain(servers).filter_map(|addr| AddrRange::new(addr, addr));
    networks.chain(singles).collect()
}

/// The servers that a `resolv.conf` names; a zone behind an address is ignored.
fn name_servers(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let server = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        server.split('%').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::prefix::Prefix;

    #[test]
    fn name_servers_are_found() {
        let text = "# nameserver 192.0.2.1\nsearch example.org\nnameserver 10.0.0.53\n\tnameserver\tfe80::1%eth0\n\
                    nameserver\nnameserver x\nnameservers 10.0.0.54\n";
        let found: Vec<String> = name_servers(text).map(|addr| addr.to_string()).collect();
        assert_eq!(found, ["10.0.0.53", "fe80::1"]);
    }

    #[test]
    fn what_is_on_a_link_is_reserved() {
        let lan: Prefix = "192.168.1.0/24".parse().unwrap();
        let ranges = reserved(&Fib::builder().connected(lan).build());
        let has = |addr: &str| ranges.iter().any(|range| range.contains(addr.parse().unwrap()));
        assert!(has("192.168.1.1") && has("192.168.1.255"));
        assert!(!has("192.168.2.0") && !has("10.3.0.7"));
    }
}
