//! IKE that does not get through for a while, though ESP does: so that both gateways have a request
//! open when the other's comes.

use crate::count::Listing;
use crate::topology::{Side, WIRE_PORTS};
use crate::{Namespace, Result};

const TABLE: &str = "testudo_lab_hold";

/// IKE of both gateways is dropped on the untrusted network, until [`HeldIke::release`] or until
/// this is dropped.
#[derive(Debug)]
pub struct HeldIke {
    wire: Namespace,
}

impl HeldIke {
    /// From now on.
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
        self.wire.run("nft", [format!("flush chain {chain}\n{added}")]).map(drop)
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
        Ok(Listing::of(&self.wire)?.tally(&name)?.packets)
    }
}

impl Drop for HeldIke {
    fn drop(&mut self) {
        // The namespace takes it along at the latest.
        let _ = self.wire.run("nft", ["delete", "table", "netdev", TABLE]);
    }
}

/// On port 4500 IKE has four octets of zero behind the UDP header (RFC 3948 §2.2); what else comes
/// there is ESP, or a keepalive.
fn rules(verdict: &str) -> [String; 2] {
    ["udp dport 500", "udp dport 4500 udp length > 12 @th,64,32 0"].map(|ike| format!("{ike} {verdict}"))
}
