//! Pools of virtual addresses.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// A `pools.<name>` section: addresses to assign, and the attributes that go with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name of the section.
    pub name: String,
    /// The configured start; a subnet's own address is not assigned.
    pub base: IpAddr,
    /// The addresses to assign.
    pub addrs: AddrRange,
    /// `dns`: name servers.
    pub dns: Vec<IpAddr>,
    /// `subnet` and `split_include`: networks behind us, by first address and prefix length.
    pub subnets: Vec<(IpAddr, u8)>,
}
