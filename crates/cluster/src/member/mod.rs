//! A member of the cluster: IKE, what it holds of all SAs, and its part of the shards.
//!
//! Sans-IO like the [`Group`] below it and the [`Endpoint`] in it. The host hands in what comes, calls [`Member::pump`] at the end of
//! each of its turns, and does what [`Member::poll_output`] asks for, in order.

mod apply;
mod asks;
mod blocks;
mod changes;
mod commit;
mod config;
mod configuration;
mod contacts;
#[cfg(test)]
mod counter;
mod drain;
mod edges;
mod fitness;
mod handover;
mod happenings;
mod inspect;
mod line_rates;
mod listing;
mod numbers;
mod output;
mod ownership;
mod paths;
mod replicas;
mod resync;
mod status;
mod syncs;
mod takeover;

pub use crate::update::{Ask, Class, Effect, PieceName, Sa};
pub use asks::AskError;
pub use changes::{Count, Told};
pub use config::MemberConfig;
pub use configuration::{ConfigurationStatus, Difference, Found};
pub use drain::DrainError;
pub use handover::HandoverStage;
pub use listing::Elsewhere;
pub use output::{Flushed, MemberOutput, TakenIn};
pub use status::{ClusterStatus, MemberCounters};

use crate::alloc::{ClusterAllocator, Shared, hash_key};
use crate::dispatch::Ownership as Shown;
use crate::engine::EngineEvent;
use crate::group::{Durable, Group, GroupOutput, Position};
use crate::node::NodeId;
use crate::shard::ShardSet;
use crate::siphash::HashKey;
use crate::update::CONTROL_PLANE;
use asks::Asks;
use commit::Commits;
use configuration::Configuration;
use edges::Edges;
use fitness::Fitness;
use handover::{Arrivals, Handover};
use line_rates::LineRates;
use numbers::{OwnBlocks, StandbyBlocks};
use ownership::Ownership;
use replicas::Replicas;
use resync::Resync;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use syncs::Syncs;
use takeover::Take;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::message::{Header, IkeSpi};
use testudo_ike::output::{Event, LogLevel, Output, Path, Time, UnixTime};
use testudo_ike::suite::Entropy;
use testudo_ipsec::pmtu::PathMtus;
use testudo_ipsec::spi::{SenderId, Shard};
use testudo_planted::{Plant, planted};

use crate::group::Ticket;

/// While a view is being formed IKE goes on for this long. What it does is not stable, and so does not show.
const PATIENCE: Duration = Duration::from_secs(1);

/// Neighbours that are told of at most.
const NEIGHBOURS: usize = 1024;

/// What the total order has said of owners before a fresh node has heard where that begins.
#[derive(Debug, Default)]
struct Unheard {
    drops: Vec<(NodeId, Shard, NodeId)>,
    fit: Vec<(NodeId, bool)>,
    drained: Vec<(NodeId, bool)>,
}

/// One node's part of the cluster.
pub struct Member {
    config: MemberConfig,
    node: NodeId,
    key: HashKey,
    shared: Arc<Shared>,
    group: Group,
    endpoint: Endpoint,
    table: Ownership,
    replicas: Replicas,
    /// As long as a fresh node has not heard who owns what: the shards that were handed over meanwhile, by whom and to whom.
    unheard_of: Option<Unheard>,
    commits: Commits,
    /// It is to end, and gives away what it owns.
    leaves: bool,
    own_blocks: OwnBlocks,
    standby_blocks: StandbyBlocks,
    resync: Resync,
    configuration: Configuration,
    asks: Asks,
    /// Of the updates in this view.
    version: u8,
    handover: Handover,
    arrivals: Arrivals,
    edges: Edges,
    line_rates: LineRates,
    fitness: Fitness,
    syncs: Syncs,
    /// Since when nothing is left that this node, being drained, could give away.
    empty_since: Option<Time>,
    /// The last view had a quorum.
    quorate: bool,
    /// A quorate view has begun and is not over.
    running: bool,
    /// The last quorate view has no more than half of the nodes: while a witness counts for this half, another may have gone on by it.
    by_grace: bool,
    /// Since when there is no view.
    no_view: Option<Time>,
    epoch: u64,
    members: Vec<NodeId>,
    stable_upto: Position,
    sender: Option<SenderId>,
    /// Nothing leaves from then on.
    fence: Time,
    load: u16,
    /// Neighbours of this node, by port: for whoever takes over.
    neighbours: Vec<(u8, IpAddr)>,
    suspects: BTreeSet<NodeId>,
    /// What each other node carries provisionally.
    told: BTreeMap<NodeId, ShardSet>,
    /// Shards of suspects that have shown that they live: they have new numbers in front of those that we would send with.
    yielded: ShardSet,
    takes: Vec<Take>,
    /// Shards that this node has taken, and of those whose IKE it speaks.
    active: ShardSet,
    ike: ShardSet,
    provisional: ShardSet,
    /// Shards that the view has made this node's, that are not taken yet, and whose standby it was before.
    inherited: ShardSet,
    /// Those that it has carried since their owner last moved its numbers.
    used: ShardSet,
    /// When this node last moved the numbers of a shard because another had carried it.
    bumped_at: BTreeMap<Shard, Time>,
    /// Shards in which nothing is sent until that is stable.
    bumping: BTreeMap<Shard, Ticket>,
    /// IKE SAs that are this node's and whose states have not been read yet; and the shards where there may be some.
    imports: BTreeSet<IkeSpi>,
    imported: ShardSet,
    /// IKE SAs of others that were asked for: what was told of them did not fit.
    wanted: BTreeSet<IkeSpi>,
    homes: Option<ShardSet>,
    shown: Shown,
    counters: MemberCounters,
    /// What the paths of all nodes take.
    paths: PathMtus,
    /// What was learned of them while there was nobody to tell.
    untold_paths: BTreeMap<IpAddr, u16>,
    /// For the engine, in order.
    multicasts: VecDeque<Vec<u8>>,
    /// When the host last looked.
    looked: Time,
    outputs: VecDeque<MemberOutput>,
}

