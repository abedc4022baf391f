//! The view that a node is in, from the engine's view to the group's, and what the node holds of
//! earlier views.

pub(super) mod bulk;
pub(super) mod exchange;
pub(super) mod history;
pub(super) mod obstacle;
pub(super) mod past;
pub(super) mod running;
pub(super) mod stability;

use super::config::QuorumRule;
use super::core::Core;
use super::datagram::{Ack, MessageName};
use super::durable::Durable;
use super::frame;
use super::heartbeat::{Stance, mask};
use super::lease::Leases;
use super::status::{Phase, Topic};
use super::vitals::peers::NO_RING;
use super::{GroupConfig, GroupOutput, Ticket, ViewStart};
use crate::engine::{RingId, View};
use crate::node::{NodeId, names};
use exchange::vote::Ballot;
use exchange::{Exchange, Heard, Outcome, Status};
use history::History;
use obstacle::Obstacle;
use running::Running;
use std::time::Duration;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};
use zeroize::Zeroizing;

/// A STATUS that has not come back by then is said again.
const STATUS_REPEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The most rests that are kept for a view that has begun elsewhere: its owners begin with one
/// chunk each.
const MAX_EARLY_RESTS: usize = 64;

/// See the module.
pub(super) struct Views {
    pub(super) stage: Stage,
    pub(super) history: History,
    /// The others have gone on without this node, and the engine has told no view since.
    pub(super) is_out: bool,
    /// When STATUS is said again, because the engine may have lost it.
    repeat: Option<Time>,
    /// Since when this node, and others with it, have waited for a node that holds the state.
    waits_since: Option<Time>,
    /// Rests that came for a view that has not begun here yet.
    early: Vec<EarlyRest>,
}

/// How far the view has come.
pub(super) enum Stage {
    /// There is no engine, or it has told no view.
    Down,
    /// In a view without quorum.
    Minority(View),
    /// In a quorate view whose members have not all been heard.
    Forming(Exchange),
    /// In a view that has begun.
    Running(Box<Running>),
}

/// What of a message came beside the engine, before the view began here.
struct EarlyRest {
    from: NodeId,
    of: MessageName,
    octets: Vec<u8>,
}

impl Views {
    /// At the start of a node, with what its disk says.
    pub(super) fn new(durable: Durable) -> Self {
        Self {
            stage: Stage::Down,
            history: History::new(durable),
            is_out: false,
            repeat: None,
            waits_since: None,
            early: Vec::new(),
        }
    }

    /// The engine's view.
    pub(super) fn view(&self) -> Option<&View> {
        match &self.stage {
            Stage::Down => None,
            Stage::Minority(view) => Some(view),
            Stage::Forming(exchange) => Some(&exchange.view),
            Stage::Running(running) => Some(&running.view),
        }
    }

    /// The members of the engine's view.
    pub(super) fn members(&self) -> &[NodeId] {
        self.view().map(|view| view.members.as_slice()).unwrap_or_default()
    }

    /// Its ring.
    pub(super) fn ring(&self) -> RingId {
        self.view().map_or(NO_RING, |view| view.ring)
    }

    /// The view, once it has begun.
    pub(super) fn running(&self) -> Option<&Running> {
        match &self.stage {
            Stage::Running(running) => Some(running),
            _ => None,
        }
    }

