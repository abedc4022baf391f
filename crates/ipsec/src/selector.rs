//! Traffic selectors: address range, protocol, port range (RFC 7296 §3.13.1, RFC 4301 §4.4.1).

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An inclusive range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddrRange {
    start: IpAddr,
    end: IpAddr,
}

impl AddrRange {
    /// `None` if the families differ or `end` is below `start`.
    pub fn new(start: IpAddr, end: IpAddr) -> Option<Self> {
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some(Self { start, end })
    }

    /// First address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// True if `addr` is of the family and inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.start.is_ipv4() && self.start <= addr && addr <= self.end
    }
}

/// What one side of an SA may carry. Ports are those of that side; for ICMP the "port" is type:8 | code:8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrafficSelector {
    /// Addresses of that side.
    pub addrs: AddrRange,
    /// IP protocol; 0 means any.
    pub protocol: u8,
    /// First port, 0 for any; `port_start > port_end` (65535 to 0) is OPAQUE.
    pub port_start: u16,
    /// Last port, 65535 for any.
    pub port_end: u16,
}
