//! Exact, cheap counters of the packets on the untrusted network, by nftables at the ingress of its
//! two ports.
//!
//! AF_PACKET taps on the gateways would miss what AF_XDP sends and what XDP redirects; a port in
//! the middle misses nothing. Packets that are not recognised count as clear text. Everything but
//! ESP is copied to a separate interface, where a capture can run all the time without a cost for
//! ESP packets.

use crate::namespace::write_private;
use crate::topology::{Family, Side, WIRE_PORTS};
use crate::{Error, Namespace, Result, ip};
use serde::Deserialize;
use std::fmt::Write;
use std::ops::Sub;

/// Packets and octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Octets from the IP header on.
    pub bytes: u64,
}

/// Packets of one gateway in the untrusted network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// ESP, plain or in UDP, from gateway to gateway.
    pub esp: Tally,
    /// IKE on ports 500 and 4500 from gateway to gateway, and NAT keepalives.
    pub ike: Tally,
    /// ARP, neighbour discovery and multicast listener reports.
    pub neighbour: Tally,
    /// Everything else.
    pub clear: Tally,
}

/// Counters of the packets on the untrusted network since a start.
#[derive(Clone, Debug)]
pub struct Counters {
    wire: Namespace,
    before: [Sent; 2],
}

const TABLE: &str = "testudo_lab";
const KINDS: [&str; 4] = ["n_esp", "n_ike", "n_neighbour", "n_clear"];
/// Copies of everything but ESP are sent here and received at [`MIRROR`].
const MIRROR_ENTRY: &str = "mirror0";
/// The interface at which everything but ESP can be captured.
pub(crate) const MIRROR: &str = "mirror1";

/// Prepares the namespace of an untrusted network, whose ports already exist.
pub(crate) fn install(wire: &Namespace) -> Result<()> {
    let ends = [MIRROR_ENTRY, MIRROR].map(|end| ip::up(end, u16::MAX));
    wire.ip_each([ip::veth(MIRROR_ENTRY, wire.end(MIRROR), 1)].into_iter().chain(ends))?;
    let file = wire.lab().dir().join("counters.nft");
    write_private(&file, &ruleset())?;
    wire.cmd("nft").arg("-f").arg(&file).run().map(drop)
}

impl Counters {
    /// Starts counting.
    pub fn start(wire: &Namespace) -> Result<Self> {
        let before = [read(wire, Side::One)?, read(wire, Side::Two)?];
        Ok(Self { wire: wire.clone(), before })
    }

    /// The packets that the gateway of that side has sent since the start.
    pub fn sent(&self, side: Side) -> Result<Sent> {
        Ok(read(&self.wire, side)? - self.before[side.index()])
    }

    /// ESP packets of both gateways.
    pub fn esp_packets(&self) -> Result<u64> {
        Ok(self.sent(Side::One)?.esp.packets + self.sent(Side::Two)?.esp.packets)
    }

    /// Clear packets of both gateways.
    pub fn clear_packets(&self) -> Result<u64> {
        Ok(self.sent(Side::One)?.clear.packets + self.sent(Side::Two)?.clear.packets)
    }
}

impl Sub for Tally {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { packets: self.packets - before.packets, bytes: self.bytes - before.bytes }
    }
}

impl Sub for Sent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            esp: self.esp - before.esp,
            ike: self.ike - before.ike,
            neighbour: self.neighbour - before.neighbour,
            clear: self.clear - before.clear,
        }
    }
}

/// The packets that the gateway of that side has sent since the network was created.
fn read(wire: &Namespace, side: Side) -> Result<Sent> {
    let (listing, port) = (Listing::of(wire)?, WIRE_PORTS[side.index()]);
    let [esp, ike, neighbour, clear] = KINDS.map(|kind| listing.tally(&format!("{kind}_{port}")));
    Ok(Sent { esp: esp?, ike: ike?, neighbour: neighbour?, clear: clear? })
}

/// All named counters of a namespace.
#[derive(Debug, Deserialize)]
pub(crate) struct Listing {
    nftables: Vec<Object>,
}

impl Listing {
    /// Reads the counters.
    pub(crate) fn of(namespace: &Namespace) -> Result<Self> {
        let shown = namespace.run("nft", ["-j", "list", "counters"])?.stdout;
        serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected("nft -j list counters", "JSON", e.to_string()))
    }

    /// The counter of that name.
    pub(crate) fn tally(&self, name: &str) -> Result<Tally> {
        let found = self.nftables.iter().filter_map(|o| o.counter.as_ref()).find(|c| c.name == name);
        found.map(|c| Tally { packets: c.packets, bytes: c.bytes }).ok_or_else(|| {
            Error::unexpected(
                "nft -j list counters",
                format!("counter {name}"),
                format!("{:?}", self.nftables),
            )
        })
    }
}

#[derive(Debug, Deserialize)]
struct Object {
    counter: Option<Counter>,
}

#[derive(Debug, Deserialize)]
struct Counter {
    name: String,
    packets: u64,
    bytes: u64,
}

/// The rules match ESP first, with one rule; the rest is copied, then classified.
fn ruleset() -> String {
    let mut text = format!("table netdev {TABLE} {{\n");
    for side in [Side::One, Side::Two] {
        let port = WIRE_PORTS[side.index()];
        let counters: String = KINDS.iter().map(|kind| format!("  counter {kind}_{port} {{ }}\n")).collect();
        let families = [Family::V4, Family::V6];
        let esp: String = families.iter().map(|family| esp_rules(side, *family)).collect();
        let ike: String = families.iter().map(|family| ike_rule(side, *family)).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{counters}  chain from_{port} {{
    type filter hook ingress device {port} priority 0; policy accept;
{esp}    dup to {MIRROR_ENTRY}
{ike}    ether type arp counter name n_neighbour_{port} accept
    icmpv6 type {{ {NEIGHBOUR_DISCOVERY} }} counter name n_neighbour_{port} accept
    counter name n_clear_{port}
  }}
"
        );
    }
    text.push_str("}\n");
    text
}

/// RFC 4861, and multicast listener discovery (RFC 2710, RFC 3810).
const NEIGHBOUR_DISCOVERY: &str = "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
    mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report";

/// From this gateway's address to the other's.
fn pair(side: Side, family: Family) -> String {
    let word = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    format!("{word} saddr {} {word} daddr {}", side.outer(family), side.other().outer(family))
}

/// A NAT in front of one gateway changes its port, but not the other's.
const NAT_PORT: [&str; 2] = ["udp dport 4500", "udp sport 4500"];

/// `@th,64,32` are the four octets after the UDP header: zero in IKE (RFC 3948 §2.2); a keepalive
/// has one octet (§2.3).
fn esp_rules(side: Side, family: Family) -> String {
    let (pair, port) = (pair(side, family), WIRE_PORTS[side.index()]);
    let plain = match family {
        Family::V4 => "ip protocol esp",
        Family::V6 => "ip6 nexthdr esp",
    };
    let in_udp: String = NAT_PORT
        .map(|match_port| {
            format!(
                "    {pair} {match_port} udp length > 9 @th,64,32 != 0 counter name n_esp_{port} accept\n"
            )
        })
        .concat();
    format!("    {plain} {pair} counter name n_esp_{port} accept\n{in_udp}")
}

fn ike_rule(side: Side, family: Family) -> String {
    let (pair, port) = (pair(side, family), WIRE_PORTS[side.index()]);
    let rule = |end: &str| format!("    {pair} udp {end} {{ 500, 4500 }} counter name n_ike_{port} accept\n");
    rule("dport") + &rule("sport")
}
