//! The virtual addresses of an IKE SA (RFC 7296 §2.19).

use super::IkeSa;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// Addresses assigned in IKE_AUTH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VirtualIps {
    /// Assigned to us.
    pub(crate) local: Vec<IpAddr>,
    /// Leased to the peer.
    pub(crate) remote: Vec<Lease>,
}

/// An address from a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// `pools.<name>`.
    pub(crate) pool: String,
    pub(crate) addr: IpAddr,
}

impl IkeSa {
    /// The meaning of `dynamic` on our side: our virtual addresses, or else our outer address in
    /// IKE_SA_INIT. No message changes it: otherwise a peer could attract the traffic of any
    /// address by sending from it.
    pub(crate) fn dynamic_local(&self) -> Vec<AddrRange> {
        or_outer(self.virtual_ips.local.iter().copied(), self.first_ends().local)
    }

    /// The meaning of `dynamic` on the peer's side, likewise. If its address in IKE_SA_INIT is not
    /// known: the single addresses of its Child SAs, so that it gets only what it has.
    pub(crate) fn dynamic_remote(&self) -> Vec<AddrRange> {
        let first = self.first_ends().remote;
        if self.virtual_ips.remote.is_empty() && first.is_unspecified() {
            let carried = self.children.iter().flat_map(|child| &child.params.remote_ts);
            let ranges: BTreeSet<AddrRange> = carried.map(|selector| selector.addrs).collect();
            return ranges.into_iter().filter(|range| range.start() == range.end()).collect();
        }
        or_outer(self.virtual_ips.remote.iter().map(|lease| lease.addr), first)
    }
}

fn or_outer(virtual_ips: impl Iterator<Item = IpAddr>, outer: IpAddr) -> Vec<AddrRange> {
    let single = |addr| AddrRange::new(addr, addr);
    let found: Vec<AddrRange> = virtual_ips.filter_map(single).collect();
    if found.is_empty() { single(outer).into_iter().collect() } else { found }
}