impl Member {
    /// A node begins, with what [`MemberOutput::Persist`] told last. `entropy` is for the group, and for IKE.
    pub fn new(
        config: MemberConfig,
        durable: Durable,
        entropy: [Box<dyn Entropy + Send>; 2],
        now: Time,
    ) -> Self {
        let [for_group, for_ike] = entropy;
        let cluster_key = config.group.key.octets();
        let key = hash_key(cluster_key);
        let shared = Arc::<Shared>::default();
        let alloc = ClusterAllocator::new(for_ike, cluster_key, key, Arc::clone(&shared));
        let configuration = Configuration::new(cluster_key, config.replicate_configuration);
        let line_rates = LineRates::new(config.line_rate);
        let endpoint_config = EndpointConfig { track_changes: true, ..config.endpoint.clone() };
        let mut member = Self {
            node: config.group.node,
            key,
            shared,
            group: Group::new(config.group.clone(), durable, for_group, now),
            endpoint: Endpoint::new(endpoint_config, Box::new(alloc)),
            config,
            table: Ownership::new(),
            replicas: Replicas::default(),
            unheard_of: None,
            commits: Commits::default(),
            leaves: false,
            own_blocks: OwnBlocks::default(),
            standby_blocks: StandbyBlocks::default(),
            resync: Resync::default(),
            configuration,
            asks: Asks::default(),
            version: crate::update::OLDEST,
            handover: Handover::default(),
            arrivals: Arrivals::default(),
            edges: Edges::default(),
            line_rates,
            fitness: Fitness::default(),
            syncs: Syncs::default(),
            empty_since: None,
            quorate: false,
            running: false,
            by_grace: false,
            no_view: None,
            epoch: 0,
            members: Vec::new(),
            stable_upto: Position::default(),
            sender: None,
            fence: Time::default(),
            load: 0,
            neighbours: Vec::new(),
            suspects: BTreeSet::new(),
            told: BTreeMap::new(),
            yielded: ShardSet::EMPTY,
            takes: Vec::new(),
            active: ShardSet::EMPTY,
            ike: ShardSet::EMPTY,
            provisional: ShardSet::EMPTY,
            inherited: ShardSet::EMPTY,
            used: ShardSet::EMPTY,
            bumped_at: BTreeMap::new(),
            bumping: BTreeMap::new(),
            imports: BTreeSet::new(),
            imported: ShardSet::EMPTY,
            wanted: BTreeSet::new(),
            homes: None,
            shown: Shown::default(),
            counters: MemberCounters::default(),
            paths: PathMtus::default(),
            untold_paths: BTreeMap::new(),
            multicasts: VecDeque::new(),
            looked: now,
            outputs: VecDeque::new(),
        };
        member.update_homes(now);
        member
    }

    /// Its number.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// IKE: what it has, and how it is set.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The same, to load, initiate, terminate. [`Self::pump`] it afterwards.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// By what clear traffic, and the first message of IKE, find their homes.
    pub fn hash_key(&self) -> HashKey {
        self.key
    }

