//! IKE that does not get through for a while, though ESP does: so that both gateways have a request open when the other's comes.

use crate::namespace::write_private;
use crate::topology::{Side, WIRE_PORTS};
use crate::{Error, Namespace, Result};
use serde_json::Value;

const TABLE: &str = "testudo_lab_hold";

/// IKE of both gateways is dropped on the untrusted network, until [`HeldIke::release`] or until this is dropped.
#[derive(Debug)]
pub struct HeldIke {
    wire: Namespace,
}

impl HeldIke {
    /// From now on.
    pub fn start(wire: &Namespace) -> Result<Self> {
        let chain = |side: Side| {
            let port = WIRE_PORTS[side.index()];
            let [held, passed] = ["held", "passed"].map(|what| format!("  counter {what}_{port} {{ }}\n"));
            let hook = format!("type filter hook ingress device {port} priority -1; policy accept;");
            let rules = rules(&format!("counter name held_{port} drop"));
            format!("{held}{passed}  chain from_{port} {{\n    {hook}\n    {}\n  }}\n", rules.join("\n    "))
        };
        let text = format!("table netdev {TABLE} {{\n{}{}}}\n", chain(Side::One), chain(Side::Two));
        nft(wire, &text)?;
        Ok(Self { wire: wire.clone() })
    }

    /// From now on what that side's gateway sends arrives.
    pub fn release(&self, side: Side) -> Result<()> {
        self.judge(side, &format!("counter name passed_{} accept", WIRE_PORTS[side.index()]))
    }

    /// From now on it is dropped again.
    pub fn hold(&self, side: Side) -> Result<()> {
        self.judge(side, &format!("counter name held_{} drop", WIRE_PORTS[side.index()]))
    }

    fn judge(&self, side: Side, verdict: &str) -> Result<()> {
        let chain = format!("netdev {TABLE} from_{}", WIRE_PORTS[side.index()]);
        let added: String = rules(verdict).iter().map(|rule| format!("add rule {chain} {rule}\n")).collect();
        nft(&self.wire, &format!("flush chain {chain}\n{added}"))
    }

    /// Datagrams of that side's gateway that were dropped.
    pub fn dropped(&self, side: Side) -> Result<u64> {
        self.count("held", side)
    }

    /// Those that have arrived since its release.
    pub fn passed(&self, side: Side) -> Result<u64> {
        self.count("passed", side)
    }

    fn count(&self, what: &str, side: Side) -> Result<u64> {
        let name = format!("{what}_{}", WIRE_PORTS[side.index()]);
        let shown = self.wire.run("nft", ["-j", "list", "counter", "netdev", TABLE, &name])?.stdout;
        let unexpected = || Error::unexpected("nft -j list counter", format!("counter {name}"), &shown);
        let listing: Value = serde_json::from_str(&shown).map_err(|_| unexpected())?;
        let objects = listing["nftables"].as_array().into_iter().flatten();
        let packets = objects.filter_map(|object| object["counter"]["packets"].as_u64()).next();
        packets.ok_or_else(unexpected)
    }
}

impl Drop for HeldIke {
    fn drop(&mut self) {
        // The namespace takes it along at the latest.
        let _ = self.wire.run("nft", ["delete", "table", "netdev", TABLE]);
    }
}

/// On port 4500 IKE has four octets of zero behind the UDP header (RFC 3948 §2.2); what else comes there is ESP, or a keepalive.
fn rules(verdict: &str) -> [String; 2] {
    ["udp dport 500", "udp dport 4500 udp length > 12 @th,64,32 0"].map(|ike| format!("{ike} {verdict}"))
}

fn nft(wire: &Namespace, text: &str) -> Result<()> {
    let file = wire.lab().dir().join("hold.nft");
    write_private(&file, text)?;
    wire.cmd("nft").arg("-f").arg(&file).run().map(drop)
}
