//! The home node of a handshake, computed from outside with the cluster's key.

use crate::setup::initiator::Initiator;
use std::fs;
use testudo_base::siphash::SipKey;
use testudo_cluster::dispatch::{hash_key, ike_shard};
use testudo_cluster::group::ClusterKey;
use testudo_cluster::node::NodeId;
use testudo_cluster::shard::ranks;
use testudo_lab::{Error, Lab, Result};

/// The nodes and their key.
pub(super) struct Homes {
    key: SipKey,
    nodes: Vec<NodeId>,
}

impl Homes {
    /// The nodes of the cluster in that lab, all of which are running.
    pub(super) fn of(lab: &Lab, nodes: u8) -> Result<Self> {
        let path = lab.dir().join("cluster.key");
        let text = fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?;
        let octet =
            |n: usize| text.get(2 * n..2 * n + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let mut key = [0; ClusterKey::LEN];
        for (n, place) in key.iter_mut().enumerate() {
            let wrong = || Error::unexpected(path.display().to_string(), "hexadecimal digits", "others");
            *place = octet(n).ok_or_else(wrong)?;
        }
        let nodes = (1..=u32::from(nodes)).filter_map(NodeId::new).collect();
        Ok(Self { key: hash_key(&ClusterKey::new(key)), nodes })
    }

    /// The number of the node that will answer it.
    pub(super) fn node(&self, initiator: &Initiator) -> Option<u32> {
        let shard = ike_shard(self.key, initiator.first_message()?)?;
        ranks(shard, &self.nodes).first().map(|node| u32::from(node.get()))
    }
}
