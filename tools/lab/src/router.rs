//! A router on a path in the untrusted network. Its MTU may be smaller than the network's, and it
//! reports that.

use crate::namespace::{Offloads, veth};
use crate::topology::{Family, HOST};
use crate::{Lab, Namespace, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Its port at the switch.
const PORT: &str = "router";
const MTU: u16 = 1500;

/// The router. It forwards packets out of the interface they came in by.
#[derive(Clone, Debug)]
pub struct Router {
    namespace: Namespace,
}

impl Router {
    /// Joins a switch. It receives packets as soon as a host calls [`Self::put_before`].
    pub fn join(lab: &Lab, switch: &Namespace) -> Result<Self> {
        let namespace = lab.namespace("router")?;
        namespace.forward()?;
        veth(switch.end(PORT), namespace.end(HOST))?;
        switch.up(PORT, MTU)?;
        namespace.up(HOST, MTU)?;
        // It sends to gateways that receive by AF_XDP.
        namespace.offloads(HOST, Offloads::None)?;
        switch.offloads(PORT, Offloads::None)?;
        switch.ip(&format!("link set {PORT} master br0"))?;
        for (family, prefix) in [(Family::V4, 24), (Family::V6, 64)] {
            namespace.address(HOST, &format!("{}/{prefix}", Self::address(family)))?;
        }
        Ok(Self { namespace })
    }

    fn address(family: Family) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(192, 0, 2, 254).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 254).into(),
        }
    }

    /// Routes packets of `from` for `to` through this router.
    pub fn put_before(&self, from: &Namespace, to: IpAddr) -> Result<()> {
        let family = if to.is_ipv6() { Family::V6 } else { Family::V4 };
        from.route(&to.to_string(), &Self::address(family).to_string())
    }

    /// Limits the MTU of its route to `to`.
    pub fn limit(&self, to: IpAddr, mtu: u16) -> Result<()> {
        let family = if to.is_ipv6() { "-6" } else { "-4" };
        // Locked, so that it applies to forwarded packets too.
        self.namespace.ip(&format!("{family} route replace {to} dev {HOST} mtu lock {mtu}")).map(drop)
    }
}
