//! A member of the cluster: IKE, what it holds of all SAs, and its part of the shards.
//!
//! Sans-IO like the [`Group`] below it and the [`Endpoint`] in it. The host hands in what comes,
//! calls [`Member::pump`] at the end of each of its turns, and does what [`Member::poll_output`]
//! asks for, in order.

mod apply;
mod asks;
mod config;
mod configuration;
mod core;

#[cfg(test)]
mod counter;
mod inspect;
mod listing;
mod numbers;
mod output;
mod replication;
mod shards;
mod status;
mod view;

pub use crate::update::{Ask, Class, Effect, PieceName, Sa};
pub use asks::AskError;
pub use config::MemberConfig;
pub use configuration::{ConfigurationStatus, Difference, Found};
pub use listing::RemoteSas;
pub use output::{Flushed, MemberOutput, TakenIn};
pub use replication::changes::{IkeUpdateCounts, MessageCount};
pub use shards::drain::DrainError;
pub use shards::handover::HandoverStage;
pub use status::{ClusterStatus, MemberCounters};

use self::core::Core;
use crate::engine::EngineEvent;
use crate::group::{Durable, GroupOutput};
use crate::node::NodeId;
use asks::Asks;
use configuration::Configuration;
use replication::Replication;
use shards::Shards;
use shards::takeover::Take;
use std::net::IpAddr;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::endpoint::Endpoint;
use testudo_ike::output::{Event, LogLevel, Output, Path, Time, UnixTime};
use testudo_ike::suite::Entropy;
use testudo_planted::{Plant, planted};

/// No more are told in one turn of the host: heartbeats must not wait for them.
const MAX_CHUNKS_PER_TURN: usize = 8;

/// Neighbours that are told of at most.
const MAX_NEIGHBOURS: usize = 1024;

/// One node's part of the cluster.
pub struct Member {
    core: Core,
    replication: Replication,
    shards: Shards,
    configuration: Configuration,
    asks: Asks,
}

impl Member {
    /// A node begins, with what [`MemberOutput::Persist`] told last. `entropy` is for the group,
    /// and for IKE.
    pub fn new(
        config: MemberConfig,
        durable: Durable,
        entropy: [Box<dyn Entropy + Send>; 2],
        now: Time,
    ) -> Self {
        let cluster_key = config.group.key.octets();
        let mut member = Self {
            configuration: Configuration::new(cluster_key, config.replicate_configuration),
            replication: Replication::new(config.line_rate),
            core: Core::new(config, durable, entropy, now),
            shards: Shards::new(),
            asks: Asks::default(),
        };
        member.shards.update_homes(&mut member.core, now);
        member
    }

    /// Its number.
    pub fn node(&self) -> NodeId {
        self.core.node
    }

