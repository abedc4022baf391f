//! A joining node is brought up to date: each owner sends it the state of all its SAs, between its
//! other updates.

use super::Replication;
use crate::group::{Ticket, ViewStart};
use crate::member::configuration::Configuration;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{IkeState, Op, PieceName, Secret};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;

/// Approximate size of the state sent in one chunk, in octets.
pub(in crate::member) const CHUNK_OCTETS: usize = 48 << 10;
/// The pace of chunks. They are sent in bursts: the engine rests while the fresh nodes take one in,
/// and other messages wait behind it.
struct Pace {
    /// A burst that reaches every node within this time makes the next one longer by one chunk. One
    /// that takes longer than `slow_after` halves it.
    quick_within: Duration,
    slow_after: Duration,
    /// Bound on the chunks of a burst.
    max_chunks: usize,
}

/// The pace beside the engine, and the pace when all chunks go through the engine and delay its
/// other messages.
const BULK_PACE: Pace =
    Pace { quick_within: Duration::from_millis(40), slow_after: Duration::from_millis(100), max_chunks: 32 };
const ENGINE_PACE: Pace =
    Pace { quick_within: Duration::from_millis(15), slow_after: Duration::from_millis(60), max_chunks: 8 };

/// The progress of bringing nodes up to date.
#[derive(Debug, Default)]
pub(in crate::member) struct Resync {
    /// Nodes that are brought up to date.
    fresh: Vec<NodeId>,
    /// Owners that have not sent everything yet.
    awaited: BTreeSet<NodeId>,
    /// What this node still has to send, shard by shard.
    queue: VecDeque<Item>,
    /// The shards with something left to send.
    untold: ShardSet,
    /// True if this node has not sent its end mark.
    telling: bool,
    /// Chunks of the burst that may not have reached every node, and when it began.
    under_way: VecDeque<Ticket>,
    since: Time,
    /// Chunks that may follow in this burst, and chunks that a burst may have beside the first.
    left: usize,
    room: usize,
}

/// One SA, or a piece of configuration.
#[derive(Clone, Debug)]
enum Item {
    Piece(PieceName),
    /// Marks the end of the pieces.
    LastPiece,
    Child(Spi),
    Ike(IkeSpi),
}

impl Resync {
    /// The view is over.
    pub(in crate::member) fn stop(&mut self) {
        *self = Self::default();
    }

    /// A chunk has been published.
    fn told(&mut self, now: Time, ticket: Option<Ticket>) {
        if self.under_way.is_empty() {
            (self.since, self.left) = (now, self.room);
        } else {
            self.left -= 1;
        }
        self.under_way.extend(ticket);
    }

    /// All chunks of a burst have reached every node, after this time.
    fn arrived(&mut self, after: Duration, pace: &Pace) {
        if after <= pace.quick_within {
            self.room += 1;
        } else if after >= pace.slow_after {
            self.room /= 2;
        }
        self.room = self.room.min(pace.max_chunks - 1);
    }

    fn may_tell(&self) -> bool {
        self.telling && (self.under_way.is_empty() || self.left > 0)
    }

    /// Nodes that are not up to date.
    pub(in crate::member) fn fresh(&self) -> &[NodeId] {
        &self.fresh
    }

    /// Number of SAs that this node still has to send.
    pub(in crate::member) fn untold_sas(&self) -> usize {
        self.queue.iter().filter(|item| item.shard().is_some()).count()
    }

    /// Owners that have not sent everything yet.
    pub(in crate::member) fn awaited(&self) -> Vec<NodeId> {
        self.awaited.iter().copied().collect()
    }

    /// An owner has sent everything. Once all owners have, returns the nodes that are up to date
    /// now.
    pub(in crate::member) fn ended(&mut self, owner: NodeId) -> Option<Vec<NodeId>> {
        let last = self.awaited.remove(&owner) && self.awaited.is_empty();
        last.then(|| std::mem::take(&mut self.fresh))
    }

