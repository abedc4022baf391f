//! Whether a shard moves to the node that its packets reach. A move costs new number blocks for all
//! SAs of the shard and a rest of some milliseconds, so routes that flap must not move it to and
//! fro.

use crate::node::NodeId;
use crate::update::Preference;
use std::time::Duration;
use testudo_ike::output::Time;

/// After how many waits without a move the wait halves, and a preference without a reason ends.
const CALM_WAITS: u32 = 60;

/// How shards move to the nodes that their packets reach, with [`crate::group::Ingress::Routed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowConfig {
    /// The shards of this node move.
    pub follows: bool,
    /// How long most packets of a shard must reach another node before it moves there. Each move of
    /// the shard doubles this.
    pub wait: Duration,
    /// How often the wait doubles at most.
    pub max_doublings: u8,
    /// Packets a second; fewer move no shard.
    pub min_rate: u64,
}

impl Default for FollowConfig {
    fn default() -> Self {
        Self { follows: true, wait: Duration::from_secs(10), max_doublings: 6, min_rate: 10 }
    }
}

/// The packets of a shard in a second, as its owner knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// Those that the owner has accepted and worked on, whichever node they have reached.
    pub(super) carried: u64,
    /// Those that other nodes say they have relayed.
    pub(super) relayed: u64,
    /// The node that has relayed the most, and how many.
    pub(super) most: Option<(NodeId, u64)>,
}

impl Sample {
    /// The node that at least two thirds of the packets reach.
    fn reached(&self, own: NodeId, min_rate: u64) -> Option<NodeId> {
        let all = self.carried.max(self.relayed);
        let is_clear =
            |packets: u64| packets >= min_rate && packets.saturating_mul(3) >= all.saturating_mul(2);
        if is_clear(self.carried.saturating_sub(self.relayed)) {
            return Some(own);
        }
        // The owner accepts no forged packet. Without this, whoever knows an SPI could move shards.
        let is_accepted = self.carried.saturating_mul(2) >= self.relayed;
        self.most.filter(|(_, packets)| is_clear(*packets) && is_accepted).map(|(node, _)| node)
    }

    /// True if at least half of the packets reach the owner.
    fn is_at_home(&self, min_rate: u64) -> bool {
        self.carried >= min_rate && self.carried.saturating_sub(self.relayed) * 2 >= self.carried
    }
}

/// What the owner of a shard has seen of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damper {
    /// The node that most packets reach, and since when without a break.
    reached: Option<(NodeId, Time)>,
    /// Since when fewer than half of the packets reach the preferred node.
    unfounded_since: Option<Time>,
    /// When the preference was last changed, as far as this node knows.
    changed_at: Option<Time>,
}

impl Damper {
    /// Another node owns the shard, or it is being handed over: what was seen means nothing.
    pub(super) fn rest(&mut self) {
        (self.reached, self.unfounded_since) = (None, None);
    }

    /// The preference has been changed, in the total order.
    pub(super) fn changed(&mut self, now: Time) {
        self.changed_at = Some(now);
        self.rest();
    }

    /// Takes in a sample of this moment. Gives the preference that the shard is to have, if it is
    /// another one. It is given again with each sample until it is [`Self::changed`].
    pub(super) fn decide(
        &mut self,
        now: Time,
        own: NodeId,
        config: &FollowConfig,
        sample: &Sample,
        preference: Preference,
    ) -> Option<Preference> {
        let level = self.level(now, config, preference);
        let calm = config.wait.saturating_mul(CALM_WAITS);
        let reached = sample.reached(own, config.min_rate);
        self.reached = reached.map(|node| match self.reached {
            Some((before, since)) if before == node => (node, since),
            _ => (node, now),
        });
        let is_unfounded = preference.node == Some(own) && !sample.is_at_home(config.min_rate);
        self.unfounded_since = is_unfounded.then(|| self.unfounded_since.unwrap_or(now));
        if let Some((node, since)) = self.reached
            && now.since(since) >= config.wait.saturating_mul(1 << level.min(31))
        {
            // At the owner it changes something only if the shard should go elsewhere. What should
            // go to this node already waits for it: it is away, or cannot own shards.
            let moves = node != own;
            let wanted = preference.node != Some(node) && (moves || preference.node.is_some());
            let level = if moves { (level + 1).min(config.max_doublings) } else { level };
            return wanted.then_some(Preference { node: Some(node), level });
        }
        let ends = self.unfounded_since.is_some_and(|since| now.since(since) >= calm);
        ends.then_some(Preference { node: None, level })
    }

    /// How often the wait is doubled now.
    fn level(&self, now: Time, config: &FollowConfig, preference: Preference) -> u8 {
        let calm = config.wait.saturating_mul(CALM_WAITS);
        let rested = self.changed_at.map_or(0, |at| now.since(at).as_millis() / calm.as_millis().max(1));
        preference.level.saturating_sub(u8::try_from(rested).unwrap_or(u8::MAX)).min(config.max_doublings)
    }
}

#[cfg(test)]
mod tests;
