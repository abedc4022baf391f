//! A member of the cluster: IKE, this node's copy of all SAs, and its part of the shards.
//!
//! Sans-IO like the [`Group`] below it and the [`Endpoint`] in it. The host passes in messages and
//! events, calls [`Member::pump`] at the end of each of its turns, and carries out the outputs of
//! [`Member::poll_output`] in order.

mod apply;
mod asks;
mod config;
mod configuration;
mod core;

#[cfg(test)]
mod counter;
mod inspect;
mod listing;
mod nodes;
mod numbers;
mod output;
mod relay;
mod replication;
#[cfg(test)]
mod samples;
mod sessions;
mod shards;
mod status;
mod view;

pub use crate::update::{Ask, Class, Effect, InitiationOutcome, PieceName, Sa};
pub use asks::AskError;
pub use config::MemberConfig;
pub use configuration::{ConfigurationStatus, Difference, Found, LastCommand};
pub use listing::RemoteSas;
pub use nodes::NodesError;
pub use output::{Flushed, MemberOutput, TakenIn, TakenLanes};
pub use replication::changes::{IkeUpdateCounts, MessageCount};
pub use shards::carriers::CarrierTable;
pub use shards::drain::DrainError;
pub use shards::following::{FollowConfig, ShardPackets};
pub use shards::handover::HandoverStage;
pub use status::{ClusterStatus, MemberCounters};

use self::core::Core;
use crate::engine::EngineEvent;
use crate::group::{Durable, GroupOutput};
use crate::node::NodeId;
use asks::Asks;
use configuration::Configuration;
use nodes::EngineNodes;
use replication::Replication;
use sessions::SessionsTold;
use shards::Shards;
use shards::takeover::Take;
use std::net::IpAddr;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::endpoint::Endpoint;
use testudo_ike::output::{ChildSaId, Event, LogLevel, Output, Time, UnixTime};
use testudo_ike::suite::Entropy;
use testudo_planted::{Plant, planted};

/// Bound on the chunks sent in one turn of the host: heartbeats must not wait for them.
const MAX_CHUNKS_PER_TURN: usize = 8;

/// Bound on the neighbours that are published.
const MAX_NEIGHBOURS: usize = 1024;

/// One node's part of the cluster.
pub struct Member {
    core: Core,
    replication: Replication,
    shards: Shards,
    configuration: Configuration,
    asks: Asks,
    engine_nodes: EngineNodes,
    sessions: SessionsTold,
}