    /// Shards of which this node still has something to send.
    pub(in crate::member) fn untold(&self) -> ShardSet {
        self.untold
    }

    fn next(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        let next = self.queue.front().and_then(Item::shard);
        // Shards are sent one after the other.
        if let Some(told) = item.shard().filter(|shard| next != Some(*shard)) {
            self.untold.remove(told);
        }
        Some(item)
    }
}

impl Item {
    fn shard(&self) -> Option<Shard> {
        match self {
            Self::Piece(_) | Self::LastPiece => None,
            Self::Child(spi) => Some(spi.shard()),
            Self::Ike(spi) => Some(spi.shard()),
        }
    }
}

impl Replication {
    /// A view has begun.
    pub(in crate::member) fn begin_resync(
        &mut self,
        core: &mut Core,
        configuration: &Configuration,
        now: Time,
        start: &ViewStart,
    ) {
        if start.fresh.is_empty() {
            return;
        }
        self.resync.fresh.clone_from(&start.fresh);
        self.resync.awaited = start.current.iter().copied().collect();
        if !start.current.contains(&core.node) {
            return;
        }
        // Before the SAs, because their policies depend on the connections.
        if let Some(names) = configuration.pieces_to_tell(core) {
            self.resync.queue.extend(names.into_iter().map(Item::Piece).chain([Item::LastPiece]));
        }
        let owned = core.table.owned_by(core.node);
        // One shard after the other: a shard that was sent may change hands.
        for shard in owned.iter() {
            // In the order of their arrival: an SA that replaces another comes after it.
            let children = self.replicas.children_of(shard);
            let mut children: Vec<(u64, Spi)> = children.map(|(spi, child)| (child.order, *spi)).collect();
            children.sort_unstable();
            self.resync.queue.extend(children.into_iter().map(|(_, spi)| Item::Child(spi)));
            self.resync.queue.extend(self.replicas.ikes_of(shard).map(|(spi, _)| Item::Ike(*spi)));
            if self.resync.queue.back().and_then(Item::shard) == Some(shard) {
                self.resync.untold.insert(shard);
            }
        }
        self.resync.telling = true;
        self.paths.tell_path_mtus(core, now, &start.current);
        let mut ops = Vec::new();
        if core.can_follow() {
            ops.push(Op::Preferences { epoch: core.view.epoch, of: core.table.preferences() });
        }
        ops.push(Op::Resync {
            epoch: core.view.epoch,
            owners: core.table.owners(),
            unfit: core.table.unfit().iter().copied().collect(),
            drained: core.table.drained().iter().copied().collect(),
        });
        core.publish(ops);
        self.tell_next(core, configuration, now);
    }

    /// Checks whether chunks have reached every node.
    pub(in crate::member) fn chunks_arrived(&mut self, core: &Core, now: Time) {
        let commits = &core.commits;
        while self.resync.under_way.pop_front_if(|at| commits.is_stable(*at)).is_some() {
            if self.resync.under_way.is_empty() {
                let pace = if core.group.sends_bulk_directly() { &BULK_PACE } else { &ENGINE_PACE };
                self.resync.arrived(now.since(self.resync.since), pace);
            }
        }
    }

    /// True if there is more to send at once.
    pub(in crate::member) fn tells_more(&self, core: &Core) -> bool {
        core.view.running && self.resync.may_tell()
    }

