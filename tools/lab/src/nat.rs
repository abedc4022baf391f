//! A router between a gateway and the untrusted network that translates addresses and ports (RFC
//! 3022).
//!
//! In the untrusted network it replaces the gateway: it has the gateway's usual address, and the
//! gateway is behind it. It always changes the port of a UDP flow, like a NAT with many hosts
//! behind it.

use crate::namespace::veth;
use crate::topology::{Family, OUTER, Options, Side, WIRE_PORTS};
use crate::{Lab, Namespace, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

/// The interface to the gateway.
const LAN: &str = "lan0";
/// The interface to the untrusted network.
const WAN: &str = "wan0";
/// Ports of its first mappings.
const PORTS: RangeInclusive<u16> = 20_000..=20_999;

/// The router; for IPv4 only, as usual.
#[derive(Clone, Debug)]
pub struct Nat {
    /// Its namespace.
    pub namespace: Namespace,
    side: Side,
}

impl Nat {
    /// A router for the gateway of that side, not connected yet.
    pub(crate) fn create(lab: &Lab, side: Side) -> Result<Self> {
        Ok(Self { namespace: lab.namespace("nat")?, side })
    }

    /// The side of the gateway behind it.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The address of the gateway behind it.
    pub fn hidden(side: Side) -> IpAddr {
        Self::lan(side, 2)
    }

    fn lan(side: Side, host: u8) -> IpAddr {
        Ipv4Addr::new(172, 16, side.index() as u8 + 1, host).into()
    }

    /// Joins the gateway and the untrusted network.
    pub(crate) fn connect(&self, gateway: &Namespace, wire: &Namespace, options: &Options) -> Result<()> {
        let (ns, side, port) = (&self.namespace, self.side, WIRE_PORTS[self.side.index()]);
        ns.forward()?;
        veth(wire.end(port), ns.end(WAN))?;
        veth(ns.end(LAN), gateway.end(OUTER))?;
        for (ns, interface) in [(wire, port), (ns, WAN), (ns, LAN), (gateway, OUTER)] {
            ns.up(interface, options.outer_mtu)?;
        }
        ns.offloads(LAN, options.towards[side.index()])?;
        let router = Self::lan(side, 1);
        ns.address(WAN, &format!("{}/24", side.outer(Family::V4)))?;
        ns.address(LAN, &format!("{router}/24"))?;
        gateway.address(OUTER, &format!("{}/24", Self::hidden(side)))?;
        gateway.route("default", &router.to_string())?;
        // Clear packets must be able to pass, as everywhere in the lab.
        ns.route(&side.network(Family::V4), &Self::hidden(side).to_string())?;
        self.route_across()?;
        self.translate(PORTS)
    }

    /// Sets the MTU of its way to the untrusted network.
    pub fn limit(&self, mtu: u16) -> Result<()> {
        self.namespace.ip(&format!("link set {WAN} mtu {mtu}")).map(drop)
    }

    /// Deletes all mappings; new ones get these ports.
    pub fn remap(&self, ports: RangeInclusive<u16>) -> Result<()> {
        self.translate(ports)?;
        // Linux deletes the mappings of an interface that goes down.
        self.namespace.ip(&format!("link set {WAN} down"))?;
        self.namespace.ip(&format!("link set {WAN} up"))?;
        self.route_across()
    }

    fn route_across(&self) -> Result<()> {
        let other = self.side.other();
        self.namespace.route(&other.network(Family::V4), &other.outer(Family::V4).to_string())
    }

    /// Packets for a port without a mapping are dropped silently. The rules are replaced in one
    /// transaction, so that no packet passes with the hidden address meanwhile.
    fn translate(&self, ports: RangeInclusive<u16>) -> Result<()> {
        let (first, last) = ports.into_inner();
        let rules = format!(
            "table ip translation
            delete table ip translation
            table ip translation {{
                chain postrouting {{
                    type nat hook postrouting priority srcnat; policy accept;
                    oifname {WAN} meta l4proto udp masquerade to :{first}-{last}
                    oifname {WAN} masquerade
                }}
                chain input {{
                    type filter hook input priority filter; policy accept;
                    iifname {WAN} meta l4proto udp drop
                }}
            }}"
        );
        self.namespace.run("nft", [rules]).map(drop)
    }
}
