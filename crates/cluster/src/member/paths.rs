//! What paths take is learned by the node that sends on them, and known to all: whoever takes a shard over sends on them next.

use super::{Member, MemberOutput};
use crate::node::NodeId;
use crate::update::{Op, PathMtu};
use std::net::IpAddr;
use std::time::Duration;
use testudo_ike::output::Time;

/// Paths of one update.
const AT_ONCE: usize = 512;

impl Member {
    /// This node has heard, for the first time or again, that the path to there takes no more than that.
    pub fn learned_path_mtu(&mut self, now: Time, remote: IpAddr, mtu: u16) {
        // What is known here is what all have been told. Routers repeat themselves with every packet: what all know is told again
        // only now and then, so that whoever takes the shard over knows it for half its life at least.
        if !self.paths.is_worth_telling(now.0, remote, mtu) {
            return;
        }
        if !self.running {
            // The router does not repeat it, for nothing as large is sent any more.
            if self.untold_paths.len() < AT_ONCE {
                self.untold_paths.insert(remote, mtu);
            }
            return;
        }
        self.paths.learn(now.0, remote, mtu);
        if self.paths.get(now.0, remote) == Some(mtu) {
            self.publish(vec![Op::PathMtus(vec![PathMtu { remote, mtu, age: 0 }])]);
        }
    }

    /// A view has begun: what was heard when there was none is told.
    pub(super) fn tell_untold_paths(&mut self, now: Time) {
        for (remote, mtu) in std::mem::take(&mut self.untold_paths) {
            self.learned_path_mtu(now, remote, mtu);
        }
    }

    /// Another node has learned it.
    pub(super) fn path_mtus_told(&mut self, now: Time, paths: &[PathMtu]) {
        for PathMtu { remote, mtu, age } in paths.iter().copied() {
            let at = Time(now.0.saturating_sub(Duration::from_secs(age.into())));
            self.paths.learn(at.0, remote, mtu);
            let age = now.since(at);
            self.outputs.push_back(MemberOutput::PathMtu { remote, mtu, age });
        }
    }

    /// Who is new hears all of them, from the first of those who know.
    pub(super) fn tell_path_mtus(&mut self, now: Time, current: &[NodeId]) {
        if current.first() != Some(&self.node) {
            return;
        }
        let age = |age: Duration| u16::try_from(age.as_secs()).unwrap_or(u16::MAX);
        let all: Vec<PathMtu> =
            self.paths.all(now.0).map(|(remote, mtu, at)| PathMtu { remote, mtu, age: age(at) }).collect();
        let ops: Vec<Op> = all.chunks(AT_ONCE).map(|paths| Op::PathMtus(paths.to_vec())).collect();
        self.publish(ops);
    }
}
