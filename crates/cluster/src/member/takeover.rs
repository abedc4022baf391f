//! Shards come and go: with views, with suspicion, and from hand to hand.
//!
//! Packets and IKE are two things. Packets of a suspect are carried by its standby at once: should the suspicion be wrong, a packet is
//! delivered twice and no number is used twice. IKE has one owner, whom the view names, and whom nobody doubts.

use super::edges::Edges;
use super::handover::Arrivals;
use super::syncs::Syncs;
use super::{Member, MemberOutput, Shown, TakenIn, Unheard};
use crate::alloc::OwnedHomes;
use crate::group::{NoQuorum, Position, ViewStart};
use crate::node::{NodeId, names};
use crate::shard::ShardSet;
use crate::update::{Left, Op};
use std::time::Duration;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{ChildSaId, IkeSaId, LogLevel, Time};
use testudo_ipsec::spi::{Shard, Spi};
use testudo_planted::{Plant, planted};

/// IKE SAs whose states are read in one go. A node that was busy with more would be late with its heartbeats.
const AT_ONCE: usize = 64;
/// While a standby goes on with a shard, its owner moves its numbers this often.
const BUMP_AGAIN: Duration = Duration::from_millis(300);

/// Shards that this node is to take.
#[derive(Debug)]
pub(super) struct Take {
    when: When,
    shards: ShardSet,
}

/// When it takes them.
#[derive(Clone, Copy, Debug)]
enum When {
    /// What a departed owner may still send has run out by then.
    At(Time),
    /// All know that they were handed over.
    Stable(Position),
}

impl Take {
    pub(super) fn shards(&self) -> ShardSet {
        self.shards
    }

    /// When time brings it.
    pub(super) fn at(&self) -> Option<Time> {
        match self.when {
            When::At(at) => Some(at),
            When::Stable(_) => None,
        }
    }
}

impl Member {
    /// A view begins.
    pub(super) fn view(&mut self, now: Time, start: ViewStart) {
        (self.running, self.no_view) = (start.view.quorate, None);
        self.quorate = start.view.quorate;
        let before = std::mem::replace(&mut self.members, start.view.members.clone());
        self.log_view(&start, &before);
        self.resync.stop();
        self.stop_handover();
        // Whatever was about to be taken: the new view says it again, if it is still so.
        self.takes.clear();
        self.wanted.clear();
        let standby_gone = self.table.standby_not_of(&start.current);
        let standby_of = std::mem::take(&mut self.inherited).union(self.table.standby_of(self.node));
        if !start.view.quorate {
            // Those who were suspected may be the majority: what was carried for them is theirs.
            return self.provide(now);
        }
        self.epoch = start.epoch;
        if start.reset || start.fresh.contains(&self.node) {
            self.void(now, start.reset);
        }
        self.version = start.version;
        self.endpoint.export_as(crate::update::states(self.version));
        self.by_grace = start.view.members.len() * 2 <= self.config.group.nodes.len();
        self.unheard_of = None;
        let held_before = !start.reset && !start.fresh.contains(&self.node);
        if start.reset {
            self.table.reset();
        } else if start.fresh.contains(&self.node) {
            self.unheard_of = Some(Unheard::default());
        }
        self.suspects.retain(|node| start.view.members.contains(node));
        self.yielded = ShardSet::EMPTY;
        let changes = self.table.view(&start.current);
        self.became_standby(changes.standby);
        let owned = self.table.owned_by(self.node);
        let gained = owned.without(self.active).without(self.handover.held());
        if held_before {
            // Its standby need not wait for what a departed owner may still send: no more than when it only suspected him.
            self.inherited = gained.intersection(standby_of);
        }
        if !gained.is_empty() {
            self.takes.push(Take { when: When::At(start.wait_until), shards: gained });
        }
        self.begin_configuration(now, start.fresh.contains(&self.node), start.reset);
        self.begin_line_rates(&start);
        self.begin_resync(now, &start);
        self.tell_fitness_anew();
        self.tell_untold_paths(now);
        // New numbers for whoever has become owner or standby. An owner goes on with those that it has for as long as they last, and so
        // does the standby that takes over: they lie behind its owner's. Where the standby was another, and now is gone or passed over, that
        // one may have sent behind all of them, and told nobody.
        let changed = owned.intersection(changes.owner.union(changes.standby));
        let behind = changed.intersection(standby_gone.union(changes.owner.without(standby_of)));
        self.grant_all(behind, true);
        self.grant_all(changed.without(behind), false);
        self.leave_anew();
        self.take_what_is_due(now);
        self.provide(now);
        self.hand_over(now);
    }

