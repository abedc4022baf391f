//! Three nodes as one gateway: corosync, Testudo on each, one address, and a peer that knows nothing of it.

use crate::common::UP_LIMIT;
use std::time::Duration;
use testudo_lab::cluster::{Cluster, Net, Options};
use testudo_lab::corosync::{Corosync, Ring, Timers};
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::strongswan::Strongswan;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, wait_until};

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
pub(crate) const KEY: &str = "5ce1f30b97ad4286be0873d1296a44ff80c7159e3d62ab0471f8d5903ec26b1a\n";

/// The nodes with their daemons, and a peer; everything with the connection loaded.
pub(crate) struct Rig {
    pub(crate) nodes: Vec<Testudo>,
    pub(crate) peer: Strongswan,
    pub(crate) daemons: Vec<Corosync>,
    pub(crate) t: Cluster,
}

/// `[cluster]` of a node.
fn settings(t: &Cluster, node: u8) -> String {
    let dir = t.node(node).lab().subdir(&format!("node{node}-cluster")).unwrap();
    let key = dir.join("key");
    std::fs::write(&key, KEY).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut vips = Vec::new();
    for net in [Net::Outer, Net::Inner] {
        vips.extend([Family::V4, Family::V6].into_iter().filter_map(|family| Cluster::shared(net, family)));
    }
    let quoted = |addresses: Vec<std::net::IpAddr>| {
        addresses.iter().map(|addr| format!("\"{addr}\"")).collect::<Vec<_>>().join(", ")
    };
    let nodes: String = (1..=t.nodes.len() as u8)
        .map(|n| {
            let own = [Net::Cluster, Net::Outer, Net::Inner].map(|net| Cluster::own(n, net, Family::V4));
            format!("[[cluster.nodes]]\nid = {n}\naddresses = [{}]\n", quoted(own.to_vec()))
        })
        .collect();
    format!(
        "\n[cluster]\nnode = {node}\nkey = \"{}\"\nstate = \"{}\"\nvips = [{}]\n{nodes}",
        key.display(),
        dir.display(),
        quoted(vips)
    )
}

impl Rig {
    pub(crate) fn start(name: &str) -> Self {
        let lab = Lab::new(name).unwrap();
        let options = Options { towards_peers: Kind::Strongswan.offloads_towards(), ..Options::default() };
        let t = Cluster::build(&lab, &options).unwrap();
        let addresses = (1..=3).map(|node| Cluster::own(node, Net::Cluster, Family::V4)).collect();
        let ring = Ring::new(&lab, addresses, Timers::default()).unwrap();
        let daemons: Vec<_> = t.nodes.iter().map(|node| Corosync::start(node, &ring).unwrap()).collect();
        daemons[0].wait_for_members(3, LIMIT).unwrap();
        let start = |node| Testudo::start_with(t.node(node), &settings(&t, node)).unwrap();
        let nodes: Vec<_> = (1..=3).map(start).collect();
        let peer = Strongswan::start(&t.peers[0]).unwrap();
        peer.swanctl().load(&Connection::of(Side::Two, Family::V4).to_string()).unwrap();
        for node in &nodes {
            node.swanctl().load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
        }
        Self { nodes, peer, daemons, t }
    }

    /// The peer brings its tunnel up.
    pub(crate) fn up(&self) {
        wait_until("the tunnel", LIMIT, || {
            let up = self.peer.swanctl().initiate("lab", UP_LIMIT);
            Ok(up.map_err(|e| e.to_string()))
        })
        .unwrap();
    }
}

#[test]
fn three_nodes_answer_a_peer_as_one() {
    let rig = Rig::start("cluster");
    rig.up();
    for family in [Family::V4, Family::V6] {
        let pong = Ping::new(Side::One.host(family)).count(20).run(&rig.t.hosts[0]).unwrap();
        assert_eq!((pong.received, pong.duplicates), (20, 0), "{family}");
        let pong = Ping::new(Side::Two.host(family)).count(20).run(&rig.t.client).unwrap();
        assert_eq!((pong.received, pong.duplicates), (20, 0), "{family}");
    }
    assert_eq!(rig.nodes.len(), rig.daemons.len());
}
