//! SAs to the other nodes of a cluster, by which packets are relayed to the node that carries them,
//! where routers bring each packet to one node (ingress `routed`).

use super::DataPath;
use crate::error::Result;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_base::shard::SHARDS;
use testudo_base::spi::Spi;
use testudo_cluster::node::NodeId;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Command, Relay, RelayParams};
use testudo_ipsec::sa::{InboundSa, KeyMaterial, OutboundSa};
use zeroize::Zeroizing;

/// Another node of the view, and the keys of the relay SAs of one kind between it and this one. The
/// SPIs show the kind.
pub(crate) struct RelayPeer {
    pub(crate) node: NodeId,
    /// This node's address on the cluster network.
    pub(crate) local: IpAddr,
    /// The other node's.
    pub(crate) remote: IpAddr,
    /// The SPI of what it sends here.
    pub(crate) spi_in: Spi,
    /// The SPI of what this node sends there.
    pub(crate) spi_out: Spi,
    /// Key and salt of what it sends here.
    pub(crate) key_in: Zeroizing<[u8; RelayParams::KEY_LEN]>,
    /// Key and salt of what this node sends there.
    pub(crate) key_out: Zeroizing<[u8; RelayParams::KEY_LEN]>,
}

/// The relay SAs, and who carries what.
pub(super) struct Relays {
    carriers: [Option<u8>; SHARDS],
    /// Of this view.
    current: Vec<RelaySas>,
    /// Of the view before: packets of its SAs may still be on their way.
    former: Vec<RelaySas>,
}

/// Both SAs of one kind with another node.
struct RelaySas {
    peer: RelayPeer,
    inbound: Arc<InboundSa>,
    outbound: Arc<OutboundSa>,
}

impl RelayPeer {
    /// True if both have the same SAs: their numbers must go on.
    fn is_same(&self, other: &Self) -> bool {
        let ends = |peer: &Self| (peer.node, peer.local, peer.remote, peer.spi_in, peer.spi_out);
        ends(self) == ends(other) && self.key_in == other.key_in && self.key_out == other.key_out
    }

    fn params(&self) -> RelayParams {
        let key = |key: &Zeroizing<[u8; RelayParams::KEY_LEN]>| KeyMaterial(key.to_vec());
        RelayParams {
            local: self.local,
            remote: self.remote,
            spi_in: self.spi_in,
            spi_out: self.spi_out,
            key_in: key(&self.key_in),
            key_out: key(&self.key_out),
        }
    }
}

impl Relays {
    pub(super) fn new() -> Self {
        Self { carriers: [None; SHARDS], current: Vec::new(), former: Vec::new() }
    }

    /// A view with these nodes begins.
    fn begin_view(
        &mut self,
        peers: Vec<RelayPeer>,
        path_mtu: impl Fn(IpAddr) -> u16,
        library: Library,
    ) -> Result<()> {
        let sas = |peer: RelayPeer| {
            if let Some(known) = self.current.iter().find(|sas| sas.peer.is_same(&peer)) {
                let (inbound, outbound) = (Arc::clone(&known.inbound), Arc::clone(&known.outbound));
                return Ok(RelaySas { peer, inbound, outbound });
            }
            let (inbound, outbound) = peer.params().build(path_mtu(peer.remote), library)?;
            Ok(RelaySas { peer, inbound: Arc::new(inbound), outbound: Arc::new(outbound) })
        };
        let next = peers.into_iter().map(sas).collect::<Result<Vec<_>>>()?;
        self.former = std::mem::replace(&mut self.current, next);
        Ok(())
    }

    /// The table for the workers.
    fn table(&self) -> Arc<Relay> {
        let mut table = Relay::default();
        table.set_carriers(self.carriers);
        // An SPI may be used again: the later SA has it.
        for sas in self.former.iter().chain(&self.current) {
            let accepted = table.accept(Arc::clone(&sas.inbound));
            debug_assert!(accepted, "control gives them SPIs of relay SAs");
        }
        for sas in &self.current {
            let known = table.send_by(sas.peer.node.get(), Arc::clone(&sas.outbound));
            debug_assert!(known, "a table has a place for each number of a node");
        }
        Arc::new(table)
    }