    /// What this node holds is void: others have gone on without it, and tell it anew what there is. `reset`: nobody holds
    /// anything.
    pub(super) fn void(&mut self, now: Time, reset: bool) {
        if self.commits.is_waiting() || self.by_grace {
            // It has encrypted messages that never left, or that left while the other half went on as well. The states that it will be
            // given know nothing of their IVs, nor do the blocks of which numbers it has sent.
            self.sender = None;
            self.group.renew_sender(now);
        }
        let ids: Vec<IkeSaId> = self.endpoint.states().map(|(id, _)| id).collect();
        for id in ids {
            self.endpoint.evict(now, id);
        }
        self.endpoint.take_changed();
        self.commits.clear();
        // Who goes on with these Child SAs sends through them.
        self.switch_those(|_, _| true);
        self.own_blocks.clear();
        self.standby_blocks.clear();
        self.bumping.clear();
        self.imports.clear();
        self.imported = ShardSet::EMPTY;
        self.handover.clear();
        self.arrivals = Arrivals::default();
        self.edges = Edges::default();
        self.asks.clear();
        self.syncs = Syncs::default();
        (self.active, self.ike) = (ShardSet::EMPTY, ShardSet::EMPTY);
        self.update_homes(now);
        self.replicas.doubt();
        if reset {
            self.forget_stale(now);
        }
    }

    /// What nobody has named again is gone.
    pub(super) fn forget_stale(&mut self, now: Time) {
        let (ikes, children) = self.replicas.stale();
        ikes.into_iter().for_each(|spi| self.ike_gone(spi));
        children.into_iter().for_each(|spi| self.child_gone(now, spi));
    }

    /// SEG_DROP has been delivered: the shard is another's.
    pub(super) fn dropped(
        &mut self,
        now: Time,
        from: NodeId,
        at: Position,
        (shard, to): (Shard, NodeId),
        left: Left,
    ) {
        if let Some(unheard) = &mut self.unheard_of {
            unheard.drops.push((from, shard, to));
            return;
        }
        let Some(changes) = self.table.drop(from, shard, to) else {
            if from == self.node {
                self.not_dropped(now, shard);
            }
            return;
        };
        if from == self.node {
            self.handover.done(shard);
            self.active.remove(shard);
            self.ike.remove(shard);
            self.update_homes(now);
            self.hand_over(now);
        }
        let mut standbys = changes.standby;
        if to == self.node {
            self.arrivals.left(now, shard, left);
            let shards: ShardSet = [shard].into_iter().collect();
            // Until all know of it, a view without those who do would leave the shard with its former owner.
            self.takes.push(Take { when: When::Stable(at), shards });
            // Another may have become its standby meanwhile, whom its former owner could not grant anything any more.
            standbys.insert(shard);
        }
        self.became_standby(changes.standby);
        let owned = self.table.owned_by(self.node);
        self.grant_all(owned.intersection(standbys), false);
        self.provide(now);
    }

