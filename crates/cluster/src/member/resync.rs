//! A node that comes is brought up to date: each owner tells it all that it owns, between its other updates.

use super::{Member, Unheard};
use crate::group::{Ticket, ViewStart};
use crate::node::NodeId;
use crate::share::ShareSet;
use crate::update::{IkeState, Op, PieceName, Secret};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_ipsec::spi::{Share, Spi};

/// Octets that are told in one go, about.
pub(super) const CHUNK: usize = 48 << 10;
/// What else there is to say waits behind what is under way: where a chunk has reached everybody sooner than that there may be one more
/// under way, and where it has taken longer, only half as many.
const QUICK: Duration = Duration::from_millis(15);
const SLOW: Duration = Duration::from_millis(60);
/// No more are ever under way.
const MOST: usize = 16;
/// No more are told in one turn of the host: pulses must not wait for them.
const IN_A_TURN: usize = 4;

/// How far it is.
#[derive(Debug, Default)]
pub(super) struct Resync {
    /// Who is brought up to date.
    fresh: Vec<NodeId>,
    /// Who has not said all.
    awaited: BTreeSet<NodeId>,
    /// What this node has still to say, one share after the other.
    queue: VecDeque<Item>,
    /// The shares of which it has something to say.
    untold: ShareSet,
    /// It has not said its last word.
    telling: bool,
    /// Chunks that have not reached everybody, as far as is known, and when they were told.
    under_way: VecDeque<(Ticket, Time)>,
    /// How many there may be beside one.
    room: usize,
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

    /// The oldest chunk under way has reached everybody, after so long.
    fn arrived(&mut self, after: Duration) {
        if after <= QUICK {
            self.room = (self.room + 1).min(MOST - 1);
        } else if after >= SLOW {
            self.room /= 2;
        }
    }

    fn may_tell(&self) -> bool {
        self.telling && self.under_way.len() <= self.room
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
        self.untold
    }

    fn next(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        let next = self.queue.front().and_then(Item::share);
        // One share is told after the other.
        if let Some(told) = item.share().filter(|share| next != Some(*share)) {
            self.untold.remove(told);
        }
        Some(item)
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
            if self.resync.queue.back().and_then(Item::share) == Some(share) {
                self.resync.untold.insert(share);
            }
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

    /// Chunks may have reached everybody.
    pub(super) fn chunks_arrived(&mut self, now: Time) {
        let commits = &self.commits;
        while let Some((_, told)) = self.resync.under_way.pop_front_if(|(at, _)| commits.is_stable(*at)) {
            self.resync.arrived(now.since(told));
        }
    }

    /// Says the next part, as soon as enough of what went before has reached everybody.
    pub(super) fn tell_more(&mut self, now: Time) {
        for _ in 0..IN_A_TURN {
            if self.tells_more() {
                self.tell_next(now);
                self.hand_over(now);
            }
        }
    }

    /// There is more to tell, at once.
    pub(super) fn tells_more(&self) -> bool {
        self.running && self.resync.may_tell()
    }

    fn tell_next(&mut self, now: Time) {
        // What has changed is told first: what follows is the state as it is now.
        self.turn(now);
        let (mut ops, mut size) = (Vec::new(), 0);
        while size < CHUNK
            && let Some(item) = self.resync.next()
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
        let ticket = self.publish(ops);
        self.resync.under_way.extend(ticket.map(|ticket| (ticket, now)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn child(share: u8, slot: u32) -> Item {
        Item::Child(Spi(u32::from(share) << 24 | slot << 10))
    }

    /// Tells chunks one after another, each of which arrives after so long. Gives how many may be under way then.
    fn room_after(resync: &mut Resync, took: &[u64]) -> usize {
        took.iter().for_each(|millis| resync.arrived(Duration::from_millis(*millis)));
        resync.room + 1
    }

    #[test]
    fn as_much_is_under_way_as_arrives_soon() {
        let mut resync = Resync { telling: true, ..Resync::default() };
        assert_eq!(room_after(&mut resync, &[]), 1);
        assert_eq!(room_after(&mut resync, &[1, 15, 30, 15]), 4);
        assert_eq!(room_after(&mut resync, &[60]), 2);
        assert_eq!(room_after(&mut resync, &[5000, 5000]), 1);
        assert_eq!(room_after(&mut resync, &[1; 100]), MOST);
        resync.under_way.extend((1..MOST as u64).map(|at| (Ticket(at), Time::default())));
        assert!(resync.may_tell());
        resync.under_way.push_back((Ticket(MOST as u64), Time::default()));
        assert!(!resync.may_tell());
    }

    #[test]
    fn a_share_is_told_with_its_last_sa() {
        let queue = [Item::LastPiece, child(1, 1), child(1, 2), child(3, 1), Item::Ike(IkeSpi(3 << 56))];
        let untold = [Share(1), Share(3)].into_iter().collect();
        let mut resync = Resync { queue: queue.into(), untold, ..Resync::default() };
        let left: Vec<usize> = std::iter::from_fn(|| {
            resync.next()?;
            Some(resync.untold().len())
        })
        .collect();
        assert_eq!(left, [2, 2, 1, 1, 0]);
    }
}
