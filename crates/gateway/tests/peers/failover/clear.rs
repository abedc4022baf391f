//! Counts what nodes and peers send into the untrusted network and should never: packets from or to
//! the protected networks.

use crate::common::counted;
use testudo_lab::Namespace;
use testudo_lab::cluster::Cluster;

/// Of the lab's networks these are the protected ones.
const PROTECTED: [(&str, &str); 2] = [("ip", "10.0.0.0/8"), ("ip6", "fd00::/8")];

/// Counts at the ports of the outer switch.
pub(super) struct ClearText {
    switch: Namespace,
}

impl ClearText {
    /// From now on.
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let switch = cluster.outer.clone();
        let count: String = PROTECTED
            .iter()
            .flat_map(|(ip, network)| {
                ["saddr", "daddr"].map(|side| format!("{ip} {side} {network} counter name clear\n"))
            })
            .collect();
        let ports = cluster.nodes.iter().chain(&cluster.peers).map(Namespace::role);
        let chain = |port: &str| {
            format!(
                "chain {port} {{
                    type filter hook ingress device {port} priority 0; policy accept;
                    {count}
                }}\n"
            )
        };
        let chains: String = ports.map(chain).collect();
        switch.run("nft", [format!("table netdev clear_text {{ counter clear {{ }}\n{chains} }}")]).unwrap();
        Self { switch }
    }

    /// Packets so far; one between two protected networks counts twice.
    pub(super) fn packets(&self) -> u64 {
        counted(&self.switch, ["netdev", "clear_text", "clear"])
    }
}
