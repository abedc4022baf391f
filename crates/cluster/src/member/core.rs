//! The parts of a member that all others need: the group that carries its messages, its IKE, its
//! view, and the outputs for its host.

pub(super) mod commits;

use super::replication::replicas::ChildReplica;
use super::shards::ownership::OwnerTable;
use super::{MemberConfig, MemberCounters, MemberOutput};
use crate::alloc::{ClusterAllocator, Shared, hash_key};
use crate::group::{Durable, Group, Position, ViewStart};
use crate::node::{NodeId, names};
use crate::update::{
    Answer, Answered, CONTROL_PLANE, FOLLOWING, LANE_FLOORS, PROOFS, Preference, SPREADING, in_turn,
};
use commits::Commits;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard};
use testudo_base::turn::InTurn;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, LogLevel, Output, Time};
use testudo_ike::suite::Entropy;

/// How long IKE continues while a view is being formed. Its results are not stable, so none of its
/// messages leave.
const FORMING_TIMEOUT: Duration = Duration::from_secs(1);

/// Ownership changes that a fresh node has seen in the total order before it knows the owner table
/// that they change.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    pub(super) drops: Vec<(NodeId, Shard, NodeId)>,
    pub(super) fit: Vec<(NodeId, bool)>,
    pub(super) drained: Vec<(NodeId, bool)>,
    pub(super) preferences: Vec<(Shard, Preference)>,
    /// The preferences at the start of the view, from the first node that has told them.
    pub(super) first_preferences: Option<Vec<(Shard, Preference)>>,
}

/// The view that this node is in, and its state.
#[derive(Debug)]
pub(super) struct ViewState {
    /// True if the last view had a quorum.
    pub(super) quorate: bool,
    /// True if a quorate view has begun and is not over.
    pub(super) running: bool,
    /// True if the last quorate view has no more than half of the nodes: a witness votes for this
    /// half, and may have voted for the other half since.
    pub(super) by_grace: bool,
    /// Since when there is no view.
    pub(super) no_view: Option<Time>,
    pub(super) epoch: u64,
    pub(super) members: Vec<NodeId>,
    /// Version of the updates in this view.
    pub(super) version: u8,
    pub(super) stable_upto: Position,
}

/// The parts of a member that all others need.
pub(super) struct Core {
    pub(super) config: MemberConfig,
    pub(super) node: NodeId,
    pub(super) key: SipKey,
    pub(super) shared: Arc<Shared>,
    pub(super) group: Group,
    pub(super) endpoint: Endpoint,
    pub(super) view: ViewState,
    /// The owner of each shard, by the total order.
    pub(super) table: OwnerTable,
    /// While a fresh node does not know the owner table: the handovers since, with their senders
    /// and receivers.
    pub(super) unheard_of: Option<Unheard>,
    pub(super) commits: Commits,
    pub(super) sender: Option<SenderId>,
    /// Nothing leaves after this time.
    pub(super) fence: Time,
    pub(super) counters: MemberCounters,
    /// Messages for the engine, in order.
    pub(super) multicasts: VecDeque<Vec<u8>>,
    /// When the host last called.
    pub(super) looked: Time,
    pub(super) outputs: VecDeque<MemberOutput>,
}

impl Core {
    /// `entropy` is for the group, and for IKE.
    pub(super) fn new(
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
        // All Child SAs of an IKE SA are in one shard, so Child SAs for workers are not made.
        let endpoint_config =
            EndpointConfig { track_changes: true, resource_workers: 0, ..config.endpoint.clone() };
        Self {
            node: config.group.node,
            key,
            shared,
            group: Group::new(config.group.clone(), durable, for_group, now),
            endpoint: Endpoint::new(endpoint_config, Box::new(alloc)),
            config,
            view: ViewState {
                quorate: false,
                running: false,
                by_grace: false,
                no_view: None,
                epoch: 0,
                members: Vec::new(),
                version: crate::update::OLDEST,
                stable_upto: Position::default(),
            },
            table: OwnerTable::new(),
            unheard_of: None,
            commits: Commits::default(),
            sender: None,
            fence: Time::default(),
            counters: MemberCounters::default(),
            multicasts: VecDeque::new(),
            looked: now,
            outputs: VecDeque::new(),
        }
    }

    /// True while this node may speak IKE at all: in a quorate view, before its fence, with a
    /// sender ID of its own.
    pub(super) fn may_speak(&self, now: Time) -> bool {
        let view = match self.view.no_view {
            None => self.view.running,
            Some(since) => self.view.quorate && now.since(since) < FORMING_TIMEOUT,
        };
        view && self.sender.is_some() && now < self.fence
    }

    /// True if all members of the view know the messages that came with version 16: see
    /// [`CONTROL_PLANE`].
    pub(super) fn has_control_plane(&self) -> bool {
        self.view.version >= CONTROL_PLANE
    }

    /// True if all members of the view spread Child SAs as this node does: see [`SPREADING`].
    /// Behind routers that came with [`LANE_FLOORS`].
    pub(super) fn can_spread(&self) -> bool {
        self.view.version >= if self.is_routed() { LANE_FLOORS } else { SPREADING }
    }