    /// Takes what is due.
    pub(super) fn take_what_is_due(&mut self, now: Time) {
        let stable = self.stable_upto;
        let due = |take: &Take| match take.when {
            When::At(at) => at <= now,
            When::Stable(at) => at <= stable,
        };
        if !self.running {
            return;
        }
        let (taken, left): (Vec<Take>, Vec<Take>) =
            std::mem::take(&mut self.takes).into_iter().partition(due);
        self.takes = left;
        if taken.is_empty() {
            return self.show(now);
        }
        // What it has carried as their standby goes on behind all that their owners have had.
        self.use_blocks_of(taken.iter().fold(ShardSet::EMPTY, |all, take| all.union(take.shards)));
        for Take { shards, when } in taken {
            if let When::At(_) = when {
                self.log(LogLevel::Info, format!("takes over {} shards", shards.len()));
                if self.config.message_id_sync {
                    self.syncs.departed(shards);
                }
            }
            self.active = self.active.union(shards);
            self.ike = self.ike.union(shards);
            for shard in shards.iter() {
                self.imports.extend(self.replicas.readable(shard));
            }
            self.imported = self.imported.union(shards);
            self.inherited = self.inherited.without(shards);
            let (arrived, digests) = self.arrivals.arrived(shards);
            if !arrived.is_empty() {
                self.outputs.push_back(MemberOutput::Handled { shards: arrived, digests });
            }
        }
        self.provide(now);
    }

    /// Reads some of the states of the IKE SAs that this node has become the owner of.
    pub(super) fn import_some(&mut self, now: Time) {
        if self.sender.is_none() || self.imported.is_empty() {
            return;
        }
        for _ in 0..AT_ONCE {
            let Some(spi) = self.imports.first().copied() else { break };
            self.import(now, spi);
        }
        if self.imports.is_empty() {
            let shards = std::mem::take(&mut self.imported);
            self.syncs.all_imported(shards);
            self.remove_orphans(now, shards);
            self.update_homes(now);
            // Before its shard moves on.
            self.renew_doubtful(now);
            self.hand_over(now);
        }
    }

    /// Goes on with an IKE SA. From now on its owner here makes its IVs, under its own sender ID.
    pub(super) fn import(&mut self, now: Time, spi: IkeSpi) {
        self.imports.remove(&spi);
        let Some(ike) = self.replicas.ikes.get(&spi) else { return };
        let Some((at, state)) = ike.told.as_ref().filter(|_| ike.here.is_none()) else { return };
        let replicas = &self.replicas;
        let number = |spi: Spi| -> Option<ChildSaId> { replicas.child(spi).map(|child| child.id) };
        match self.endpoint.import_sa_as(*at, state.octets(), Some(ike.id), &number) {
            Ok(id) => {
                self.syncs.imported(spi);
                let here = self.endpoint.message_ids(id);
                let contact = self.replicas.ikes.get_mut(&spi).and_then(|ike| {
                    ike.here = here;
                    ike.contact.take()
                });
                if let Some((contact, older)) = contact.as_deref() {
                    self.endpoint.contacted_before(now, id, contact, *older);
                    // Its Child SAs are no orphans.
                    self.turn(now);
                }
            }
            Err(error) => {
                self.log(LogLevel::Error, format!("cannot go on with IKE_SA {spi}: {error}"));
                self.ike_gone(spi);
                self.publish(vec![Op::IkeDelete { spi }]);
            }
        }
    }

    /// A Child SA that no IKE SA has: its former owner died between two updates that belong together.
    fn remove_orphans(&mut self, now: Time, shards: ShardSet) {
        let of = |shard| self.replicas.children_of(shard);
        let children = shards.iter().flat_map(of);
        let orphans: Vec<Spi> = children
            .filter(|(_, child)| self.endpoint.ike_of(child.id).is_none())
            .map(|(spi, _)| *spi)
            .collect();
        for spi in orphans {
            self.child_gone(now, spi);
            self.publish(vec![Op::ChildDelete { spi }]);
        }
    }