    pub(in crate::member) fn tell_next(&mut self, core: &mut Core, configuration: &Configuration, now: Time) {
        // Changes are published first, because a chunk holds the state as it is now.
        self.turn(core, now);
        // Updates that all but the fresh nodes know, and updates that are new to all.
        let (mut ops, mut size) = (Vec::new(), 0);
        let mut new = Vec::new();
        while size < CHUNK_OCTETS
            && let Some(item) = self.resync.next()
        {
            match item {
                Item::Piece(name) => {
                    let op = configuration.piece_again(core, &name);
                    size += op.as_ref().map_or(0, Op::size);
                    ops.extend(op);
                }
                Item::LastPiece => ops.push(Op::Pieces { epoch: core.view.epoch }),
                Item::Child(spi) => {
                    size += 512;
                    self.child_again(core, spi, &mut ops);
                }
                Item::Ike(spi) => {
                    size += 2048;
                    match self.ike_as_told(core, now, spi) {
                        Some(op) => {
                            core.counters.told.count(&op);
                            ops.push(op);
                        }
                        None => new.extend(self.ike_again(core, now, spi)),
                    }
                }
            }
        }
        if self.resync.queue.is_empty() {
            self.resync.telling = false;
            new.push(Op::Resynced { epoch: core.view.epoch });
        }
        let bulk = core.publish_bulk(ops);
        let ticket = core.publish(new).or(bulk);
        self.resync.told(now, ticket);
    }

    fn child_again(&self, core: &Core, spi: Spi, ops: &mut Vec<Op>) {
        let Some(child) = self.replicas.child(spi) else { return };
        let state = Box::new(child.state());
        ops.push(match &child.spread {
            // Its owner renews it (`gather_spread`).
            Some(_) if !core.can_spread() => return,
            Some(spread) => Op::SpreadChild { child: state, stripe: spread.stripe.clone() },
            None => Op::Child(state),
        });
        if let Some(from) = child.replaces.filter(|_| child.switched) {
            ops.push(Op::ChildSwitch { from, to: spi });
        }
    }

    /// The IKE SA with the octets that all others have. `None` if it was published in a version
    /// that not every node of this view reads.
    fn ike_as_told(&self, core: &Core, now: Time, spi: IkeSpi) -> Option<Op> {
        let ike = self.replicas.ikes.get(&spi)?;
        let (at, state) = ike.told.as_ref()?;
        if core.endpoint.replication().exported_again(state.octets()).is_some() {
            return None;
        }
        let (outline, age, state) = (ike.outline.clone(), now.since(*at), state.clone());
        Some(Op::Ike(Box::new(IkeState { outline, age, state, contact: None })))
    }

