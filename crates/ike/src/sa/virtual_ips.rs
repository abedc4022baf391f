//! The virtual addresses of an IKE SA (RFC 7296 §2.19).

use super::IkeSa;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// Addresses that were handed out in IKE_AUTH.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VirtualIps {
    /// Given to us.
    pub(crate) local: Vec<IpAddr>,
    /// Leased to the peer.
    pub(crate) remote: Vec<Lease>,
}

/// An address out of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// `pools.<name>`.
    pub(crate) pool: String,
    pub(crate) addr: IpAddr,
}

impl IkeSa {
    /// What `dynamic` means on our side: our virtual addresses, or else our outer address in
    /// IKE_SA_INIT. No message changes it: else a peer could have the traffic of any address by
    /// sending from there.
    pub(crate) fn dynamic_local(&self) -> Vec<AddrRange> {
        or_outer(self.virtual_ips.local.iter().copied(), self.first_ends().local)
    }

    /// What `dynamic` means on the peer's side, likewise. Where its address in IKE_SA_INIT is not
    /// known: the single addresses that it has Child SAs for, so that it gets nothing but what it
    /// has.
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
