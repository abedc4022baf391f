//! The lanes that each node of a cluster carries.

use testudo_base::shard::SHARDS;
use testudo_base::spi::Shard;
use testudo_cluster::node::NodeId;
use testudo_cluster::shard::ranks;

/// The place of the carrier of each lane, among the nodes 1 to `nodes`, all of which are alive.
#[derive(Clone, Debug)]
pub(super) struct Carriers {
    nodes: usize,
    places: Vec<usize>,
}

impl Carriers {
    pub(super) fn of(nodes: u8) -> Self {
        let members: Vec<NodeId> = (1..=nodes.into()).filter_map(NodeId::new).collect();
        let place = |lane| {
            let first = ranks(lane, &members).first().copied();
            members.iter().position(|node| Some(*node) == first).unwrap_or_default()
        };
        Self { nodes: members.len(), places: (0..=u8::MAX).map(|lane| place(Shard(lane))).collect() }
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The place of the node that carries a lane.
    pub(super) fn place(&self, lane: Shard) -> usize {
        self.places[usize::from(lane.0)]
    }

    /// The share of all lanes that each node carries.
    pub(super) fn shares(&self) -> Vec<f64> {
        let lanes_of = |node| self.places.iter().filter(|place| **place == node).count();
        (0..self.nodes).map(|node| lanes_of(node) as f64 / SHARDS as f64).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_has_one_carrier() {
        for nodes in [1, 2, 3, 6, NodeId::MAX] {
            let carriers = Carriers::of(nodes);
            let shares = carriers.shares();
            assert_eq!((shares.len(), carriers.nodes()), (nodes.into(), nodes.into()));
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
            assert!(shares.iter().all(|share| *share > 0.0), "{shares:?}");
        }
    }
}