    /// The same, to change it.
    pub(super) fn running_mut(&mut self) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Running(running) => Some(running),
            _ => None,
        }
    }

    /// The view, if it has begun and the message is one of it.
    pub(super) fn running_at(&mut self, of: &MessageName) -> Option<&mut Running> {
        self.running_mut().filter(|running| (running.view.ring, running.epoch) == (of.ring, of.epoch))
    }

    /// The view, if it has begun and the disk says so.
    pub(super) fn recorded(&self) -> Option<&Running> {
        self.running().filter(|running| self.history.is_on_disk(running.epoch))
    }

    /// The same, to change it.
    pub(super) fn recorded_mut(&mut self) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Running(running) if self.history.is_on_disk(running.epoch) => Some(running),
            _ => None,
        }
    }

    /// For operators.
    pub(super) fn phase(&self) -> Phase {
        match &self.stage {
            Stage::Down => Phase::Down,
            Stage::Minority(_) => Phase::NoQuorum,
            Stage::Forming(exchange) if exchange.is_outvoted() => Phase::NoQuorum,
            Stage::Forming(_) => Phase::Exchange,
            Stage::Running(_) => Phase::Running,
        }
    }

    /// Why a quorate view does not begin.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match &self.stage {
            Stage::Forming(exchange) => exchange.outcome().err(),
            _ => None,
        }
    }

    /// True while members of a quorate view have not been heard.
    pub(super) fn is_forming(&self) -> bool {
        matches!(&self.stage, Stage::Forming(exchange) if exchange.missing().next().is_some())
    }

    /// True if the view has begun here, and is known to have begun at all members.
    pub(super) fn is_formed(&self) -> bool {
        self.running().is_some() && self.history.is_formed()
    }

    /// False while a view forms that may turn out to have no right to go on, as far as this node
    /// knows.
    pub(super) fn may_go_on(&self, core: &Core) -> bool {
        let Stage::Forming(exchange) = &self.stage else { return true };
        let members = &exchange.view.members;
        match core.config.quorum {
            QuorumRule::LastManStanding => self.history.lets_go_on(members),
            QuorumRule::Majority => {
                core.rosters.majorities().have(|node| members.contains(&node))
                    || self.history.lets_few_go_on(members, &core.rosters)
            }
        }
    }

    /// True while the members of a quorate view wait for a node that holds the state.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.stage, Stage::Forming(exchange) if exchange.waits())
    }

    /// Where this node says in its heartbeats that it stands.
    pub(super) fn stance(&self) -> Stance {
        Stance {
            // The members that wait for a node with the state decide nothing.
            quorate: self.view().is_some_and(|view| view.quorate) && !self.waits(),
            running: self.running().is_some(),
        }
    }

    /// What this node says in its heartbeats that it holds of the view. Nothing before the disk
    /// says that the view has begun.
    pub(super) fn ack(&self) -> Ack {
        self.recorded().map_or(Ack { ring: self.ring(), epoch: 0, count: 0, digest: [0; 8] }, Running::ack)
    }

    /// The view as this node believes it: as if without quorum, where the other of two nodes may
    /// have gone on alone.
    pub(super) fn believe(&self, core: &mut Core, view: View) -> View {
        // By the other rule the members vote, which tells more.
        let votes = core.config.quorum == QuorumRule::LastManStanding;
        if votes || self.history.believes(&view, core.rosters.settled.nodes.len()) {
            return view;
        }
        let line = "quorate alone, but the other node may have gone on without this one: waiting for it";
        core.log(LogLevel::Warning, line.to_owned());
        View { quorate: false, ..view }
    }

    /// The engine's view begins. If it has a quorum, STATUS is to be said.
    pub(super) fn enter(&mut self, core: &mut Core, now: Time, view: View) {
        self.is_out = false;
        if view.quorate {
            self.stage = Stage::Forming(Exchange::new(view, core.rosters.clone(), core.config.quorum));
        } else {
            self.waits_since = None;
            self.stage = Stage::Minority(view.clone());
            self.decide_nothing(core, now, view);
        }
    }

    /// There is no view from now on. What is under way in the old ring is ignored by all nodes.
    pub(super) fn leave(&mut self, core: &mut Core) {
        if !matches!(self.stage, Stage::Down | Stage::Forming(_)) {
            core.outputs.push_back(GroupOutput::NoView);
        }
        self.stage = Stage::Down;
        self.repeat = None;
        self.early.clear();
    }

    /// The machine has gone back to an earlier state: what the node holds is void.
    pub(super) fn roll_back(&mut self) {
        self.history.roll_back();
        self.waits_since = None;
    }

    /// In this view nothing can be decided.
    fn decide_nothing(&mut self, core: &mut Core, now: Time, view: View) {
        self.history.interrupt();
        core.outputs.push_back(GroupOutput::View(ViewStart {
            view: View { quorate: false, ..view },
            epoch: self.history.held().epoch,
            current: Vec::new(),
            fresh: Vec::new(),
            reset: false,
            wait_until: now,
            version: GroupConfig::OLDEST,
        }));
    }

    /// When STATUS is to be said again.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.repeat
    }

    /// This node's STATUS for the view that is forming, sealed; to be said again if it does not
    /// come back. `promises`: for how long others may still rely on this node.
    pub(super) fn status(
        &mut self,
        core: &mut Core,
        now: Time,
        leases: &Leases,
        promises: Vec<(u8, u32)>,
    ) -> Option<Vec<u8>> {
        let Stage::Forming(exchange) = &self.stage else {
            self.repeat = None;
            return None;
        };
        let (random, salt) = (core.random(), core.random());
        let status = Status {
            members: mask(&exchange.view.members),
            boot: core.boot(),
            held: self.history.held(),
            begun: self.history.begun(),
            doubtful: self.history.is_doubtful(),
            synced: self.history.is_synced(),
            patient: self.waits_since.is_none_or(|since| now.since(since) < core.config.patience),
            random,
            leases: leases.table().map(|(node, incarnation)| (node.get(), incarnation)).collect(),
            promises,
        };
        let ballot = Ballot { rule: core.config.quorum, formed: self.history.formed() };
        let config = &core.config;
        let is_straight = self.history.is_straight();
        let said =
            (&status, config.speaks, self.history.past(), ballot, config.ingress, &core.rosters, is_straight);
        let Ok(plain) = postcard::to_allocvec(&said).map(Zeroizing::new) else {
            core.log(LogLevel::Error, "a STATUS cannot be written".to_owned());
            return None;
        };
        self.repeat = Some(now.plus(STATUS_REPEAT_INTERVAL));
        Some(frame::seal_status(&core.config.key, core.node(), exchange.view.ring, &salt, &plain))
    }

    /// A member's STATUS has come; `None` if it cannot be read. Gives what the members agree on, if
    /// it was the last one: the view begins.
    pub(super) fn heard(
        &mut self,
        core: &mut Core,
        now: Time,
        from: NodeId,
        heard: Option<Heard>,
    ) -> Option<Outcome> {
        let Stage::Forming(exchange) = &mut self.stage else {
            return None;
        };
        // An engine may tell of several views in one ring. What was said for one of them says
        // nothing in another.
        if heard.as_ref().is_some_and(|heard| heard.status.members != mask(&exchange.view.members)) {
            core.counters.old_ring += 1;
            return None;
        }
        if from == core.node() {
            self.repeat = None;
        }
        let heard = heard.filter(|heard| Self::has_our_settings(core, now, from, heard));
        let waited = exchange.waits();
        exchange.insert(from, heard);
        match exchange.outcome() {
            Ok(outcome) => return Some(*outcome),
            Err(Obstacle::Unheard(_)) => {}
            Err(Obstacle::State(_)) if waited => self.stay_patient(core, now),
            Err(Obstacle::Outvoted(_)) if waited => {}
            Err(obstacle @ Obstacle::State(_)) => self.wait(core, now, &obstacle),
            Err(obstacle @ Obstacle::Outvoted(_)) => self.give_way(core, now, &obstacle),
            Err(obstacle @ Obstacle::Unreadable(_)) => {
                core.log_limited(now, Topic::Excluded, obstacle.to_string());
            }
        }
        None
    }

    /// Members that decide by different rules could go on beside each other. A member with another
    /// ingress would wait for packets that only reach others, or keep the packets of others.
    fn has_our_settings(core: &mut Core, now: Time, from: NodeId, heard: &Heard) -> bool {
        let ours = [("quorum", core.config.quorum.name()), ("ingress", core.config.ingress.name())];
        let theirs = [heard.rule().name(), heard.ingress().name()];
        let other = ours.into_iter().zip(theirs).find(|((_, ours), theirs)| ours != theirs);
        if let Some(((key, ours), theirs)) = other {
            let line = format!(
                "`{key}` in testudo.toml of node {from} is {theirs:?}, and {ours:?} here: set the same on all nodes"
            );
            core.log_limited(now, Topic::Excluded, line);
        }
        other.is_none()
    }

    /// All members have been heard, and they may not go on: this is as if there were no quorum.
    fn give_way(&mut self, core: &mut Core, now: Time, obstacle: &Obstacle) {
        let Some(view) = self.view().cloned() else { return };
        core.log_limited(now, Topic::Waiting, obstacle.to_string());
        self.decide_nothing(core, now, view);
    }

    /// All members have been heard, and none of them holds the latest state. Until a node that may
    /// hold it comes, this is as if there were no quorum: a node that continued from an older state
    /// would answer peers anew, and use numbers again. If all of them have waited in vain for
    /// [`GroupConfig::patience`], they begin with nothing.
    fn wait(&mut self, core: &mut Core, now: Time, obstacle: &Obstacle) {
        let Some(view) = self.view().cloned() else { return };
        core.log_limited(now, Topic::Waiting, obstacle.to_string());
        self.waits_since.get_or_insert(now);
        self.stay_patient(core, now);
        self.decide_nothing(core, now, view);
    }

    /// STATUS is said again when this node has waited for long enough.
    fn stay_patient(&mut self, core: &Core, now: Time) {
        let end = self.waits_since.map(|since| since.plus(core.config.patience));
        self.repeat = end.filter(|end| *end > now);
    }

    /// All members have been heard: the view begins, with what the layer above is to know of it.
    /// `delivered`: this node's last update before the view, if it is among what the view begins
    /// with.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        now: Time,
        outcome: &Outcome,
        delivered: Option<Ticket>,
    ) -> ViewStart {
        if !outcome.unreadable.is_empty() {
            let nodes = names(&outcome.unreadable);
            let line = format!("nodes {nodes} are left out: they have another cluster key or version");
            core.log_limited(now, Topic::Excluded, line);
        }
        if !outcome.strangers.is_empty() {
            let nodes = names(&outcome.strangers);
            let line = format!(
                "nodes {nodes} are left out: they are not among the cluster's nodes, or run a version that \
                 knows of no change of them"
            );
            core.log_limited(now, Topic::Excluded, line);
        }
        let running = Running::new(core, now, outcome, delivered);
        self.history.begin(core.node(), outcome, running.stability.chain());
        self.waits_since = None;
        self.stage = Stage::Running(Box::new(running));
        for EarlyRest { from, of, octets } in std::mem::take(&mut self.early) {
            if let Some(running) = self.running_at(&of).filter(|running| running.view.members.contains(&from))
            {
                running.bulk.keep(from, of.serial, octets);
            }
        }
        let wait = if planted(Plant::PromiseIgnored) { Duration::ZERO } else { outcome.wait };
        ViewStart {
            view: outcome.view.clone(),
            epoch: outcome.epoch,
            current: outcome.current.clone(),
            fresh: outcome.fresh.clone(),
            reset: outcome.reset,
            wait_until: now.plus(wait),
            version: outcome.version(),
        }
    }

    /// The rest of a message has come as a datagram. True if messages may wait for it.
    pub(super) fn rest_came(&mut self, from: NodeId, of: MessageName, octets: Vec<u8>) -> bool {
        if let Some(running) = self.running_at(&of) {
            let is_to_come = running.view.members.contains(&from) && running.is_to_come(from, of.serial);
            if is_to_come {
                running.bulk.keep(from, of.serial, octets);
            }
            return is_to_come;
        }
        let forming = matches!(&self.stage, Stage::Forming(exchange) if exchange.view.ring == of.ring);
        if forming && self.early.len() < MAX_EARLY_RESTS {
            self.early.push(EarlyRest { from, of, octets });
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::roster::Rosters;

    /// A member that has begun the view may send any number of them.
    #[test]
    fn while_a_view_forms_a_bounded_number_of_its_rests_is_kept_and_of_no_other() {
        let node = NodeId::new(1).unwrap();
        let ring = RingId { seq: 3, node: 1 };
        let rosters = Rosters::first([(node, Vec::new())]);
        let view = View { ring, members: vec![node], quorate: true };
        let mut views = Views::new(Durable::default());
        let of = |ring, serial| MessageName { ring, epoch: 2, serial };
        assert!(!views.rest_came(node, of(ring, 0), vec![1]) && views.early.is_empty(), "there is no view");
        views.stage = Stage::Forming(Exchange::new(view, rosters, QuorumRule::Majority));
        views.rest_came(node, of(RingId { seq: 2, node: 1 }, 0), vec![1]);
        assert!(views.early.is_empty(), "it is of another ring");
        for serial in 0..100 {
            assert!(!views.rest_came(node, of(ring, serial), vec![1]), "no message waits for it yet");
        }
        assert_eq!(views.early.len(), MAX_EARLY_RESTS);
    }
}