    /// Connections start, and addresses are leased, where IKE is spoken and all is known that there is.
    pub(super) fn update_homes(&mut self, now: Time) {
        let owned = self.ike.without(self.imported).without(self.handover.held());
        if self.homes != Some(owned) {
            self.homes = Some(owned);
            self.endpoint.set_homes(now, Box::new(OwnedHomes { key: self.key, owned }));
        }
    }

    /// Carries the packets of those whom it suspects and whose standby it is, and of those whose standby it was until they left; no others.
    pub(super) fn provide(&mut self, now: Time) {
        let mut provisional = ShardSet::EMPTY;
        if self.quorate {
            provisional = self.inherited;
            for suspect in &self.suspects {
                let theirs = self.table.owned_by(*suspect);
                provisional =
                    provisional.union(theirs.iter().filter(|shard| self.is_standby(*shard)).collect());
            }
        }
        let before =
            std::mem::replace(&mut self.provisional, provisional.without(self.active).without(self.yielded));
        self.log_provisional(before);
        // The owner, should it live, learns of it by the next heartbeat that it hears: it is told until the owner has moved its numbers,
        // however short the suspicion was. The peer's window has moved on with the first packet.
        self.used = self.used.union(self.provisional).without(self.active);
        self.tell_used();
        self.show(now);
    }

    fn log_view(&mut self, start: &ViewStart, before: &[NodeId]) {
        let ViewStart { view, epoch, fresh, .. } = start;
        for gone in before.iter().filter(|node| !view.members.contains(node)) {
            self.log(LogLevel::Warning, format!("node {gone} has left the view"));
        }
        let members = names(&view.members);
        self.log(
            if view.quorate { LogLevel::Info } else { LogLevel::Warning },
            match view.quorate {
                false => format!("no quorum: nodes {members} are alone"),
                true if fresh.is_empty() => format!("view {epoch} begins: nodes {members}"),
                true => format!(
                    "view {epoch} begins: nodes {members}; to be brought up to date: {}",
                    names(fresh)
                ),
            },
        );
    }

    /// What came and went since that was carried for suspects.
    fn log_provisional(&mut self, before: ShardSet) {
        let (came, went) = (self.provisional.without(before), before.without(self.provisional));
        // Those that it has taken for good are told of where it takes them.
        let back = went.without(self.active).len();
        if !came.is_empty() {
            self.log(LogLevel::Info, format!("carries {} shards of suspects provisionally", came.len()));
        }
        if back > 0 {
            self.log(LogLevel::Info, format!("gives {back} shards of former suspects back"));
        }
    }

    pub(super) fn tell_used(&mut self) {
        self.group.set_load(self.load, self.used);
    }

    /// The owner has moved its numbers behind all that this node may have sent with as its standby.
    pub(super) fn owner_bumped(&mut self, shard: Shard) {
        // One that still carries the shard has more to tell.
        if !self.provisional.contains(shard) {
            self.used.remove(shard);
            self.tell_used();
        }
    }

    /// The standby is who the view says. Two nodes that suspect different ones would both be the next in line otherwise.
    fn is_standby(&self, shard: Shard) -> bool {
        if planted(Plant::StandbyBySuspicion) {
            let ranked = crate::shard::ranks(shard, self.table.synced());
            let first = ranked.iter().find(|node| !self.suspects.contains(node));
            return first == Some(&self.node);
        }
        self.table.standby(shard) == Some(self.node)
    }

    /// What another node says that it carries provisionally, or has carried. If that is ours, it suspects us, or did, and has sent
    /// with higher numbers than we do: nothing leaves until ours are behind them again.
    pub(super) fn told(&mut self, now: Time, from: NodeId, provisional: ShardSet) {
        self.told.insert(from, provisional);
        self.bump(now);
    }

