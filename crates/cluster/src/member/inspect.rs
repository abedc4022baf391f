//! What a member can be asked by who compares it with others.

use super::Member;
use std::hash::{DefaultHasher, Hash, Hasher};
use testudo_base::spi::Shard;
use testudo_ike::endpoint::Replication;
use testudo_ike::message::{IkeSpi, MessageId};

impl Member {
    /// A digest of what all members that hold the state must agree on once nothing is under way:
    /// who owns what, which IKE SAs and Child SAs there are, and how far numbers are given away,
    /// how all are configured. Comparable between nodes of one build.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for shard in (0..=u8::MAX).map(Shard) {
            (self.core.table.owner(shard), self.core.table.standby(shard)).hash(&mut hasher);
            for (spi, ike) in self.replication.replicas.ikes_of(shard) {
                (spi, ike.outline.commit, ike.outline.established).hash(&mut hasher);
            }
            for (spi, child) in self.replication.replicas.children_of(shard) {
                (spi, child.ike, child.ledger.reserved, child.ledger.log2).hash(&mut hasher);
            }
        }
        self.configuration.configuration_digest().hash(&mut hasher);
        hasher.finish()
    }

    /// True if this node is the owner or the standby of the shard, as the last view and all that
    /// followed say. Nobody else has numbers to send with in it.
    pub fn is_named(&self, shard: Shard) -> bool {
        [self.core.table.owner(shard), self.core.table.standby(shard)].contains(&Some(self.core.node))
    }

    /// The number of the last request of the peer that was answered in the IKE SA for which we
    /// chose that SPI, whoever owns it. `None`: there is no such IKE SA here, or nothing was asked
    /// in it.
    pub fn last_answered(&self, ours: IkeSpi) -> Option<MessageId> {
        let replica = self.replication.replicas.ikes.get(&ours)?;
        match &replica.told {
            Some((_, state)) if replica.here.is_none() => Replication::last_answered_in(state.octets()),
            _ => self.core.endpoint.replication().last_answered(ours),
        }
    }
}
