//! What paths take is learned by the node that sends on them, and known to all: whoever takes a
//! shard over sends on them next.

use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{Op, PathMtu};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::output::Time;
use testudo_ipsec::pmtu::PathMtus;

/// Paths of one update.
const MAX_PATHS_PER_UPDATE: usize = 512;

/// What the paths of all nodes take.
#[derive(Debug, Default)]
pub(in crate::member) struct Paths {
    known: PathMtus,
    /// What was learned of them while there was nobody to tell.
    untold: BTreeMap<IpAddr, u16>,
}

impl Paths {
    /// This node has heard, for the first time or again, that the path to there takes no more than
    /// that.
    pub(in crate::member) fn learned_path_mtu(
        &mut self,
        core: &mut Core,
        now: Time,
        remote: IpAddr,
        mtu: u16,
    ) {
        // What is known here is what all have been told. Routers repeat themselves with every
        // packet: what all know is told again only now and then, so that whoever takes the shard
        // over knows it for half its life at least.
        if !self.known.is_worth_telling(now.0, remote, mtu) {
            return;
        }
        if !core.view.running {
            // The router does not repeat it, for nothing as large is sent any more.
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

    /// A view has begun: what was heard when there was none is told.
    pub(in crate::member) fn tell_untold_paths(&mut self, core: &mut Core, now: Time) {
        for (remote, mtu) in std::mem::take(&mut self.untold) {
            self.learned_path_mtu(core, now, remote, mtu);
        }
    }

    /// Another node has learned it.
    pub(in crate::member) fn path_mtus_told(&mut self, core: &mut Core, now: Time, paths: &[PathMtu]) {
        for PathMtu { remote, mtu, age } in paths.iter().copied() {
            let at = Time(now.0.saturating_sub(Duration::from_secs(age.into())));
            self.known.learn(at.0, remote, mtu);
            let age = now.since(at);
            core.outputs.push_back(MemberOutput::PathMtu { remote, mtu, age });
        }
    }

    /// Who is new hears all of them, from the first of those who know.
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
