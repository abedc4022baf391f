//! Whatever views come and break off: nodes that are current agree, and hold what was stable.

use super::net::{Net, id};
use super::views::{current_and_fresh, numbers};
use crate::group::Ticket;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Does what the layer above does for fresh nodes.
fn bring_up_to_date(net: &mut Net) {
    for number in net.all.clone() {
        let node = &net.nodes[&number];
        let Some(start) = node.views.last().filter(|_| node.in_view) else {
            continue;
        };
        if !start.fresh.contains(&id(number)) || node.group.views.history.is_synced() {
            continue;
        }
        let mut current = start.current.iter().map(|holder| &net.nodes[&holder.get()]);
        let holder = current.find(|holder| holder.in_view && holder.ring == node.ring);
        if let Some(updates) = holder.map(|holder| holder.updates.clone()) {
            net.node(number).updates = updates;
            net.node(number).group.synced();
        }
    }
}

/// The nodes but this one.
fn others(of: u8) -> Vec<u8> {
    (1..=3).filter(|node| *node != of).collect()
}

/// Three nodes, and what they have published.
struct World {
    net: Net,
    published: BTreeMap<(u8, Ticket), u8>,
    /// What has been stable since all began with nothing.
    kept: BTreeSet<(u8, u8)>,
    counter: u8,
}

impl World {
    fn new() -> Self {
        Self { net: Net::new(3), published: BTreeMap::new(), kept: BTreeSet::new(), counter: 0 }
    }

    /// This node is alone from now on.
    fn split(&mut self, alone: u8) {
        self.net.view(&[alone], false);
        self.net.view(&others(alone), true);
    }

    fn settle(&mut self) {
        self.net.settle();
        bring_up_to_date(&mut self.net);
    }

    /// The next message is delivered to one node, and then lost. That node is alone afterwards.
    fn deliver_to_one_alone(&mut self, node: u8) {
        let Some((ring, _, from, bytes)) = self.net.order.pop_front() else { return };
        self.net.deliver_to(node, ring, from, &bytes);
        self.net.order.clear();
        self.net.collect();
        self.split(node);
    }

    fn publish(&mut self, node: u8) {
        self.counter = self.counter.wrapping_add(1);
        let ticket = self.net.publish(node, &[self.counter]);
        self.published.insert((node, ticket), self.counter);
        self.net.collect();
    }

    /// The node forgets all but what is on its disk.
    fn restart(&mut self, node: u8) {
        self.published.retain(|(publisher, _), _| *publisher != node);
        self.net.restart(node);
    }

    fn step(&mut self, kind: u8, value: u8) {
        let node = value % 3 + 1;
        match kind {
            0 => self.net.view(&[1, 2, 3], true),
            1 => self.split(node),
            2 | 3 => self.settle(),
            4 => self.deliver_to_one_alone(node),
            5 => self.net.carry(),
            6..8 => {
                self.net.deliver();
            }
            8..12 => self.publish(node),
            _ => self.restart(node),
        }
        self.net.now = self.net.now.plus(Duration::from_millis(1));
    }

    /// What is stable at its publisher: that node, and the update.
    fn stable(&self) -> Vec<(u8, u8)> {
        let is_stable = |(node, ticket): &(u8, Ticket)| *ticket == self.net.nodes[node].stable;
        let stable = self.published.iter().filter(|(name, _)| is_stable(name));
        stable.map(|((node, _), update)| (*node, *update)).collect()
    }

    fn held(&self, node: u8) -> &[(u8, Vec<u8>)] {
        &self.net.nodes[&node].updates
    }

    /// True if more than half of the nodes remember a state: they held it in the last view that
    /// they have begun, or have been brought up to date there.
    fn is_held(&self) -> bool {
        let holders = self.net.nodes.values().filter(|node| node.group.views.history.is_synced()).count();
        holders * 2 > self.net.nodes.len()
    }

