//! Pools of virtual addresses.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// A `pools.<name>` section: addresses to hand out, and what those who get one are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name of the section.
    pub name: String,
    /// Where it begins as configured; a subnet's own address is not handed out.
    pub base: IpAddr,
    /// The addresses to hand out.
    pub addrs: AddrRange,
    /// `dns`: name servers.
    pub dns: Vec<IpAddr>,
    /// `subnet` and `split_include`: what lies behind us, by first address and prefix length.
    pub subnets: Vec<(IpAddr, u8)>,
}
