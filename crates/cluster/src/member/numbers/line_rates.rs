//! How many packets the ports of each node can bring it. What an owner may have taken in that
//! nobody has heard of is bounded by its own ports, and not by those of the node that takes over:
//! all nodes tell each other what theirs can bring.

use super::Numbers;
use crate::group::ViewStart;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{LINE_RATES, Op};
use std::collections::BTreeMap;

/// Of a node that has not told, in packets a second: 100 Gb/s of the smallest frames, as fast as
/// any that one host could follow. More than it has costs no more than a floor that the peer is
/// asked to skip to; less would let packets be accepted again.
pub(in crate::member) const ASSUMED_PACKETS_PER_SECOND: u64 = 148_809_523;

/// Packets a second that ports can bring in at most.
#[derive(Debug)]
pub(in crate::member) struct LineRates {
    own: u64,
    /// What this node has told of itself in this view.
    told: Option<u64>,
    /// Of the other nodes that may have carried anything since this node knows of it, also those
    /// that have left. `None`: they have not told.
    others: BTreeMap<NodeId, Option<u64>>,
}

impl LineRates {
    pub(in crate::member) fn new(own: u64) -> Self {
        Self { own, told: None, others: BTreeMap::new() }
    }

    /// Of the fastest node: a shard may have gone through several hands since its last high-water
    /// mark was told.
    pub(in crate::member) fn fastest(&self) -> u64 {
        let others = self.others.values().map(|rate| rate.unwrap_or(ASSUMED_PACKETS_PER_SECOND));
        others.fold(self.own, u64::max)
    }
}

impl Numbers {
    /// Packets a second that the ports of this node can bring it at most.
    pub(in crate::member) fn set_line_rate(&mut self, core: &mut Core, rate: u64) {
        self.line_rates.own = rate;
        self.tell_line_rate(core);
    }

    /// A view begins. What nodes told in another one counts for those that have heard all since;
    /// who comes may be another machine.
    pub(in crate::member) fn begin_line_rates(&mut self, core: &mut Core, start: &ViewStart) {
        let all_anew = start.reset || start.fresh.contains(&core.node) || core.view.version < LINE_RATES;
        let others = &mut self.line_rates.others;
        if all_anew {
            others.clear();
        }
        others.retain(|node, _| !start.fresh.contains(node));
        for node in start.view.members.iter().filter(|node| **node != core.node) {
            others.entry(*node).or_default();
        }
        self.line_rates.told = None;
        self.tell_line_rate(core);
    }

    fn tell_line_rate(&mut self, core: &mut Core) {
        let rate = self.line_rates.own;
        if core.view.running && core.view.version >= LINE_RATES && self.line_rates.told != Some(rate) {
            self.line_rates.told = Some(rate);
            core.publish(vec![Op::LineRate { rate }]);
        }
    }

    /// A node has told what its ports can bring it.
    pub(in crate::member) fn told_line_rate(&mut self, core: &Core, from: NodeId, rate: u64) {
        if from != core.node {
            self.line_rates.others.insert(from, Some(rate));
        }
    }
}
