//! A node that comes is brought up to date: each owner tells it all that it owns, between its other updates.

use super::{Member, Unheard};
use crate::group::{Ticket, ViewStart};
use crate::node::NodeId;
use crate::share::ShareSet;
use crate::update::{IkeState, Op, PieceName, Secret};
use std::collections::{BTreeSet, VecDeque};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_ipsec::spi::{Share, Spi};

/// Octets under way at a time, about: what else there is to say must not wait for long behind it.
pub(super) const CHUNK: usize = 48 << 10;

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Resync {
    /// Who is brought up to date.
    fresh: Vec<NodeId>,
    /// Who has not said all.
    awaited: BTreeSet<NodeId>,
    /// What this node has still to say.
    queue: VecDeque<Item>,
    /// It has not said its last word.
    telling: bool,
    /// The last that it has said.
    said: Option<Ticket>,
}

/// One SA, or a piece of configuration.
#[derive(Clone, Debug)]
enum Item {
    Piece(PieceName),
    /// Behind the last piece.
    LastPiece,
    Child(Spi),
    Ike(IkeSpi),
}

impl Resync {
    /// The view is over.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Nodes that are not up to date.
    pub(super) fn fresh(&self) -> &[NodeId] {
        &self.fresh
    }

    /// SAs that this node has still to tell.
    pub(super) fn untold_sas(&self) -> usize {
        self.queue.iter().filter(|item| item.share().is_some()).count()
    }

    /// Owners that have not told all.
    pub(super) fn awaited(&self) -> Vec<NodeId> {
        self.awaited.iter().copied().collect()
    }

    /// Shares of which this node has still to tell something.
    pub(super) fn untold(&self) -> ShareSet {
        self.queue.iter().filter_map(Item::share).collect()
    }
}

impl Item {
    fn share(&self) -> Option<Share> {
        match self {
            Self::Piece(_) | Self::LastPiece => None,
            Self::Child(spi) => Some(spi.share()),
            Self::Ike(spi) => Some(spi.share()),
        }
    }
}

impl Member {
    /// A view has begun.
    pub(super) fn begin_resync(&mut self, now: Time, start: &ViewStart) {
        if start.fresh.is_empty() {
            return;
        }
        self.resync.fresh.clone_from(&start.fresh);
        self.resync.awaited = start.current.iter().copied().collect();
        if !start.current.contains(&self.node) {
            return;
        }
        // Before the SAs, whose policies are as the connections say.
        if let Some(names) = self.pieces_to_tell() {
            self.resync.queue.extend(names.into_iter().map(Item::Piece).chain([Item::LastPiece]));
        }
        let owned = self.table.owned_by(self.node);
        // One share after the other: those that have been told may change hands.
        for share in owned.iter() {
            // The order in which they came: what takes another's place comes behind it.
            let children = self.replicas.children_of(share);
            let mut children: Vec<(u64, Spi)> = children.map(|(spi, child)| (child.order, *spi)).collect();
            children.sort_unstable();
            self.resync.queue.extend(children.into_iter().map(|(_, spi)| Item::Child(spi)));
            self.resync.queue.extend(self.replicas.ikes_of(share).map(|(spi, _)| Item::Ike(*spi)));
        }
        self.resync.telling = true;
        self.tell_path_mtus(now, &start.current);
        self.publish(vec![Op::Resync {
            epoch: self.epoch,
            owners: self.table.owners(),
            unfit: self.table.unfit().iter().copied().collect(),
            drained: self.table.drained().iter().copied().collect(),
        }]);
        self.tell_next(now);
    }

    /// Says the next part, once the one before it has reached everybody.
    pub(super) fn tell_more(&mut self, now: Time) {
        let waits = self.resync.said.is_some_and(|ticket| !self.commits.is_stable(ticket));
        if self.resync.telling && self.running && !waits {
            self.tell_next(now);
            self.hand_over(now);
        }
    }

