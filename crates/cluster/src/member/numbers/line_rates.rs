//! Line rates: how many packets the ports of each node can receive. The packets that an owner may
//! have accepted without a report are bounded by its own ports, not by those of the node that takes
//! over, so all nodes publish their line rates.

use super::Numbers;
use crate::group::ViewStart;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{LINE_RATES, Op};
use std::collections::BTreeMap;

/// Assumed for a node that has not published its rate, in packets a second: 100 Gb/s of the
/// smallest frames, as much as one host could process. If it is too high, the floor is higher than
/// needed and the peer is asked to skip to it. If it were too low, packets could be accepted twice.
pub(in crate::member) const ASSUMED_PACKETS_PER_SECOND: u64 = 148_809_523;

/// The most packets a second that ports can receive.
#[derive(Debug)]
pub(in crate::member) struct LineRates {
    own: u64,
    /// The rate that this node has published in this view.
    told: Option<u64>,
    /// Rates of the other nodes that may have carried traffic since this node knows of it,
    /// including those that have left. `None`: not published.
    others: BTreeMap<NodeId, Option<u64>>,
}

impl LineRates {
    pub(in crate::member) fn new(own: u64) -> Self {
        Self { own, told: None, others: BTreeMap::new() }
    }

    /// The rate of the fastest node: a shard may have had several owners since its last high-water
    /// mark was reported.
    pub(in crate::member) fn fastest(&self) -> u64 {
        self.of_others().fold(self.own, u64::max)
    }

    /// The rate of all nodes together.
    pub(in crate::member) fn sum(&self) -> u64 {
        self.of_others().fold(self.own, u64::saturating_add)
    }

    fn of_others(&self) -> impl Iterator<Item = u64> + '_ {
        self.others.values().map(|rate| rate.unwrap_or(ASSUMED_PACKETS_PER_SECOND))
    }
}

impl Numbers {
    /// Sets the most packets a second that the ports of this node can receive.
    pub(in crate::member) fn set_line_rate(&mut self, core: &mut Core, rate: u64) {
        self.line_rates.own = rate;
        self.tell_line_rate(core);
    }

    /// A view begins. Rates of an earlier view stay for nodes that have held the state since; a
    /// node that joins may be another machine.
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

    /// A node has published its line rate.
    pub(in crate::member) fn told_line_rate(&mut self, core: &Core, from: NodeId, rate: u64) {
        if from != core.node {
            self.line_rates.others.insert(from, Some(rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::{has_published, id, member, view_start};

    /// A node that joins may be another machine. If this one has missed what others told, it knows
    /// none of their rates.
    #[test]
    fn rates_are_kept_for_nodes_that_have_held_the_state_since() {
        for (reset, fresh, version, kept) in [
            (false, vec![], LINE_RATES, vec![Some(7), Some(8)]),
            (false, vec![id(2)], LINE_RATES, vec![None, Some(8)]),
            (false, vec![id(1)], LINE_RATES, vec![None]),
            (true, vec![], LINE_RATES, vec![None]),
            (false, vec![], LINE_RATES - 1, vec![None]),
        ] {
            let member = &mut member();
            let (core, numbers) = (&mut member.core, &mut member.replication.numbers);
            core.view.version = version;
            numbers.told_line_rate(core, id(2), 7);
            numbers.told_line_rate(core, id(3), 8);
            let start = ViewStart { fresh, reset, version, ..view_start(&[1, 2]) };
            numbers.begin_line_rates(core, &start);
            assert_eq!(numbers.line_rates.others.values().copied().collect::<Vec<_>>(), kept, "{start:?}");
        }
    }

    #[test]
    fn the_rate_is_told_in_a_view_whose_nodes_know_of_rates_and_once() {
        let member = &mut member();
        let (core, numbers) = (&mut member.core, &mut member.replication.numbers);
        let mut told = |running, version, rate| {
            (core.view.running, core.view.version) = (running, version);
            numbers.set_line_rate(core, rate);
            (has_published(core), numbers.line_rates.told)
        };
        assert_eq!(told(false, LINE_RATES, 5), (false, None));
        assert_eq!(told(true, LINE_RATES - 1, 5), (false, None));
        assert_eq!(told(true, LINE_RATES, 5), (true, Some(5)));
    }
}
