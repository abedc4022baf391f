//! Inspection of a member, for comparing it with others.

use super::Member;
use std::hash::{DefaultHasher, Hash, Hasher};
use testudo_base::spi::Shard;
use testudo_ike::endpoint::Replication;
use testudo_ike::message::{IkeSpi, MessageId};

impl Member {
    /// A digest of the state on which all members that hold it must agree once nothing is under
    /// way: owners, preferences, IKE SAs and Child SAs, granted numbers, and the configuration.
    /// Comparable between nodes of one build. In a view with a member that does not know spread
    /// Child SAs, each is known to its owner alone until it is renewed.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for shard in (0..=u8::MAX).map(Shard) {
            let table = &self.core.table;
            (table.owner(shard), table.standby(shard), table.preference(shard)).hash(&mut hasher);
            for (spi, ike) in self.replication.replicas.ikes_of(shard) {
                (spi, ike.outline.commit, ike.outline.established).hash(&mut hasher);
            }
            let spread_too = self.core.can_spread();
            let children = self.replication.replicas.children_of(shard);
            for (spi, child) in children.filter(|(_, child)| spread_too || child.spread.is_none()) {
                (spi, child.ike, child.ledger.reserved, child.ledger.log2).hash(&mut hasher);
            }
        }
        self.configuration.configuration_digest().hash(&mut hasher);
        hasher.finish()
    }

    /// True if this node is the owner or the standby of the shard, by the last view and everything
    /// after it. No other node has numbers to send with in it.
    pub fn is_named(&self, shard: Shard) -> bool {
        [self.core.table.owner(shard), self.core.table.standby(shard)].contains(&Some(self.core.node))
    }

    /// How many IKE messages this node has relayed to others.
    pub fn relayed_ike(&self) -> u64 {
        self.core.counters.relayed_ike
    }

    /// Message ID of the peer's last request that was answered in the IKE SA with our SPI `ours`,
    /// whoever owns it. `None` if there is no such IKE SA here, or the peer has sent no request in
    /// it.
    pub fn last_answered(&self, ours: IkeSpi) -> Option<MessageId> {
        let replica = self.replication.replicas.ikes.get(&ours)?;
        match &replica.told {
            Some((_, state)) if replica.here.is_none() => Replication::last_answered_in(state.octets()),
            _ => self.core.endpoint.replication().last_answered(ours),
        }
    }
}
