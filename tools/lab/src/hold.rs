//! Holds IKE back for a while, but not ESP: so that both gateways have an open request when the
//! other's arrives.

use crate::count::Listing;
use crate::topology::{Side, WIRE_PORTS};
use crate::{Namespace, Result};

const TABLE: &str = "testudo_lab_hold";

/// IKE of both gateways is dropped on the untrusted network until [`HeldIke::release`] or drop.
#[derive(Debug)]
pub struct HeldIke {
    wire: Namespace,
}

impl HeldIke {
    /// Starts to drop IKE.
    pub fn start(wire: &Namespace) -> Result<Self> {
        let chain = |port: &str| {
            let hook = format!("type filter hook ingress device {port} priority -1; policy accept;");
            format!(
                "counter held_{port} {{ }}\ncounter passed_{port} {{ }}\nchain from_{port} {{ {hook} }}\n"
            )
        };
        let chains: String = WIRE_PORTS.iter().map(|port| chain(port)).collect();
        wire.run("nft", [format!("table netdev {TABLE} {{\n{chains}}}")])?;
        let held = Self { wire: wire.clone() };
        held.hold(Side::One)?;
        held.hold(Side::Two)?;
        Ok(held)
    }

    /// Lets the IKE packets of that side's gateway pass.
    pub fn release(&self, side: Side) -> Result<()> {
        self.judge(side, &format!("counter name passed_{} accept", WIRE_PORTS[side.index()]))
    }

    /// Drops them again.
    pub fn hold(&self, side: Side) -> Result<()> {
        self.judge(side, &format!("counter name held_{} drop", WIRE_PORTS[side.index()]))
    }

    fn judge(&self, side: Side, verdict: &str) -> Result<()> {
        let chain = format!("netdev {TABLE} from_{}", WIRE_PORTS[side.index()]);
        let added: String = rules(verdict).iter().map(|rule| format!("add rule {chain} {rule}\n")).collect();
        self.wire.run("nft", [format!("flush chain {chain}\n{added}")]).map(drop)
    }

    /// Number of datagrams of that side's gateway that were dropped.
    pub fn dropped(&self, side: Side) -> Result<u64> {
        self.count("held", side)
    }

    /// Number of those that have passed since its release.
    pub fn passed(&self, side: Side) -> Result<u64> {
        self.count("passed", side)
    }

    fn count(&self, what: &str, side: Side) -> Result<u64> {
        let name = format!("{what}_{}", WIRE_PORTS[side.index()]);
        Ok(Listing::of(&self.wire)?.tally(&name)?.packets)
    }
}

impl Drop for HeldIke {
    fn drop(&mut self) {
        // At the latest it goes with the namespace.
        let _ = self.wire.run("nft", ["delete", "table", "netdev", TABLE]);
    }
}

/// On port 4500 IKE has four zero octets after the UDP header (RFC 3948 §2.2); everything else
/// there is ESP or a keepalive.
fn rules(verdict: &str) -> [String; 2] {
    ["udp dport 500", "udp dport 4500 udp length > 12 @th,64,32 0"].map(|ike| format!("{ike} {verdict}"))
}
