//! Path MTUs. The node that sends on a path learns its MTU, and all nodes get to know it, because
//! the next owner of a shard sends on its paths.

use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{Op, PathMtu};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::output::Time;
use testudo_ipsec::pmtu::PathMtus;

/// Bound on the paths of one update.
const MAX_PATHS_PER_UPDATE: usize = 512;

/// The path MTUs that all nodes know.
#[derive(Debug, Default)]
pub(in crate::member) struct Paths {
    known: PathMtus,
    /// Path MTUs learned while there was no view.
    untold: BTreeMap<IpAddr, u16>,
}

impl Paths {
    /// This node has learned, for the first time or again, the MTU of the path to `remote`.
    pub(in crate::member) fn learned_path_mtu(
        &mut self,
        core: &mut Core,
        now: Time,
        remote: IpAddr,
        mtu: u16,
    ) {
        // What is known here has been published. Routers report an MTU with every packet, so a
        // known one is published again only now and then: often enough that the next owner of a
        // shard knows it for at least half its life.
        if !self.known.is_worth_telling(now.0, remote, mtu) {
            return;
        }
        if !core.view.running {
            // The router will not repeat it, because no packet of this size is sent any more.
            if self.untold.len() < MAX_PATHS_PER_UPDATE {
                self.untold.insert(remote, mtu);
            }
            return;
        }
        self.known.learn(now.0, remote, mtu);
        if self.known.get(now.0, remote) == Some(mtu) {
            core.publish(vec![Op::PathMtus(vec![PathMtu { remote, mtu, age: 0 }])]);
        }
    }

    /// A view has begun: publishes what was learned while there was none.
    pub(in crate::member) fn tell_untold_paths(&mut self, core: &mut Core, now: Time) {
        for (remote, mtu) in std::mem::take(&mut self.untold) {
            self.learned_path_mtu(core, now, remote, mtu);
        }
    }

    /// Another node has published path MTUs.
    pub(in crate::member) fn path_mtus_told(&mut self, core: &mut Core, now: Time, paths: &[PathMtu]) {
        for PathMtu { remote, mtu, age } in paths.iter().copied() {
            let at = Time(now.0.saturating_sub(Duration::from_secs(age.into())));
            self.known.learn(at.0, remote, mtu);
            let age = now.since(at);
            core.outputs.push_back(MemberOutput::PathMtu { remote, mtu, age });
        }
    }

    /// New nodes receive all path MTUs from the first of the nodes that hold the state.
    pub(in crate::member) fn tell_path_mtus(&mut self, core: &mut Core, now: Time, current: &[NodeId]) {
        if current.first() != Some(&core.node) {
            return;
        }
        let age = |age: Duration| u16::try_from(age.as_secs()).unwrap_or(u16::MAX);
        let all: Vec<PathMtu> =
            self.known.all(now.0).map(|(remote, mtu, at)| PathMtu { remote, mtu, age: age(at) }).collect();
        let ops: Vec<Op> =
            all.chunks(MAX_PATHS_PER_UPDATE).map(|paths| Op::PathMtus(paths.to_vec())).collect();
        core.publish(ops);
    }
}

#[cfg(test)]
mod tests {
    use crate::member::Member;
    use crate::member::samples::{START, has_published, id, routed_member};

    #[test]
    fn new_nodes_receive_path_mtus_from_the_first_node_that_holds_the_state() {
        let Member { mut core, mut replication, .. } = routed_member();
        replication.paths.learned_path_mtu(&mut core, START, "192.0.2.9".parse().unwrap(), 1400);
        assert!(has_published(&mut core));
        for (current, tells) in [([1, 2], true), ([2, 1], false)] {
            replication.paths.tell_path_mtus(&mut core, START, &current.map(id));
            assert_eq!(has_published(&mut core), tells);
        }
    }
}