    /// Does something, and looks at the views that begin by it. Any two majorities have a node in
    /// common, so no view may begin with nothing while a majority holds a state. Without such a
    /// majority the state may be lost. Then nothing can be said of what came before, and all that
    /// comes after counts again.
    fn watch(&mut self, act: impl FnOnce(&mut Self)) -> Result<(), TestCaseError> {
        let was_held = self.is_held();
        let before: BTreeMap<u8, usize> =
            self.net.nodes.iter().map(|(number, node)| (*number, node.views.len())).collect();
        act(self);
        let mut begun =
            self.net.nodes.iter().flat_map(|(number, node)| node.views.iter().skip(before[number]));
        if let Some(start) = begun.find(|start| start.reset) {
            prop_assert!(!was_held, "{:?} begins with nothing", start);
            self.published.clear();
            self.kept.clear();
        }
        self.kept.extend(self.stable());
        Ok(())
    }
}

/// Node 1 was fresh in a view that began nowhere else. It forgot what was stable in the one before,
/// and node 2 was never in that one.
#[test]
fn who_was_fresh_in_a_void_view_knows_in_which_view_it_was_before() {
    let mut world = World::new();
    world.net.view(&[1, 2, 3], true);
    world.settle();
    world.split(2);
    world.publish(3);
    world.settle();
    assert_eq!(world.stable(), [(3, 1)], "nodes 1 and 3 have acknowledged it");
    world.publish(3);
    world.deliver_to_one_alone(3);
    // Node 3 has had a message more than node 1. The last STATUS comes to node 1 only.
    world.net.view(&[1, 2, 3], true);
    world.net.deliver();
    world.net.deliver();
    world.deliver_to_one_alone(1);
    let begun = |node: u8| {
        let third = world.net.nodes[&node].views.iter().filter(|start| start.epoch == 3);
        third.filter(|start| start.view.quorate).map(|start| numbers(&start.current)).collect::<Vec<_>>()
    };
    assert_eq!([1, 2, 3].map(begun), [vec![vec![3]], vec![], vec![]], "at node 1 only, which is fresh");
    // Nodes 1 and 2 are together, without the node that holds the state.
    world.deliver_to_one_alone(3);
    world.net.settle();
    assert!(world.net.node(2).log.iter().any(|line| line.ends_with("waiting for nodes 3")));
    world.net.view(&[1, 2, 3], true);
    world.settle();
    assert_eq!(current_and_fresh(&world.net, 2), (vec![3], vec![1, 2]));
    (1..=3).for_each(|node| assert_eq!(world.held(node)[0], (3, vec![1]), "node {node}"));
}

fn agree_after(steps: Vec<(u8, u8)>) -> Result<(), TestCaseError> {
    let mut world = World::new();
    for (kind, value) in steps {
        world.watch(|world| world.step(kind, value))?;
    }
    world.watch(|world| world.net.settle())?;
    world.watch(|world| {
        world.net.view(&[1, 2, 3], true);
        world.net.settle();
    })?;
    let start = world.net.nodes[&1].last_view();
    prop_assert_eq!(start.current.len() + start.fresh.len(), 3);
    let current = numbers(&start.current);
    for pair in current.windows(2) {
        prop_assert_eq!(world.held(pair[0]), world.held(pair[1]));
    }
    for node in current {
        for (from, update) in &world.kept {
            let is_held = world.held(node).contains(&(*from, vec![*update]));
            prop_assert!(is_held, "node {} lacks {}", node, update);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Compares with a plain model. Whatever views come, and whatever an engine loses, nodes that
    /// are current together have had the same updates, and all nodes that are current later hold
    /// every update that was stable.
    #[test]
    fn current_nodes_agree_and_keep_what_was_stable(
        steps in prop::collection::vec((0_u8..12, any::<u8>()), 1..60),
    ) {
        agree_after(steps)?;
    }

    /// The same, and nodes forget. The state is lost only if a majority does.
    #[test]
    fn current_nodes_agree_and_keep_what_was_stable_when_nodes_begin_again(
        steps in prop::collection::vec((0_u8..13, any::<u8>()), 1..60),
    ) {
        agree_after(steps)?;
    }
}