    fn tell_next(&mut self, now: Time) {
        // What has changed is told first: what follows is the state as it is now.
        self.turn(now);
        let (mut ops, mut size) = (Vec::new(), 0);
        while size < CHUNK
            && let Some(item) = self.resync.queue.pop_front()
        {
            match item {
                Item::Piece(name) => {
                    let op = self.piece_again(&name);
                    size += op.as_ref().map_or(0, Op::size);
                    ops.extend(op);
                }
                Item::LastPiece => ops.push(Op::Pieces { epoch: self.epoch }),
                Item::Child(spi) => {
                    size += 512;
                    self.child_again(spi, &mut ops);
                }
                Item::Ike(spi) => {
                    let op = self.ike_again(now, spi);
                    size += op.as_ref().map_or(0, |_| 2048);
                    ops.extend(op);
                }
            }
        }
        if self.resync.queue.is_empty() {
            self.resync.telling = false;
            ops.push(Op::Resynced { epoch: self.epoch });
        }
        self.resync.said = self.publish(ops);
    }

    fn child_again(&mut self, spi: Spi, ops: &mut Vec<Op>) {
        let Some(child) = self.replicas.child(spi) else { return };
        ops.push(Op::Child(Box::new(child.state())));
        if let Some(from) = child.replaces.filter(|_| child.switched) {
            ops.push(Op::ChildSwitch { from, to: spi });
        }
    }

    /// As the endpoint has it; or, where this node has not read it yet, as it came.
    pub(super) fn ike_again(&mut self, now: Time, spi: IkeSpi) -> Option<Op> {
        let ike = self.replicas.ikes.get_mut(&spi)?;
        if ike.here.is_some() {
            let id = ike.id;
            let outline = self.endpoint.outline(id)?;
            return self.tell_whole_ike(now, id, outline);
        }
        let (at, state) = ike.told.as_mut()?;
        // It may have come in another version, and all go on from the same octets.
        if let Some(again) = self.endpoint.exported_again(state.octets()) {
            *state = Secret::new(again);
        }
        let (outline, age, state) = (ike.outline.clone(), now.since(*at), state.clone());
        Some(Op::Ike(Box::new(IkeState { outline, age, state, contact: None })))
    }

    /// Whose the shares are at the start of the view. Those who hold the state know, and all say the same; a fresh node hears it
    /// from the first of them, and goes on with what has been handed over since.
    pub(super) fn told_owners(
        &mut self,
        epoch: u64,
        owners: &[u8],
        (unfit, drained): (&[NodeId], &[NodeId]),
    ) {
        if epoch != self.epoch {
            return;
        }
        let Some(Unheard { drops, fit, drained: since }) = self.unheard_of.take() else { return };
        self.table.adopt(owners, unfit, drained);
        for (from, share, to) in drops {
            self.table.drop(from, share, to);
        }
        for (node, fit) in fit {
            self.table.set_fit(node, fit);
        }
        for (node, drained) in since {
            self.table.set_drained(node, drained);
        }
    }

    /// An owner has told all.
    pub(super) fn resynced(&mut self, now: Time, from: NodeId, epoch: u64) {
        // One of a view that is over says nothing of this one.
        let last = epoch == self.epoch && self.resync.awaited.remove(&from);
        if !last || !self.resync.awaited.is_empty() {
            return;
        }
        // All owners have told all, at the same place for everybody: who was fresh is one of us now.
        let fresh = std::mem::take(&mut self.resync.fresh);
        if fresh.contains(&self.node) {
            self.forget_stale(now);
            self.group.synced();
            self.log(1, "this node holds all that the cluster knows".to_owned());
        }
        let changes = self.table.synced_too(&fresh);
        let owned = self.table.owned_by(self.node);
        let heirs: ShareSet = owned.intersection(changes.heir);
        self.grant_all(heirs, false);
        self.hand_over(now);
        self.provide(now);
    }
}
