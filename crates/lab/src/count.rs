//! Exact, cheap counting of what crosses the untrusted network, by nftables at the ingress of its two ports.
//!
//! AF_PACKET taps on the gateways would miss what AF_XDP sends and what XDP takes; a port in the middle misses
//! nothing. Whatever is not recognised counts as clear text.

use crate::topology::{Family, Side, WIRE_PORTS};
use crate::{Error, Namespace, Result};
use serde::Deserialize;
use std::fmt::Write;

/// Packets and octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Octets from the IP header on.
    pub bytes: u64,
}

/// What one gateway has sent into the untrusted network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// ESP, plain or in UDP, from gateway to gateway.
    pub esp: Tally,
    /// IKE on ports 500 and 4500, from gateway to gateway; NAT keepalives too.
    pub ike: Tally,
    /// ARP, neighbour discovery and multicast listener reports.
    pub neighbour: Tally,
    /// All the rest.
    pub clear: Tally,
}

/// Counters in the untrusted network.
#[derive(Clone, Debug)]
pub struct Counters {
    wire: Namespace,
}

const TABLE: &str = "testudo_lab";
const KINDS: [&str; 4] = ["n_esp", "n_ike", "n_neighbour", "n_clear"];

impl Counters {
    /// Starts to count in the namespace of the untrusted network.
    pub fn install(wire: &Namespace) -> Result<Self> {
        let file = wire.lab().dir().join("counters.nft");
        crate::namespace::write_private(&file, &ruleset())?;
        wire.cmd("nft").arg("-f").arg(&file).run()?;
        Ok(Self { wire: wire.clone() })
    }

    /// What the gateway of that side has sent so far.
    pub fn sent(&self, side: Side) -> Result<Sent> {
        let shown = self.wire.run("nft", ["-j", "list", "counters"])?.stdout;
        let listing: Listing = serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected("nft -j list counters", "JSON", e.to_string()))?;
        let port = WIRE_PORTS[side.index()];
        let tally = |kind: &str| {
            let name = format!("{kind}_{port}");
            let found = listing.nftables.iter().filter_map(|o| o.counter.as_ref()).find(|c| c.name == name);
            found
                .map(|c| Tally { packets: c.packets, bytes: c.bytes })
                .ok_or_else(|| Error::unexpected("nft -j list counters", format!("counter {name}"), &shown))
        };
        let [esp, ike, neighbour, clear] = KINDS.map(tally);
        Ok(Sent { esp: esp?, ike: ike?, neighbour: neighbour?, clear: clear? })
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

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    counter: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    packets: u64,
    bytes: u64,
}

fn ruleset() -> String {
    let mut text = format!("table netdev {TABLE} {{\n");
    for port in WIRE_PORTS {
        for kind in KINDS {
            let _ = writeln!(text, "  counter {kind}_{port} {{ }}");
        }
        let _ = writeln!(
            text,
            "  chain from_{port} {{\n    type filter hook ingress device {port} priority 0; policy accept;"
        );
        for family in [Family::V4, Family::V6] {
            text.push_str(&between_gateways(family, port));
        }
        let _ = write!(
            text,
            "    ether type arp counter name n_neighbour_{port} accept
    icmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, \
    mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report }} \
    counter name n_neighbour_{port} accept
    counter name n_clear_{port}
  }}
"
        );
    }
    text.push_str("}\n");
    text
}

/// Packets between the gateways' own addresses. `@th,64,32` are the four octets behind the UDP header: zero in IKE
/// (RFC 3948 §2.2); a keepalive has one octet (§2.3).
fn between_gateways(family: Family, port: &str) -> String {
    let word = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    let (one, two) = (Side::One.outer(family), Side::Two.outer(family));
    let pair = format!("{word} saddr {{ {one}, {two} }} {word} daddr {{ {one}, {two} }}");
    format!(
        "    {pair} meta l4proto esp counter name n_esp_{port} accept
    {pair} udp dport 4500 udp length > 9 @th,64,32 != 0 counter name n_esp_{port} accept
    {pair} udp dport {{ 500, 4500 }} counter name n_ike_{port} accept
"
    )
}