impl Member {
    /// Starts a node with what [`MemberOutput::Persist`] last saved. `entropy` is for the group,
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
            engine_nodes: EngineNodes::default(),
            sessions: SessionsTold::default(),
        };
        member.shards.update_homes(&mut member.core, now);
        member
    }

    /// The number of this node.
    pub fn node(&self) -> NodeId {
        self.core.node
    }

    /// The IKE endpoint, to read.
    pub fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// The IKE endpoint, to load, initiate, terminate. Call [`Self::pump`] afterwards.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.core.endpoint
    }

    /// The key of the hash by which clear packets and first IKE messages find their homes.
    pub fn hash_key(&self) -> SipKey {
        self.core.key
    }

    /// Sets the time of day, for IKE and for cookies.
    pub fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        self.core.shared.set_unix_time(now, unix.0);
        self.core.endpoint.set_unix_time(now, unix);
    }

    /// A datagram of another node has come over a link.
    pub fn handle_heartbeat(&mut self, now: Time, link: u8, bytes: &[u8]) {
        self.core.group.handle_datagram(now, link, bytes);
        self.hear_group(now);
    }

    /// The engine has a new view, a message, or something else to tell.
    pub fn handle_engine(&mut self, now: Time, event: EngineEvent) {
        self.core.group.handle_event(now, event);
        self.hear_group(now);
    }

    /// The engine refused the message of a [`MemberOutput::Multicast`].
    pub fn multicast_refused(&mut self, now: Time, bytes: Vec<u8>) {
        // Later messages must stay behind it.
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
        self.shards.hand_over_in_time(&mut self.core, &mut self.replication, now);
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

    /// When [`Self::handle_timeout`] must be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let takes = self.shards.takes.iter().filter(|_| self.core.view.running).filter_map(Take::at).min();
        let imports = self.core.sender.is_some() && !self.shards.imported.is_empty();
        let at_once =
            (imports || self.replication.tells_more(&self.core) || self.replication.numbers.has_blocks())
                .then_some(Time::default());
        // While this node may not speak, IKE's deadlines wait.
        let ike =
            self.core.endpoint.next_timeout().filter(|at| self.core.may_speak(self.core.looked.max(*at)));
        let syncs =
            self.shards.syncs.next_timeout().filter(|at| self.core.may_speak(self.core.looked.max(*at)));
        let own = [takes, at_once, ike, syncs, self.shards.arrivals.next_timeout()];
        let others = [
            self.asks.next_timeout(),
            self.configuration.next_manifest(&self.core),
            self.shards.next_freeze(&self.core),
            self.shards.offers_from.filter(|_| self.core.view.running),
        ];
        own.into_iter().chain(others).chain([self.core.group.next_timeout()]).flatten().min()
    }

    /// The machine was set back to an earlier state: all state of this node is void.
    pub fn rolled_back(&mut self, now: Time) {
        self.core.group.rolled_back(now);
        (self.core.sender, self.core.view.running, self.core.view.quorate) = (None, false, false);
        self.core.outputs.push_back(MemberOutput::ForgetSender);
        if self.core.is_routed() {
            // Numbers under the keys of this view may have been used since.
            self.core.outputs.push_back(MemberOutput::RelayKeys(Vec::new()));
        }
        // The data plane was set back too, to blocks that it has used since: its SAs go, and come
        // back with new ones.
        self.void(now, true);
        self.shards.takes.clear();
        (self.shards.provisional, self.shards.inherited) = (ShardSet::EMPTY, ShardSet::EMPTY);
        self.shards.show(&mut self.core, &mut self.replication, now);
        self.hear_group(now);
    }

    /// The machine may have been set back to an earlier state. Nothing encrypted leaves until
    /// another sender ID has been granted, so that no IV repeats. This node keeps its state; if
    /// that is too old, the others' engine has gone on without it.
    pub fn doubts_itself(&mut self, now: Time) {
        self.core.sender = None;
        self.core.outputs.push_back(MemberOutput::ForgetSender);
        self.core.group.renew_sender(now);
        self.hear_group(now);
    }

    /// The disk has what [`MemberOutput::Persist`] asked for.
    pub fn persisted(&mut self, now: Time, durable: &Durable) {
        self.core.group.persisted(durable);
        self.hear_group(now);
    }

    /// The state of a port: carrier, driver.
    pub fn set_link(&mut self, now: Time, link: u8, up: bool) {
        self.core.group.set_link(now, link, up);
        self.hear_group(now);
    }

    /// The row clocks of this node: how many clear packets for the spread tunnels of a shard it has
    /// counted, or how far it has got with their rows if that is more. To be called before each
    /// [`Self::handle_timeout`].
    pub fn show_clocks(&mut self, now: Time, row_of: impl Fn(Shard) -> u64) {
        let Replication { numbers, replicas, .. } = &mut self.replication;
        numbers.show_clocks(&mut self.core, replicas, now, row_of);
        for spi in numbers.stripes_that_run_low(&self.core, replicas) {
            self.shards.stripe_low(&mut self.core, &mut self.replication, now, spi);
        }
    }

    /// The host's load of one processor, in thousandths, for the other nodes to show.
    pub fn set_load(&mut self, load: u16) {
        self.shards.load = load;
        self.shards.tell_used(&mut self.core);
    }

    /// The neighbours that this node knows, each with its port's place in the configuration: the
    /// next owner of a shard resolves them in time.
    pub fn set_neighbours(&mut self, neighbours: impl Iterator<Item = (u8, IpAddr)>) {
        self.shards.neighbours.clear();
        self.shards.neighbours.extend(neighbours.take(MAX_NEIGHBOURS));
    }

    /// IVs run low: requests another sender ID.
    pub fn renew_sender(&mut self, now: Time) {
        self.core.group.renew_sender(now);
    }

    /// The host's turn ends: publishes the changes.
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

    /// Sends the next chunk, as soon as enough of the earlier ones have reached every node.
    pub(super) fn tell_more(&mut self, now: Time) {
        for _ in 0..MAX_CHUNKS_PER_TURN {
            if self.replication.tells_more(&self.core) {
                self.replication.tell_next(&mut self.core, &self.configuration, now);
                self.shards.hand_over(&mut self.core, &mut self.replication, now);
            }
        }
    }

    /// Takes in the group's events, in their order.
    fn hear_group(&mut self, now: Time) {
        while let Some(output) = self.core.group.poll_output() {
            match output {
                GroupOutput::View(start) => self.view(now, start),
                GroupOutput::NoView => {
                    self.core.view.running = false;
                    // These are of a ring that is over. What still counts is published again in the
                    // next.
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
                GroupOutput::Relayed { from, octets } => self.relayed(now, from, &octets),
                GroupOutput::RowClocks(clocks) => {
                    self.core.outputs.push_back(MemberOutput::RowClocks(clocks));
                }
                GroupOutput::Sessions { from, told } => self.sessions_told(from, told),
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
                GroupOutput::Leave => self.core.outputs.push_back(MemberOutput::Leave),
                GroupOutput::Rosters => self.core.outputs.push_back(MemberOutput::Rosters),
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

    /// True if this leaving node has nothing left to give away and the others know it, or if no
    /// node could take its shards. While a view begins, because another node leaves too, this is
    /// not known yet.
    pub fn is_empty_handed(&mut self, now: Time) -> bool {
        self.shards.is_empty_handed(&mut self.core, now)
    }

    /// An authentic packet has arrived here on a Child SA of any node.
    pub fn traffic_seen(&mut self, now: Time, child: ChildSaId) {
        self.replication.traffic_seen(&mut self.core, now, child);
    }

    /// Packets of Child SAs are accepted here, and numbers up to these floors count as seen.
    pub fn taken_in(&mut self, now: Time, floors: &[(Spi, u64)]) {
        self.replication.numbers.taken_in(&self.core, &self.replication.replicas, now, floors);
    }

    /// No packet of these shards is being worked on any more.
    pub fn flushed(&mut self, now: Time, flushed: &Flushed) {
        self.shards.flushed(&mut self.core, &mut self.replication, now, flushed);
    }

    /// Sets the most packets a second that the ports of this node can receive.
    pub fn set_line_rate(&mut self, rate: u64) {
        self.replication.numbers.set_line_rate(&mut self.core, rate);
    }

    /// A Child SA has used half of its last block, or has none, at this rate in packets a second.
    pub fn numbers_low(&mut self, now: Time, spi_in: Spi, rate: u64) {
        self.shards.numbers_low(&mut self.core, &mut self.replication, now, spi_in, rate);
    }

    /// This node has learned, for the first time or again, the MTU of the path to `remote`.
    pub fn learned_path_mtu(&mut self, now: Time, remote: IpAddr, mtu: u16) {
        self.replication.paths.learned_path_mtu(&mut self.core, now, remote, mtu);
    }
}

/// Turns an output of the group into one of the member.
fn passed_on(output: GroupOutput) -> Option<MemberOutput> {
    Some(match output {
        GroupOutput::Datagram { to, link, bytes } => MemberOutput::Datagram { to, link, bytes },
        GroupOutput::RelayKeys(keys) => MemberOutput::RelayKeys(keys),
        GroupOutput::Persist(durable) => MemberOutput::Persist(durable),
        GroupOutput::Rejoin => MemberOutput::Rejoin,
        GroupOutput::Log { level, message } => {
            MemberOutput::Ike(Output::Event(Event::Log { ike: None, connection: None, level, message }))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