    /// Tells what time of day it is, to IKE and for cookies.
    pub fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        self.shared.set_unix_time(now, unix.0);
        self.endpoint.set_unix_time(now, unix);
    }

    /// An IKE message arrived (without the non-ESP marker).
    pub fn handle_ike(&mut self, now: Time, path: Path, bytes: &[u8]) {
        if self.may_speak(now) && self.is_ours(now, bytes) {
            self.endpoint.handle_datagram(now, path, bytes);
            self.turn(now);
        }
    }

    /// Whether the message is for a shard whose IKE this node speaks. The IKE SA is in the endpoint then.
    fn is_ours(&mut self, now: Time, bytes: &[u8]) -> bool {
        let Ok(header) = Header::parse(bytes) else { return true };
        let ours = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let begins = ours.is_zero();
        let shard = if begins { self.key.initiator(header.initiator_spi.to_bytes()) } else { ours.shard() };
        // What is not yet read may have answered this request already.
        let unread = begins && self.imported.contains(shard);
        if !self.shown.ike.contains(shard) || unread {
            self.counters.not_ours += 1;
            return false;
        }
        if self.imports.contains(&ours) {
            self.import(now, ours);
        }
        true
    }

    /// A datagram of another node came over a link.
    pub fn handle_heartbeat(&mut self, now: Time, link: u8, bytes: &[u8]) {
        self.group.handle_datagram(now, link, bytes);
        self.hear_group(now);
    }

    /// The engine tells something.
    pub fn handle_engine(&mut self, now: Time, event: EngineEvent) {
        self.group.handle_event(now, event);
        self.hear_group(now);
    }

    /// The engine did not take what [`MemberOutput::Multicast`] gave.
    pub fn multicast_refused(&mut self, now: Time, bytes: Vec<u8>) {
        // What comes behind it must not get in front of it.
        while let Some(later) = self.multicasts.pop_back() {
            self.group.multicast_refused(now, later);
        }
        self.group.multicast_refused(now, bytes);
    }

    /// The engine takes messages again.
    pub fn multicast_ready(&mut self) {
        self.group.multicast_ready();
    }

    /// [`Self::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.looked = now;
        self.group.handle_timeout(now);
        self.hear_group(now);
        self.use_more_blocks();
        self.take_what_is_due(now);
        self.expire_arrivals(now);
        self.freeze(now);
        self.bump(now);
        self.import_some(now);
        self.renew_doubtful(now);
        self.do_what_is_asked(now);
        self.tell_manifest(now);
        self.sync_some(now);
        if self.may_speak(now) {
            self.endpoint.handle_timeout(now);
        }
        self.turn(now);
        self.tell_more(now);
    }

    /// When [`Self::handle_timeout`] is wanted.
    pub fn next_timeout(&self) -> Option<Time> {
        let takes = self.takes.iter().filter(|_| self.running).filter_map(Take::at).min();
        let imports = self.sender.is_some() && !self.imported.is_empty();
        let at_once = (imports || self.tells_more() || self.has_blocks()).then_some(Time::default());
        // Without a voice its deadlines wait.
        let ike = self.endpoint.next_timeout().filter(|at| self.may_speak(self.looked.max(*at)));
        let syncs = self.syncs.next_timeout().filter(|at| self.may_speak(self.looked.max(*at)));
        let own = [takes, at_once, ike, syncs, self.arrivals.next_timeout()];
        let others = [self.asks.next_timeout(), self.next_manifest(), self.next_freeze()];
        own.into_iter().chain(others).chain([self.group.next_timeout()]).flatten().min()
    }

    /// The machine has gone back to an earlier state: nothing that this node holds is valid any more.
    pub fn rolled_back(&mut self, now: Time) {
        self.group.rolled_back(now);
        (self.sender, self.running, self.quorate) = (None, false, false);
        self.outputs.push_back(MemberOutput::ForgetSender);
        // The data plane has gone back too, to blocks that it has used up since: its SAs go, and come with new ones.
        self.void(now, true);
        self.takes.clear();
        (self.provisional, self.inherited) = (ShardSet::EMPTY, ShardSet::EMPTY);
        self.show(now);
        self.hear_group(now);
    }

    /// The machine may have gone back to an earlier state: nothing encrypted leaves until another sender ID has been granted, so that no IV
    /// comes again. What this node holds it keeps; if it is too old, the others' engine has gone on without it.
    pub fn doubts_itself(&mut self, now: Time) {
        self.sender = None;
        self.outputs.push_back(MemberOutput::ForgetSender);
        self.group.renew_sender(now);
        self.hear_group(now);
    }

    /// The disk has what [`MemberOutput::Persist`] told.
    pub fn persisted(&mut self, now: Time, durable: &Durable) {
        self.group.persisted(durable);
        self.hear_group(now);
    }

    /// The health of a port: carrier, driver.
    pub fn set_link(&mut self, now: Time, link: u8, up: bool) {
        self.group.set_link(now, link, up);
        self.hear_group(now);
    }

    /// How much of one processor the host takes, in thousandths: for the other nodes to show.
    pub fn set_load(&mut self, load: u16) {
        self.load = load;
        self.tell_used();
    }

    /// Which neighbours this node knows, by the ports' places in the configuration: whoever is given shards asks for them in time.
    pub fn set_neighbours(&mut self, neighbours: impl Iterator<Item = (u8, IpAddr)>) {
        self.neighbours.clear();
        self.neighbours.extend(neighbours.take(NEIGHBOURS));
    }

    /// IVs run low: another sender ID is wanted.
    pub fn renew_sender(&mut self, now: Time) {
        self.group.renew_sender(now);
    }

    /// The host's turn ends: what has changed is told to the others.
    pub fn pump(&mut self, now: Time) {
        self.turn(now);
        self.tell_untold_pieces();
        self.group.flush(now);
        self.hear_group(now);
    }

    /// What to do next.
    pub fn poll_output(&mut self) -> Option<MemberOutput> {
        let next = self.outputs.pop_front();
        next.or_else(|| self.multicasts.pop_front().map(MemberOutput::Multicast))
    }

    /// True while this node may speak IKE at all: in a quorate view, behind no fence, with a sender ID of its own.
    fn may_speak(&self, now: Time) -> bool {
        let view = match self.no_view {
            None => self.running,
            Some(since) => self.quorate && now.since(since) < PATIENCE,
        };
        view && self.sender.is_some() && now < self.fence
    }

    /// All members of the view know what came with version 16: see [`CONTROL_PLANE`].
    fn has_control_plane(&self) -> bool {
        self.version >= CONTROL_PLANE
    }

    /// Takes in what the group has to tell, in its order.
    fn hear_group(&mut self, now: Time) {
        while let Some(output) = self.group.poll_output() {
            match output {
                GroupOutput::View(start) => self.view(now, start),
                GroupOutput::NoView => {
                    self.running = false;
                    // Of a ring that is over. What counts of it is said again in the next.
                    self.multicasts.clear();
                    self.no_view.get_or_insert(now);
                }
                GroupOutput::Delivered { from, at, update } => self.delivered(now, from, at, &update),
                GroupOutput::Stable(ticket) => {
                    self.stable(now, ticket);
                    self.chunks_arrived(now);
                    self.bumped();
                    self.freeze(now);
                    self.show(now);
                }
                GroupOutput::StableUpTo(at) => {
                    self.stable_upto = self.stable_upto.max(at);
                    self.standby_blocks_stable(at);
                    self.take_what_is_due(now);
                }
                GroupOutput::Suspected(node) => {
                    self.log(LogLevel::Warning, format!("node {node} is suspected: nothing is heard of it"));
                    self.suspects.insert(node);
                    self.provide(now);
                }
                GroupOutput::Trusted(node) => {
                    self.log(LogLevel::Info, format!("node {node} is heard again"));
                    self.suspects.remove(&node);
                    self.yielded = self.yielded.without(self.table.owned_by(node));
                    self.provide(now);
                }
                GroupOutput::Told { from, provisional, links: _ } => self.told(now, from, provisional),
                GroupOutput::Ports { well } => self.ports(well),
                GroupOutput::Fence(until) => {
                    self.fence = until;
                    self.outputs.push_back(MemberOutput::Fence(until));
                }
                GroupOutput::Sender(sender) => {
                    let sender = if planted(Plant::NoSenderId) { SenderId(0) } else { sender };
                    self.shared.set_sender(sender);
                    self.sender = Some(sender);
                    self.outputs.push_back(MemberOutput::Sender(sender));
                    self.import_some(now);
                }
                GroupOutput::Multicast(bytes) => self.multicasts.push_back(bytes),
                other => self.outputs.extend(passed_on(other)),
            }
        }
        self.turn(now);
    }

    fn log(&mut self, level: LogLevel, message: String) {
        let event = Event::Log { ike: None, connection: None, level, message };
        self.outputs.push_back(MemberOutput::Ike(Output::Event(event)));
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