    /// Sets the path MTUs anew.
    pub(super) fn set_path_mtus(&self, path_mtu: impl Fn(IpAddr) -> u16) {
        for sas in &self.current {
            if let Err(error) = sas.outbound.set_path_mtu(path_mtu(sas.peer.remote)) {
                tracing::debug!("relay SA to node {}: {error}", sas.peer.node);
            }
        }
    }
}

impl DataPath {
    /// A view has begun: from now on packets are relayed by these SAs. Those of the view before are
    /// accepted until the next view begins.
    pub(crate) fn set_relay_peers(&mut self, peers: Vec<RelayPeer>) -> Result<()> {
        let Some(cluster) = &mut self.cluster else { return Ok(()) };
        let path_mtu = |remote| self.mtus.of(&self.fib, remote);
        cluster.relays.begin_view(peers, path_mtu, self.library)?;
        let table = cluster.relays.table();
        self.send(Command::SetRelay(table));
        Ok(())
    }

    /// Sets which node carries the packets of each shard. Those of this node's own shards are not
    /// relayed, whatever it says. So the next carrier of a shard can be set before
    /// [`DataPath::set_shards`] gives the shard up: in the other order a few packets would be
    /// dropped in between.
    pub(crate) fn set_carriers(&mut self, carriers: &[Option<NodeId>; SHARDS]) {
        let Some(cluster) = &mut self.cluster else { return };
        cluster.relays.carriers = carriers.map(|node| node.map(NodeId::get));
        let table = cluster.relays.table();
        self.send(Command::SetRelay(table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::spi::RelayKind;

    const MTU: u16 = 1500;

    /// Node 2 as node 1 sees it in a view.
    fn peer(view: u64) -> RelayPeer {
        let spi = |sender| Spi::of_relay(RelayKind::Whole, view, sender).unwrap();
        let key = |sender| Zeroizing::new([view as u8 * 2 + sender; RelayParams::KEY_LEN]);
        RelayPeer {
            node: NodeId::new(2).unwrap(),
            local: "10.255.0.1".parse().unwrap(),
            remote: "10.255.0.2".parse().unwrap(),
            spi_in: spi(2),
            spi_out: spi(1),
            key_in: key(0),
            key_out: key(1),
        }
    }

    fn accepted(relays: &Relays) -> Vec<u32> {
        relays.table().spis().map(|spi| spi.0).collect()
    }

    #[test]
    fn packets_of_the_view_before_are_accepted_and_none_of_earlier_ones() {
        let mut relays = Relays::new();
        assert!(accepted(&relays).is_empty());
        let mut begin = |view| {
            relays.begin_view(vec![peer(view)], |_| MTU, Library::AwsLc).unwrap();
            accepted(&relays)
        };
        assert_eq!(begin(0), [258]);
        assert_eq!(begin(1), [258, 290]);
        assert_eq!(begin(2), [290, 322]);
        // Alone in the next one.
        relays.begin_view(Vec::new(), |_| MTU, Library::AwsLc).unwrap();
        assert_eq!(accepted(&relays), [322]);
        relays.begin_view(Vec::new(), |_| MTU, Library::AwsLc).unwrap();
        assert!(accepted(&relays).is_empty());
    }

    /// Numbers never begin again under one key.
    #[test]
    fn a_view_with_the_same_keys_goes_on_with_the_same_numbers() {
        let mut relays = Relays::new();
        let mut begin = |view| {
            relays.begin_view(vec![peer(view)], |_| MTU, Library::AwsLc).unwrap();
            let sas = relays.current.first().unwrap();
            sas.outbound.numbers().reserve(5).first
        };
        assert_eq!([begin(0), begin(0), begin(1)], [1, 6, 1]);
    }

    #[test]
    fn ends_of_two_families_are_refused_and_change_nothing() {
        let mut relays = Relays::new();
        relays.begin_view(vec![peer(0)], |_| MTU, Library::AwsLc).unwrap();
        let odd = RelayPeer { remote: "2001:db8::2".parse().unwrap(), ..peer(1) };
        assert!(relays.begin_view(vec![odd], |_| MTU, Library::AwsLc).is_err());
        assert_eq!(accepted(&relays), [258]);
    }

    #[test]
    fn path_mtus_follow_the_routes() {
        let mut relays = Relays::new();
        relays.begin_view(vec![peer(0)], |_| MTU, Library::AwsLc).unwrap();
        relays.set_path_mtus(|_| 9000);
        assert_eq!(relays.current.first().unwrap().outbound.path_mtu(), 9000);
    }
}