    /// IKE: what it has, and how it is set.
    pub fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// The same, to load, initiate, terminate. [`Self::pump`] it afterwards.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.core.endpoint
    }

    /// By what clear traffic, and the first message of IKE, find their homes.
    pub fn hash_key(&self) -> SipKey {
        self.core.key
    }

    /// Tells what time of day it is, to IKE and for cookies.
    pub fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        self.core.shared.set_unix_time(now, unix.0);
        self.core.endpoint.set_unix_time(now, unix);
    }

    /// An IKE message arrived (without the non-ESP marker).
    pub fn handle_ike(&mut self, now: Time, path: Path, bytes: &[u8]) {
        if self.core.may_speak(now) && self.shards.is_ours(&mut self.core, &mut self.replication, now, bytes)
        {
            self.core.endpoint.handle_datagram(now, path, bytes);
            self.replication.turn(&mut self.core, now);
        }
    }

    /// A datagram of another node came over a link.
    pub fn handle_heartbeat(&mut self, now: Time, link: u8, bytes: &[u8]) {
        self.core.group.handle_datagram(now, link, bytes);
        self.hear_group(now);
    }

    /// The engine has a new view, a message, or something else to tell.
    pub fn handle_engine(&mut self, now: Time, event: EngineEvent) {
        self.core.group.handle_event(now, event);
        self.hear_group(now);
    }

    /// The engine did not take what [`MemberOutput::Multicast`] gave.
    pub fn multicast_refused(&mut self, now: Time, bytes: Vec<u8>) {
        // What comes behind it must not get in front of it.
        while let Some(later) = self.core.multicasts.pop_back() {
            self.core.group.multicast_refused(now, later);
        }
        self.core.group.multicast_refused(now, bytes);
    }

    /// The engine takes messages again.
    pub fn multicast_ready(&mut self) {
        self.core.group.multicast_ready();
    }

    /// The time of [`Self::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.core.looked = now;
        self.core.group.handle_timeout(now);
        self.hear_group(now);
        self.replication.numbers.use_more_blocks(&mut self.core, &mut self.replication.replicas);
        self.shards.take_what_is_due(&mut self.core, &mut self.replication, now);
        self.shards.expire_arrivals(&mut self.core, &mut self.replication, now);
        self.shards.freeze(&mut self.core, &mut self.replication, now);
        self.shards.bump(&mut self.core, &mut self.replication, now);
        self.shards.import_some(&mut self.core, &mut self.replication, now);
        self.shards.renew_what_is_doubtful(&mut self.core, &mut self.replication, now);
        self.asks.do_what_is_asked(&mut self.core, &mut self.replication, &mut self.shards, now);
        self.configuration.tell_manifest(&mut self.core, now);
        self.shards.sync_some(&mut self.core, now);
        if self.core.may_speak(now) {
            self.core.endpoint.handle_timeout(now);
        }
        self.replication.turn(&mut self.core, now);
        self.tell_more(now);
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        let takes = self.shards.takes.iter().filter(|_| self.core.view.running).filter_map(Take::at).min();
        let imports = self.core.sender.is_some() && !self.shards.imported.is_empty();
        let at_once =
            (imports || self.replication.tells_more(&self.core) || self.replication.numbers.has_blocks())
                .then_some(Time::default());
        // Without a voice its deadlines wait.
        let ike =
            self.core.endpoint.next_timeout().filter(|at| self.core.may_speak(self.core.looked.max(*at)));
        let syncs =
            self.shards.syncs.next_timeout().filter(|at| self.core.may_speak(self.core.looked.max(*at)));
        let own = [takes, at_once, ike, syncs, self.shards.arrivals.next_timeout()];
        let others = [
            self.asks.next_timeout(),
            self.configuration.next_manifest(&self.core),
            self.shards.next_freeze(&self.core),
        ];
        own.into_iter().chain(others).chain([self.core.group.next_timeout()]).flatten().min()
    }

    /// The machine has gone back to an earlier state: nothing that this node holds is valid any
    /// more.
    pub fn rolled_back(&mut self, now: Time) {
        self.core.group.rolled_back(now);
        (self.core.sender, self.core.view.running, self.core.view.quorate) = (None, false, false);
        self.core.outputs.push_back(MemberOutput::ForgetSender);
        // The data plane has gone back too, to blocks that it has used up since: its SAs go, and
        // come with new ones.
        self.void(now, true);
        self.shards.takes.clear();
        (self.shards.provisional, self.shards.inherited) = (ShardSet::EMPTY, ShardSet::EMPTY);
        self.shards.show(&mut self.core, &mut self.replication, now);
        self.hear_group(now);
    }

    /// The machine may have gone back to an earlier state: nothing encrypted leaves until another
    /// sender ID has been granted, so that no IV comes again. What this node holds it keeps; if it
    /// is too old, the others' engine has gone on without it.
    pub fn doubts_itself(&mut self, now: Time) {
        self.core.sender = None;
        self.core.outputs.push_back(MemberOutput::ForgetSender);
        self.core.group.renew_sender(now);
        self.hear_group(now);
    }

    /// The disk has what [`MemberOutput::Persist`] told.
    pub fn persisted(&mut self, now: Time, durable: &Durable) {
        self.core.group.persisted(durable);
        self.hear_group(now);
    }

    /// The health of a port: carrier, driver.
    pub fn set_link(&mut self, now: Time, link: u8, up: bool) {
        self.core.group.set_link(now, link, up);
        self.hear_group(now);
    }

    /// How much of one processor the host takes, in thousandths: for the other nodes to show.
    pub fn set_load(&mut self, load: u16) {
        self.shards.load = load;
        self.shards.tell_used(&mut self.core);
    }

    /// Which neighbours this node knows, by the ports' places in the configuration: whoever is
    /// given shards asks for them in time.
    pub fn set_neighbours(&mut self, neighbours: impl Iterator<Item = (u8, IpAddr)>) {
        self.shards.neighbours.clear();
        self.shards.neighbours.extend(neighbours.take(MAX_NEIGHBOURS));
    }

    /// IVs run low: another sender ID is wanted.
    pub fn renew_sender(&mut self, now: Time) {
        self.core.group.renew_sender(now);
    }

    /// The host's turn ends: what has changed is told to the others.
    pub fn pump(&mut self, now: Time) {
        self.replication.turn(&mut self.core, now);
        self.configuration.tell_untold_pieces(&mut self.core);
        self.core.group.flush(now);
        self.hear_group(now);
    }

    /// The next thing for the host to do.
    pub fn poll_output(&mut self) -> Option<MemberOutput> {
        let next = self.core.outputs.pop_front();
        next.or_else(|| self.core.multicasts.pop_front().map(MemberOutput::Multicast))
    }

    /// Says the next part, as soon as enough of what went before has reached everybody.
    pub(super) fn tell_more(&mut self, now: Time) {
        for _ in 0..MAX_CHUNKS_PER_TURN {
            if self.replication.tells_more(&self.core) {
                self.replication.tell_next(&mut self.core, &self.configuration, now);
                self.shards.hand_over(&mut self.core, &mut self.replication, now);
            }
        }
    }

    /// Takes in what the group has to tell, in its order.
    fn hear_group(&mut self, now: Time) {
        while let Some(output) = self.core.group.poll_output() {
            match output {
                GroupOutput::View(start) => self.view(now, start),
                GroupOutput::NoView => {
                    self.core.view.running = false;
                    // Of a ring that is over. What counts of it is said again in the next.
                    self.core.multicasts.clear();
                    self.core.view.no_view.get_or_insert(now);
                }
                GroupOutput::Delivered { from, at, update } => self.delivered(now, from, at, &update),
                GroupOutput::Stable(ticket) => {
                    self.core.commits.set_stable(ticket);
                    self.replication
                        .numbers
                        .own_blocks_stable(&mut self.core, &mut self.replication.replicas);
                    self.core.release(now, ticket);
                    self.replication.chunks_arrived(&self.core, now);
                    self.shards.bumped(&self.core);
                    self.shards.freeze(&mut self.core, &mut self.replication, now);
                    self.shards.show(&mut self.core, &mut self.replication, now);
                }
                GroupOutput::StableUpTo(at) => {
                    self.core.view.stable_upto = self.core.view.stable_upto.max(at);
                    self.replication.numbers.standby_blocks_stable(
                        &mut self.core,
                        &mut self.replication.replicas,
                        at,
                    );
                    self.shards.take_what_is_due(&mut self.core, &mut self.replication, now);
                }
                GroupOutput::Suspected(node) => {
                    self.core
                        .log(LogLevel::Warning, format!("node {node} is suspected: nothing is heard of it"));
                    self.shards.suspects.insert(node);
                    self.shards.provide(&mut self.core, &mut self.replication, now);
                }
                GroupOutput::Trusted(node) => {
                    self.core.log(LogLevel::Info, format!("node {node} is heard again"));
                    self.shards.suspects.remove(&node);
                    self.shards.yielded = self.shards.yielded.without(self.core.table.owned_by(node));
                    self.shards.provide(&mut self.core, &mut self.replication, now);
                }
                GroupOutput::Told { from, provisional, links: _ } => {
                    self.shards.told(&mut self.core, &mut self.replication, now, from, provisional)
                }
                GroupOutput::Ports { well } => self.shards.ports(&mut self.core, well),
                GroupOutput::Fence(until) => {
                    self.core.fence = until;
                    self.core.outputs.push_back(MemberOutput::Fence(until));
                }
                GroupOutput::Sender(sender) => {
                    let sender = if planted(Plant::NoSenderId) { SenderId(0) } else { sender };
                    self.core.shared.set_sender(sender);
                    self.core.sender = Some(sender);
                    self.core.outputs.push_back(MemberOutput::Sender(sender));
                    self.shards.import_some(&mut self.core, &mut self.replication, now);
                }
                GroupOutput::Multicast(bytes) => self.core.multicasts.push_back(bytes),
                other => self.core.outputs.extend(passed_on(other)),
            }
        }
        self.replication.turn(&mut self.core, now);
    }

    /// The host could not do what [`MemberOutput::Configure`] asked for.
    pub fn refused(&mut self, now: Time, name: &PieceName, reason: String) {
        self.configuration.refused(now, name, reason);
    }

    /// True if this node, which leaves, has nothing left to give away, and the others know; or if
    /// nobody could take it. While a view begins, because another node leaves too, that is not
    /// known yet.
    pub fn is_empty_handed(&mut self, now: Time) -> bool {
        self.shards.is_empty_handed(&mut self.core, now)
    }

    /// Child SAs that are taken in here now count as seen up to these floors.
    pub fn taken_in(&mut self, now: Time, floors: &[(Spi, u64)]) {
        self.replication.numbers.taken_in(&self.core, &self.replication.replicas, now, floors);
    }

    /// Nothing of these shards is being worked on any more.
    pub fn flushed(&mut self, now: Time, flushed: &Flushed) {
        self.shards.flushed(&mut self.core, &mut self.replication, now, flushed);
    }

    /// Packets a second that the ports of this node can bring it at most.
    pub fn set_line_rate(&mut self, rate: u64) {
        self.replication.numbers.set_line_rate(&mut self.core, rate);
    }

    /// Half of the last block of a Child SA is used, or there is none: at so many packets a second.
    pub fn numbers_low(&mut self, now: Time, spi_in: Spi, rate: u64) {
        self.shards.numbers_low(&mut self.core, &mut self.replication, now, spi_in, rate);
    }

    /// This node has heard, for the first time or again, that the path to there takes no more than
    /// that.
    pub fn learned_path_mtu(&mut self, now: Time, remote: IpAddr, mtu: u16) {
        self.replication.paths.learned_path_mtu(&mut self.core, now, remote, mtu);
    }
}

/// What the group asks of the host is the host's.
fn passed_on(output: GroupOutput) -> Option<MemberOutput> {
    Some(match output {
        GroupOutput::Datagram { to, link, bytes } => MemberOutput::Datagram { to, link, bytes },
        GroupOutput::Persist(durable) => MemberOutput::Persist(durable),
        GroupOutput::Rejoin => MemberOutput::Rejoin,
        GroupOutput::Log { level, message } => {
            MemberOutput::Ike(Output::Event(Event::Log { ike: None, connection: None, level, message }))
        }
        _ => return None,
    })
}
