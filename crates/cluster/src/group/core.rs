//! What every part of a group works with: its settings, what it counts and logs, and what leaves
//! it.

use super::datagram::{Body, Datagrams, Refused, Sender};
use super::durable::Durable;
use super::heartbeat::{Heard, Heartbeat, half};
use super::roster::Rosters;
use super::status::{Counters, LogLimit, Topic};
use super::{GroupConfig, GroupOutput};
use crate::node::NodeId;
use std::collections::VecDeque;
use testudo_ike::output::{LogLevel, Time};
use testudo_ike::suite::Entropy;

/// See the module.
pub(super) struct Core {
    pub(super) config: GroupConfig,
    /// The nodes of the cluster, as far as this node has been told.
    pub(super) rosters: Rosters,
    entropy: Box<dyn Entropy + Send>,
    datagrams: Datagrams,
    /// A random number that tells this life of the node from earlier ones.
    boot: u64,
    pub(super) counters: Counters,
    logs: LogLimit,
    pub(super) outputs: VecDeque<GroupOutput>,
}

impl Core {
    /// At the start of a node.
    pub(super) fn new(config: GroupConfig, durable: &Durable, entropy: Box<dyn Entropy + Send>) -> Self {
        let mut core = Self {
            datagrams: Datagrams::new(&config.key),
            rosters: durable.rosters_or(&config.roster),
            config,
            entropy,
            boot: 0,
            counters: Counters::default(),
            logs: LogLimit::default(),
            outputs: VecDeque::new(),
        };
        core.draw_boot();
        core
    }

    /// This node.
    pub(super) fn node(&self) -> NodeId {
        self.config.node
    }

    /// The number of this life of the node.
    pub(super) fn boot(&self) -> u64 {
        self.boot
    }

    /// Another life of the node begins.
    pub(super) fn draw_boot(&mut self) {
        self.boot = u64::from_be_bytes(self.random());
    }

    /// Random octets.
    pub(super) fn random<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        self.entropy.fill(&mut octets);
        octets
    }

    /// Checks and reads a datagram that came over a link. `None` if it is not taken, which is
    /// counted.
    pub(super) fn read_datagram(&mut self, now: Time, link: u8, bytes: &[u8]) -> Option<(Sender, Body)> {
        match self.datagrams.read(bytes) {
            // Another link than it was sent over, or this node's own.
            Ok((sender, _)) if sender.link != link || sender.node == self.node() => {
                self.counters.replayed += 1;
            }
            // It asks another node.
            Ok((_, Body::Missing(node, _))) if node != self.node() => self.counters.replayed += 1,
            Ok(read) => return Some(read),
            Err(Refused::Malformed) => self.counters.malformed += 1,
            Err(Refused::OtherVersion) => {
                self.counters.other_version += 1;
                let line = "a datagram of another version of Testudo's cluster protocol is ignored";
                self.log_limited(now, Topic::Version, line.to_owned());
            }
            Err(Refused::Forged) => {
                self.counters.forged += 1;
                let line =
                    "a datagram with a wrong code is ignored: another cluster key, or not of this cluster";
                self.log_limited(now, Topic::Forged, line.to_owned());
            }
        }
        None
    }

    /// Sends a datagram to these nodes, over each of these links.
    pub(super) fn send(&mut self, to: &[NodeId], links: impl Iterator<Item = u8>, body: &Body) {
        for link in links {
            let sender = Sender { node: self.node(), boot: self.boot, link };
            let bytes = self.datagrams.write(sender, body);
            let datagram = |to: &NodeId| GroupOutput::Datagram { to: *to, link, bytes: bytes.clone() };
            self.outputs.extend(to.iter().map(datagram));
        }
    }

    /// What another node's heartbeat says of this node's.
    pub(super) fn heard_in<'a>(&self, heartbeat: &'a Heartbeat) -> Option<&'a Heard> {
        let this = (self.node().get(), half(self.boot));
        heartbeat.heard.iter().find(|heard| (heard.node, heard.boot) == this)
    }

    pub(super) fn log(&mut self, level: LogLevel, message: String) {
        self.outputs.push_back(GroupOutput::Log { level, message });
    }

    /// Logs a line that others can cause, once a second for each topic.
    pub(super) fn log_limited(&mut self, now: Time, topic: Topic, message: String) {
        if self.logs.admit(now, topic) {
            self.log(LogLevel::Warning, message);
        }
    }
}