    /// The IKE SA as the endpoint has it; if this node has not read it yet, as it came.
    pub(in crate::member) fn ike_again(&mut self, core: &mut Core, now: Time, spi: IkeSpi) -> Option<Op> {
        let ike = self.replicas.ikes.get_mut(&spi)?;
        if ike.here.is_some() {
            let id = ike.id;
            let outline = core.endpoint.replication().outline(id)?;
            return self.tell_whole_ike(core, now, id, outline);
        }
        let (at, state) = ike.told.as_mut()?;
        // It may have come in another version, and all nodes must go on from the same octets.
        if let Some(again) = core.endpoint.replication().exported_again(state.octets()) {
            *state = Secret::new(again);
        }
        let (outline, age, state) = (ike.outline.clone(), now.since(*at), state.clone());
        Some(Op::Ike(Box::new(IkeState { outline, age, state, contact: None })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples;

    fn child(shard: u8, slot: u32) -> Item {
        Item::Child(Spi(u32::from(shard) << 24 | slot << 10))
    }

    /// Lets bursts arrive one after another, each after one of these times. Returns the number of
    /// chunks of the next one.
    fn burst_after(resync: &mut Resync, took: &[u64], pace: &Pace) -> usize {
        took.iter().for_each(|millis| resync.arrived(Duration::from_millis(*millis), pace));
        resync.under_way.clear();
        let mut chunks = 0;
        while resync.may_tell() {
            chunks += 1;
            resync.told(Time::default(), Some(Ticket(chunks)));
        }
        chunks as usize
    }

    #[test]
    fn a_burst_is_as_long_as_arrives_soon() {
        let mut resync = Resync { telling: true, ..Resync::default() };
        assert_eq!(burst_after(&mut resync, &[], &BULK_PACE), 1);
        assert_eq!(burst_after(&mut resync, &[1, 40, 70, 15], &BULK_PACE), 4);
        assert_eq!(burst_after(&mut resync, &[100], &BULK_PACE), 2);
        assert_eq!(burst_after(&mut resync, &[5000, 5000], &BULK_PACE), 1);
        assert_eq!(burst_after(&mut resync, &[1; 100], &BULK_PACE), BULK_PACE.max_chunks);
        resync.under_way.pop_front();
        assert!(!resync.may_tell(), "the rest of it first");
        assert_eq!(
            burst_after(&mut resync, &[40], &ENGINE_PACE),
            ENGINE_PACE.max_chunks,
            "it has to do it all now"
        );
    }

    #[test]
    fn a_shard_is_told_with_its_last_sa() {
        let queue = [Item::LastPiece, child(1, 1), child(1, 2), child(3, 1), Item::Ike(IkeSpi(3 << 56))];
        let untold = [Shard(1), Shard(3)].into_iter().collect();
        let mut resync = Resync { queue: queue.into(), untold, ..Resync::default() };
        let left: Vec<(usize, usize)> = std::iter::from_fn(|| {
            resync.next()?;
            Some((resync.untold().len(), resync.untold_sas()))
        })
        .collect();
        assert_eq!(left, [(2, 4), (2, 3), (1, 2), (1, 1), (0, 0)]);
    }

    /// Its owner renews it, and the new one is not spread.
    #[test]
    fn a_spread_child_sa_is_not_sent_again_beside_a_node_that_does_not_know_it() {
        let mut member = samples::member();
        let (core, replication) = (&mut member.core, &mut member.replication);
        let children = [samples::child(Shard(1), 0), samples::spread_child(Shard(1), 1)];
        let spis = samples::insert(&mut replication.replicas, children);
        let mut again = |version| {
            core.view.version = version;
            let mut ops = Vec::new();
            spis.iter().for_each(|spi| replication.child_again(core, *spi, &mut ops));
            ops
        };
        let all = again(crate::update::NEWEST);
        assert!(matches!(&all[..], [Op::Child(_), Op::SpreadChild { .. }]), "{all:?}");
        assert_eq!(again(crate::update::SPREADING - 1), all[..1]);
    }

    /// Fresh nodes would wait for ever.
    #[test]
    fn the_next_chunks_follow_when_all_nodes_have_the_last_ones_in_a_view() {
        let mut member = samples::routed_member();
        let (core, replication) = (&mut member.core, &mut member.replication);
        let under_way = [Ticket(1), Ticket(2)].into();
        replication.resync = Resync { telling: true, under_way, ..Resync::default() };
        for (stable, tells) in [(1, false), (2, true)] {
            core.commits.set_stable(Ticket(stable));
            replication.chunks_arrived(core, samples::START);
            assert_eq!(replication.tells_more(core), tells);
        }
        core.view.running = false;
        assert!(!replication.tells_more(core));
    }

    #[test]
    fn a_fresh_node_is_sent_the_next_chunks_as_soon_as_it_has_the_last_ones() {
        let mut member = samples::routed_member();
        let owned = samples::first(member.core.table.owned_by(samples::id(1)));
        for number in 0..500 {
            member.replication.replicas.insert_child(samples::child(owned, number));
        }
        let [current, fresh] = [1, 2].map(|number| vec![samples::id(number)]);
        let start = ViewStart { current, fresh, ..samples::view_start(&[1, 2]) };
        member.replication.begin_resync(&mut member.core, &member.configuration, samples::START, &start);
        let mut untold = vec![member.replication.resync.untold_sas()];
        while member.replication.resync.telling {
            assert!(untold.is_sorted_by(|before, after| before > after), "{untold:?}");
            member.tell_more(samples::START);
            assert_eq!(Some(&member.replication.resync.untold_sas()), untold.last(), "it has not");
            member.core.commits.set_stable(Ticket(u64::MAX));
            member.replication.chunks_arrived(&member.core, samples::START);
            member.tell_more(samples::START);
            untold.push(member.replication.resync.untold_sas());
        }
        assert!(untold.len() > 2 && untold.last() == Some(&0), "{untold:?}");
    }
}
