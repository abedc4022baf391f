//! Following: where routers give each packet to one node
//! ([`crate::group::Ingress::Routed`]), a shard moves to the node that most of its packets reach.
//!
//! Each node counts, by shard, the packets that it relays, and tells the others once a second. The
//! owner of a shard knows how many it has worked on in all, so it knows how many have reached each
//! node. It publishes a **preference** in the total order; all nodes then agree that the shard is
//! misplaced, and it is handed over as usual. A preferred node that is away, drained or without a
//! port is passed over.
//!
//! Nothing is balanced here: the node that a packet reaches has the work of receiving and relaying
//! it in any case, so a shard that moves there makes the cluster's load smaller.

mod damper;

pub use damper::FollowConfig;

use super::Shards;
use crate::member::Member;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use crate::update::{Op, Preference};
use damper::{Damper, Sample};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::Shard;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};

/// Bound on the shards that an owner has moved at a time.
const MAX_MOVES_AT_ONCE: usize = 8;

/// Packets of each shard since this node began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPackets {
    /// Those that were relayed to the nodes that carry them.
    pub relayed: [u64; SHARDS],
    /// Those that were accepted and worked on here.
    pub carried: [u64; SHARDS],
}

impl Default for ShardPackets {
    fn default() -> Self {
        Self { relayed: [0; SHARDS], carried: [0; SHARDS] }
    }
}

/// What this node knows of the packets of shards.
#[derive(Debug)]
pub(in crate::member) struct Following {
    dampers: [Damper; SHARDS],
    /// The last count of this node.
    counted: Option<(Time, ShardPackets)>,
    /// The packets a second that other nodes have relayed, and when each said so.
    heard: BTreeMap<NodeId, Heard>,
}

#[derive(Debug)]
struct Heard {
    at: Time,
    rates: Vec<(Shard, u32)>,
}

/// A preference that this node is to publish, and how many packets a second that concerns.
struct Wanted {
    shard: Shard,
    preference: Preference,
    rate: u64,
}

impl Following {
    pub(in crate::member) fn new() -> Self {
        Self { dampers: [Damper::default(); SHARDS], counted: None, heard: BTreeMap::new() }
    }

    /// The packets a second that another node has relayed.
    pub(in crate::member) fn heard(&mut self, now: Time, from: NodeId, rates: Vec<(Shard, u32)>) {
        self.heard.insert(from, Heard { at: now, rates });
    }

    /// The preference of a shard has been changed.
    fn changed(&mut self, now: Time, shard: Shard) {
        if let Some(damper) = self.dampers.get_mut(usize::from(shard.0)) {
            damper.changed(now);
        }
    }

    /// Packets a second, by shard, since the last count, and the time since then.
    fn rates(&mut self, now: Time, packets: &ShardPackets) -> Option<(Duration, ShardPackets)> {
        let (at, before) = self.counted.replace((now, packets.clone()))?;
        let took = now.since(at);
        let millis = u64::try_from(took.as_millis()).ok().filter(|millis| *millis > 0)?;
        let rate = |now: &[u64; SHARDS], before: &[u64; SHARDS]| {
            let mut rates = [0; SHARDS];
            for ((rate, now), before) in rates.iter_mut().zip(now).zip(before) {
                *rate = now.saturating_sub(*before).saturating_mul(1000) / millis;
            }
            rates
        };
        let relayed = rate(&packets.relayed, &before.relayed);
        Some((took, ShardPackets { relayed, carried: rate(&packets.carried, &before.carried) }))
    }

    /// What other nodes have relayed of each shard. What is too old does not count: a node that
    /// relays nothing says so, too.
    fn samples(&self, now: Time, fresh: Duration, members: &[NodeId]) -> [Sample; SHARDS] {
        let mut samples = [Sample::default(); SHARDS];
        let counts =
            |(node, heard): &(&NodeId, &Heard)| members.contains(node) && now.since(heard.at) < fresh;
        for (node, heard) in self.heard.iter().filter(counts) {
            for (shard, rate) in &heard.rates {
                let Some(sample) = samples.get_mut(usize::from(shard.0)) else { continue };
                let rate = u64::from(*rate);
                sample.relayed = sample.relayed.saturating_add(rate);
                if sample.most.is_none_or(|(_, most)| rate > most) {
                    sample.most = Some((*node, rate));
                }
            }
        }
        samples
    }
}

impl Member {
    /// How many packets of each shard this node has relayed and carried so far. To be called about
    /// once a second where routers give each packet to one node.
    pub fn report_packets(&mut self, now: Time, packets: &ShardPackets) {
        self.shards.report_packets(&mut self.core, now, packets);
        self.pump(now);
    }

    /// True if shards move to the nodes that their packets reach.
    pub fn follows(&self) -> bool {
        self.core.can_follow()
    }
}

