//! Addresses of the gateway itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host's own addresses: ESP must be addressed to one of them, and inner packets for them go to
/// the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAddrs {
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl LocalAddrs {
    #[inline]
    pub(crate) fn has_v4(&self, addr: Ipv4Addr) -> bool {
        self.v4.binary_search(&addr).is_ok()
    }

    #[inline]
    pub(crate) fn has_v6(&self, addr: Ipv6Addr) -> bool {
        self.v6.binary_search(&addr).is_ok()
    }

    /// True if the host owns the address.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(addr) => self.has_v4(addr),
            IpAddr::V6(addr) => self.has_v6(addr),
        }
    }
}

impl FromIterator<IpAddr> for LocalAddrs {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addrs: I) -> Self {
        let mut found = Self::default();
        for addr in addrs {
            match addr {
                IpAddr::V4(addr) => found.v4.push(addr),
                IpAddr::V6(addr) => found.v6.push(addr),
            }
        }
        found.v4.sort_unstable();
        found.v6.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_own_in_both_families() {
        let own: Vec<IpAddr> =
            ["10.0.0.9", "10.0.0.1", "2001:db8::2", "fe80::1"].iter().map(|a| a.parse().unwrap()).collect();
        let addrs: LocalAddrs = own.iter().copied().collect();
        assert!(own.into_iter().all(|addr| addrs.contains(addr)));
        // Neither an unknown one, nor a known one mapped to the other family.
        for other in ["10.0.0.2", "2001:db8::1", "::a00:1"] {
            assert!(!addrs.contains(other.parse().unwrap()), "{other}");
        }
    }
}