    /// Moves the numbers of shards that others have sent for; again and again while they go on, and once more when they are done.
    pub(super) fn bump(&mut self, now: Time) {
        // The group tells only what has changed: what a node had said before it left the view still holds when it is back.
        let told = self.told.iter().filter(|(node, _)| self.members.contains(node));
        let told = told.fold(ShardSet::EMPTY, |all, (_, told)| all.union(*told));
        // One that has been given up is the next owner's to number.
        let told = told.intersection(self.active.without(self.handover.held()));
        if told.is_empty() || !self.running {
            return;
        }
        let again = |at: &Time| now.since(*at) >= BUMP_AGAIN;
        let due =
            |shard: &Shard| !self.bumping.contains_key(shard) && self.bumped_at.get(shard).is_none_or(again);
        let due: ShardSet = told.iter().filter(due).collect();
        if due.is_empty() || planted(Plant::OwnerNotTold) {
            return;
        }
        self.bumped_at.extend(due.iter().map(|shard| (shard, now)));
        if let Some(ticket) = self.grant_all(due, true) {
            self.bumping.extend(due.iter().map(|shard| (shard, ticket)));
        }
        self.show(now);
    }

    /// The owner has bumped a shard: it lives, and knows of what we carry. Our next block lies behind its own, so we must not
    /// begin with it.
    pub(super) fn yield_to_owner(&mut self, now: Time, shard: Shard) {
        if self.provisional.contains(shard) {
            self.yielded.insert(shard);
            self.provide(now);
        }
    }

    /// Blocks of bumped shards are stable.
    pub(super) fn bumped(&mut self) {
        let commits = &self.commits;
        self.bumping.retain(|_, ticket| !commits.is_stable(*ticket));
    }

    /// Who answers for the addresses of all: the first that is heard, and has all of its ports if any has.
    fn next_host(&self) -> Option<NodeId> {
        let heard = || self.members.iter().copied().filter(|node| !self.suspects.contains(node));
        heard().find(|node| !self.table.is_last(*node)).or_else(|| heard().next())
    }

    /// Tells the host what is kept here, if that has changed.
    pub(super) fn show(&mut self, now: Time) {
        let carries = self.quorate || self.config.group.no_quorum == NoQuorum::Forward;
        let bumping: ShardSet = self.bumping.keys().copied().collect();
        let mut packets = self.active.union(self.provisional).without(bumping.union(self.handover.stopped()));
        let mut ike = self.ike.without(self.handover.held());
        if !self.quorate {
            ike = ShardSet::EMPTY;
        }
        if !carries {
            packets = ShardSet::EMPTY;
        }
        let default_host = match self.running {
            true => self.next_host() == Some(self.node),
            // Nobody knows better; but the part of the cluster that has a quorum has one of its own.
            false => self.shown.default_host && carries,
        };
        let held = if self.quorate { self.arrivals.shards().without(packets) } else { ShardSet::EMPTY };
        let shown = Shown { packets, held, ike, default_host };
        if shown == self.shown {
            return;
        }
        let new = packets.without(self.shown.packets);
        if !new.is_empty() {
            // Their packets leave with them.
            self.use_blocks_of(new);
        }
        self.take_in(now, new);
        if default_host && !self.shown.default_host {
            self.outputs.push_back(MemberOutput::Announce);
        }
        self.shown = shown;
        self.outputs.push_back(MemberOutput::Shards(shown));
    }

    /// Packets of these shards are taken in here from now on.
    fn take_in(&mut self, now: Time, shards: ShardSet) {
        let of = |shard| self.replicas.children_of(shard);
        // Where the former owner has told how far it got, nobody need guess.
        let reach = |shard, child| match self.arrivals.is_exact(shard) {
            true => 0,
            false => self.reach(now, shard, child),
        };
        let children = shards.iter().flat_map(of).map(|(spi, child)| TakenIn {
            spi_in: *spi,
            edge: child.edge,
            reach: reach(spi.shard(), child),
            esn: child.params.esn,
        });
        let children: Vec<TakenIn> = children.collect();
        self.arrivals.taken(shards);
        if !children.is_empty() {
            self.outputs.push_back(MemberOutput::TakeIn { children });
        }
    }
}