impl Shards {
    fn report_packets(&mut self, core: &mut Core, now: Time, packets: &ShardPackets) {
        if !core.is_routed() {
            return;
        }
        let Some((took, rates)) = self.following.rates(now, packets) else { return };
        if !core.can_follow() || !core.view.running {
            return;
        }
        let of_shards = (0..=u8::MAX).map(Shard).zip(rates.relayed);
        let relayed = of_shards.filter(|(_, rate)| *rate > 0);
        core.tell_rates(
            relayed.map(|(shard, rate)| (shard, u32::try_from(rate).unwrap_or(u32::MAX))).collect(),
        );
        let mut wanted = self.wanted(core, now, took * 5 / 2, &rates);
        wanted.sort_by_key(|wanted| Reverse(wanted.rate));
        wanted.truncate(MAX_MOVES_AT_ONCE);
        log(core, &wanted);
        let ops = wanted.into_iter().map(|Wanted { shard, preference, .. }| Op::Prefer { shard, preference });
        let ops: Vec<Op> = ops.collect();
        if !ops.is_empty() {
            core.publish(ops);
        }
    }

    /// The shards of this node that should be elsewhere.
    fn wanted(&mut self, core: &Core, now: Time, fresh: Duration, rates: &ShardPackets) -> Vec<Wanted> {
        let (own, config) = (core.node, core.config.follow);
        // Of any other shard this node does not see all packets.
        let owned = core.table.owned_by(own).intersection(self.shown.packets).without(self.handover.shards());
        let samples = self.following.samples(now, fresh, &core.view.members);
        let mut wanted = Vec::new();
        let each = (0..=u8::MAX).map(Shard).zip(samples).zip(rates.carried);
        for (((shard, sample), carried), damper) in each.zip(&mut self.following.dampers) {
            if !owned.contains(shard) || core.unheard_of.is_some() {
                damper.rest();
                continue;
            }
            let (sample, preference) = (Sample { carried, ..sample }, core.table.preference(shard));
            let decided = match config.follows {
                true => damper.decide(now, own, &config, &sample, preference),
                false => preference.node.map(|_| Preference { node: None, ..preference }),
            };
            // A node that gives its shards away may get packets for a while longer.
            let decided = decided.filter(|to| to.node.is_none_or(|node| !core.table.is_last(node)));
            wanted.extend(decided.map(|preference| Wanted { shard, preference, rate: carried }));
        }
        wanted
    }

    /// A node has published where a shard should be.
    pub(in crate::member) fn told_preference(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        shard: Shard,
        preference: Preference,
    ) {
        if !core.can_follow() {
            return;
        }
        self.following.changed(now, shard);
        if let Some(unheard) = &mut core.unheard_of {
            unheard.preferences.push((shard, preference));
            return;
        }
        let changes = core.table.prefer(shard, preference);
        let moves = preference.node.is_some_and(|node| core.table.owner(shard) != Some(node));
        core.counters.followed += u64::from(moves);
        self.ranks_changed(core, replication, now, changes);
        self.hand_over(core, replication, now);
    }

    /// A node that holds the state has published all preferences, for nodes that do not.
    pub(in crate::member) fn told_preferences(
        &mut self,
        core: &mut Core,
        now: Time,
        epoch: u64,
        of: Vec<(Shard, Preference)>,
    ) {
        let Some(unheard) = core.unheard_of.as_mut().filter(|_| epoch == core.view.epoch) else { return };
        if unheard.first_preferences.is_none() && !planted(Plant::PreferencesNotTold) {
            of.iter().for_each(|(shard, _)| self.following.changed(now, *shard));
            unheard.first_preferences = Some(of);
        }
    }
}

/// One line for each node that shards go to.
fn log(core: &mut Core, wanted: &[Wanted]) {
    let mut by_node: BTreeMap<Option<NodeId>, ShardSet> = BTreeMap::new();
    for Wanted { shard, preference, .. } in
        wanted.iter().filter(|wanted| wanted.preference.node != Some(core.node))
    {
        by_node.entry(preference.node).or_insert(ShardSet::EMPTY).insert(*shard);
    }
    for (node, shards) in by_node {
        let (noun, verb, whose) =
            if shards.len() == 1 { ("shard", "goes", "its") } else { ("shards", "go", "their") };
        let names: Vec<String> = shards.iter().map(|shard| shard.0.to_string()).collect();
        let where_to = match node {
            Some(node) => format!("to node {node}, which most of {whose} packets reach"),
            None => format!("back to where {whose} rank says"),
        };
        let line = format!("{noun} {} {verb} {where_to}", names.join(", "));
        core.log(LogLevel::Info, line);
    }
}

#[cfg(test)]
mod tests;