    /// What takes turns: all members of the view know how, and see the same packets.
    pub(super) fn in_turn(&self) -> InTurn {
        if self.is_routed() { InTurn::Nothing } else { in_turn(self.view.version) }
    }

    /// What takes turns at this node. One that does not hold the state yet carries no lane, and has
    /// missed how sessions began: it notes none, and hears of them.
    pub(super) fn in_turn_here(&self) -> InTurn {
        match self.in_turn() {
            InTurn::Sessions if !self.table.synced().contains(&self.node) => InTurn::Packets,
            in_turn => in_turn,
        }
    }

    /// True if nodes tell each other of sessions.
    pub(super) fn has_sessions_in_turn(&self) -> bool {
        self.in_turn() == InTurn::Sessions
    }

    /// True if all members of the view know [`crate::update::Op::LaneFloors`].
    pub(super) fn tells_lane_floors(&self) -> bool {
        self.view.version >= LANE_FLOORS
    }

    /// True if all members of the view know [`crate::update::Op::ChildProven`].
    pub(super) fn tells_proofs(&self) -> bool {
        self.view.version >= PROOFS
    }

    /// True if shards move to the nodes that their packets reach: see [`FOLLOWING`].
    pub(super) fn can_follow(&self) -> bool {
        self.is_routed() && self.view.version >= FOLLOWING
    }

    pub(super) fn log(&mut self, level: LogLevel, message: String) {
        self.log_line(None, level, message);
    }

    /// Logs a line about a connection.
    pub(super) fn log_connection(&mut self, connection: &str, level: LogLevel, message: String) {
        self.log_line(Some(connection.to_owned()), level, message);
    }

    fn log_line(&mut self, connection: Option<String>, level: LogLevel, message: String) {
        let event = Event::Log { ike: None, connection, level, message };
        self.outputs.push_back(MemberOutput::Ike(Output::Event(event)));
    }

    /// True for the owner of the shard. A fresh node that does not know the owner table believes
    /// the nodes that hold the state.
    pub(super) fn may_say(&self, from: NodeId, shard: Shard) -> bool {
        match &self.unheard_of {
            Some(_) => self.table.synced().contains(&from),
            None => self.table.owner(shard) == Some(from),
        }
    }

    /// A fresh node receives the owner table at the start of the view. All nodes that hold the
    /// state know it and agree, so it takes the table from the first of them and applies the
    /// handovers since.
    pub(super) fn told_owners(&mut self, epoch: u64, owners: &[u8], unfit: &[NodeId], drained: &[NodeId]) {
        if epoch != self.view.epoch {
            return;
        }
        let Some(unheard) = self.unheard_of.take() else { return };
        let Unheard { drops, fit, drained: since, preferences, first_preferences } = unheard;
        self.table.adopt(owners, unfit, drained, &first_preferences.unwrap_or_default());
        for (from, shard, to) in drops {
            self.table.drop(from, shard, to);
        }
        for (node, fit) in fit {
            self.table.set_fit(node, fit);
        }
        for (node, drained) in since {
            self.table.set_drained(node, drained);
        }
        for (shard, preference) in preferences {
            self.table.prefer(shard, preference);
        }
    }

    /// Gives a Child SA to the data plane.
    pub(super) fn install(
        &mut self,
        ike: Option<IkeSaId>,
        replica: &ChildReplica,
        replaces: Option<ChildSaId>,
    ) {
        self.outputs.push_back(MemberOutput::InstallChild {
            ike,
            child: replica.id,
            connection: replica.connection.clone(),
            name: replica.name.clone(),
            params: replica.params.clone(),
            replaces,
            place: replica.place,
            spread: replica.spread.as_ref().map(|spread| spread.stripe.by),
        });
    }

    /// An owner has answered a task.
    pub(super) fn answered(&mut self, Answer { to, job, what }: Answer) {
        if to == self.node {
            self.outputs.push_back(match what {
                Answered::Line { connection, level, message } => {
                    MemberOutput::Line { job, connection, level, message }
                }
                Answered::Initiated(outcome) => MemberOutput::Initiated { job, outcome },
            });
        }
    }

    pub(super) fn log_view(&mut self, start: &ViewStart, before: &[NodeId]) {
        let ViewStart { view, epoch, fresh, .. } = start;
        for gone in before.iter().filter(|node| !view.members.contains(node)) {
            self.log(LogLevel::Warning, format!("node {gone} has left the view"));
        }
        let members = names(&view.members);
        self.log(
            if view.quorate { LogLevel::Info } else { LogLevel::Warning },
            match view.quorate {
                false => format!("no quorum: the view has only nodes {members}"),
                true if fresh.is_empty() => format!("view {epoch} begins: nodes {members}"),
                true => format!(
                    "view {epoch} begins: nodes {members}; to be brought up to date: {}",
                    names(fresh)
                ),
            },
        );
    }
}

#[cfg(test)]
mod tests;
