//! Up to where packets were taken in: what an owner tells of it, so that whoever takes over accepts
//! none of them again.
//!
//! The taker knows what its own filter has seen pass, too, but has not verified that. What a forged
//! packet can do is bounded by how far the owner can have got since it last told; so it tells
//! often, and says when nothing else has moved. A taker that may have been led astray even so asks
//! the peer to leave so many numbers out (RFC 6311), or, if the peer cannot, makes new keys at
//! once, and with them a new window.

use super::Numbers;
use crate::member::Member;
use crate::member::core::Core;
use crate::member::replication::replicas::{ChildReplica, Replicas};
use crate::node::NodeId;
use crate::update::Op;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::output::{IkeSaId, LogLevel, Time};

/// High-water marks of one update: what is about a batch.
const MAX_MARKS_PER_UPDATE: usize = 512;
/// A floor so far above what the owner was expected to reach is as good as any: so many packets may
/// fall under it.
const TOLERATED_PACKETS: u64 = 256;
/// A peer may have become so many times as fast as it was.
const MAX_SPEEDUP: u64 = 4;
/// A rate is what passes in no less than this: two high-water marks that come in quick succession
/// say nothing of it.
const MIN_RATE_SPAN: Duration = Duration::from_millis(500);
/// So many numbers of 2^32 are not left out, but saved by new keys.
const MAX_SKIPPED_WITHOUT_ESN: u64 = 1 << 30;
/// Where new keys cannot be made yet they are tried again after this.
const REKEY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What this node knows of high-water marks beside those of each Child SA.
#[derive(Debug, Default)]
pub(in crate::member) struct HighWaterMarks {
    /// High-water marks that have moved here and that no other node has been told.
    moved: BTreeMap<Spi, u64>,
    /// When the owner of a shard had last told all that had moved.
    all_told: BTreeMap<Shard, AllTold>,
    /// Child SAs whose floor here may be beyond all that their peers have sent.
    doubtful: BTreeMap<Spi, Doubt>,
}

/// A floor that is in doubt.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    floor: u64,
    /// When to try to do something about it.
    at: Time,
}

/// When all was told of a shard: the last time, and the time before.
#[derive(Clone, Copy, Debug, Default)]
struct AllTold {
    last: Time,
    before: Time,
}

impl HighWaterMarks {
    /// True if a Child SA of the shard waits for something to be done, because its floor may be too
    /// high.
    pub(in crate::member) fn is_doubtful(&self, shard: Shard) -> bool {
        self.doubtful.keys().any(|spi| spi.shard() == shard)
    }

    fn told_all(&mut self, now: Time, shards: impl Iterator<Item = Shard>) {
        for shard in shards {
            let told = self.all_told.entry(shard).or_default();
            *told = AllTold { last: now, before: told.last };
        }
    }

    /// As of when the high-water mark of a Child SA is known.
    fn known_at(&self, shard: Shard, child: &ChildReplica) -> Time {
        self.all_told.get(&shard).copied().unwrap_or_default().last.max(child.mark_at)
    }

    /// How fast a Child SA is: it has stood still if its high-water mark was not among the last
    /// that were told.
    fn rate(&self, shard: Shard, child: &ChildReplica) -> u64 {
        let before = self.all_told.get(&shard).copied().unwrap_or_default().before;
        if child.mark_at > before { child.rate } else { 0 }
    }

    /// Packets of a Child SA have been taken in up to that high-water mark.
    fn moved_to(&self, now: Time, shard: Shard, child: &mut ChildReplica, mark: u64) {
        child.rate = self.rate(shard, child);
        if child.rate == 0 {
            child.measured = (child.mark, self.known_at(shard, child));
        }
        let (from, since) = child.measured;
        let span = now.since(since);
        let passed = u128::from(mark.saturating_sub(from)) * 1000 / span.max(MIN_RATE_SPAN).as_millis();
        let rate = u64::try_from(passed).unwrap_or(u64::MAX);
        // In less time than that it has at least not become slower.
        child.rate = if span < MIN_RATE_SPAN { child.rate.max(rate) } else { rate };
        (child.mark, child.mark_at) = (child.mark.max(mark), now);
        if span >= MIN_RATE_SPAN {
            child.measured = (child.mark, now);
        }
    }
}

impl Member {
    /// Up to where packets were taken in on SAs of this node: about once a second, those that have
    /// moved since.
    pub fn report_marks(&mut self, now: Time, marks: &[(Spi, u64)]) {
        self.replication.numbers.note_marks(marks);
        // Without a view they would pile up; the next ones say it again.
        if self.core.view.running {
            self.replication.numbers.tell_marks(
                &mut self.core,
                &mut self.replication.replicas,
                now,
                true,
                self.shards.active,
                self.shards.provisional,
            );
        }
    }
}

/// High-water marks that another node has told of its shards.
pub(in crate::member) struct ToldMarks<'a> {
    pub(in crate::member) from: NodeId,
    /// The marks that have moved, by inbound SPI.
    pub(in crate::member) moved: &'a [(Spi, u64)],
    /// Shards of which no other mark had moved.
    pub(in crate::member) all_of: ShardSet,
    /// The epoch of the view in which the node said so.
    pub(in crate::member) epoch: u64,
}

impl Numbers {
    pub(in crate::member) fn note_marks(&mut self, marks: &[(Spi, u64)]) {
        self.marks.moved.extend(marks.iter().copied());
    }

    /// Tells the others what has moved, of the shards that this node has taken; those that it
    /// carries provisionally may become its own. `all`: nothing else has.
    pub(in crate::member) fn tell_marks(
        &mut self,
        core: &mut Core,
        replicas: &mut Replicas,
        now: Time,
        all: bool,
        active: ShardSet,
        provisional: ShardSet,
    ) {
        let mut told = Vec::new();
        for (spi, mark) in std::mem::take(&mut self.marks.moved) {
            let shard = spi.shard();
            let doubtful = self.marks.doubtful.contains_key(&spi);
            if provisional.contains(shard) || doubtful {
                // It may become this node's; or new keys are to be made first: whoever takes it
                // next doubts it as well.
                self.marks.moved.insert(spi, mark);
            }
            let tells = active.contains(shard) && !doubtful;
            let Some(child) = replicas.child_mut(spi).filter(|_| tells) else {
                continue;
            };
            if mark > child.mark {
                told.push((spi, mark));
            }
            self.marks.moved_to(now, shard, child, mark);
        }
        let mut ops: Vec<Op> = told
            .chunks(MAX_MARKS_PER_UPDATE)
            .map(|moved| Op::HighWaterMarks {
                moved: moved.to_vec(),
                all_of: ShardSet::EMPTY,
                epoch: core.view.epoch,
            })
            .collect();
        // Of a shard that is this node's but not taken yet it knows nothing: others may carry it,
        // and their packets move it.
        let sure = active.without(self.marks.doubtful.keys().map(|spi| spi.shard()).collect());
        if all && !sure.is_empty() {
            self.marks.told_all(now, sure.iter());
            match ops.last_mut() {
                Some(Op::HighWaterMarks { all_of, .. }) => *all_of = sure,
                _ => ops.push(Op::HighWaterMarks { moved: Vec::new(), all_of: sure, epoch: core.view.epoch }),
            }
        }
        core.publish(ops);
    }

    /// Another node has told high-water marks of its shards.
    pub(in crate::member) fn marks_told(
        &mut self,
        core: &Core,
        replicas: &mut Replicas,
        now: Time,
        ToldMarks { from, moved, all_of, epoch }: ToldMarks<'_>,
    ) {
        // What was said in a view before has waited, nobody knows for how long: it is a high-water
        // mark, but not one of this moment.
        let fresh = epoch == core.view.epoch;
        for (spi, mark) in moved {
            let shard = spi.shard();
            if !core.may_say(from, shard) {
                continue;
            }
            let Some(child) = replicas.child_mut(*spi) else { continue };
            match fresh {
                true => self.marks.moved_to(now, shard, child, *mark),
                false => child.mark = child.mark.max(*mark),
            }
        }
        // Between its saying so and this place in the order some may have become another's: what
        // that one takes in is not in it.
        let theirs: ShardSet = all_of.iter().filter(|shard| fresh && core.may_say(from, *shard)).collect();
        self.marks.told_all(now, theirs.iter());
    }

    /// How far the owner of a shard can have got since it told the high-water mark of a Child SA:
    /// as far as the ports of the fastest node can carry, or an SA that has been faster than that.
    pub(in crate::member) fn reach(&self, core: &Core, now: Time, shard: Shard, child: &ChildReplica) -> u64 {
        let passed = now.since(self.marks.known_at(shard, child)).saturating_add(core.config.detection);
        let carried = self.marks.rate(shard, child).saturating_mul(MAX_SPEEDUP);
        let reach = u128::from(self.line_rates.fastest().max(carried)) * passed.as_millis() / 1000;
        u64::try_from(reach).unwrap_or(u64::MAX)
    }

    /// Child SAs that are taken in here now count as seen up to these floors.
    pub(in crate::member) fn taken_in(
        &mut self,
        core: &Core,
        replicas: &Replicas,
        now: Time,
        floors: &[(Spi, u64)],
    ) {
        for (spi, floor) in floors {
            let Some(child) = replicas.child(*spi) else { continue };
            let passed =
                now.since(self.marks.known_at(spi.shard(), child)).saturating_add(core.config.detection);
            let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            let rate = self.marks.rate(spi.shard(), child);
            let expected = rate.saturating_mul(MAX_SPEEDUP).saturating_mul(millis) / 1000;
            if floor.saturating_sub(child.mark) > expected.saturating_add(TOLERATED_PACKETS) {
                self.marks.doubtful.insert(*spi, Doubt { floor: *floor, at: now });
            }
        }
    }

    /// Asks the peers to go on above these floors. Gives those that cannot be asked.
    fn skip_to_floors(
        &mut self,
        core: &mut Core,
        replicas: &Replicas,
        now: Time,
        doubtful: Vec<(Spi, u64)>,
    ) -> Vec<(Spi, u64)> {
        if !core.has_control_plane() {
            return doubtful;
        }
        // All Child SAs of an IKE SA leave as many out, so each asks once, for the one that needs
        // the most.
        let mut asked: BTreeMap<IkeSaId, u64> = BTreeMap::new();
        let mut left = Vec::new();
        let mut wanted = Vec::new();
        for (spi, floor) in doubtful {
            match self.skip_to(core, replicas, spi, floor) {
                Some((ike, by)) => {
                    let most = asked.entry(ike).or_default();
                    *most = by.max(*most);
                    wanted.push((spi, floor, ike));
                }
                None => left.push((spi, floor)),
            }
        }
        asked.retain(|ike, by| core.endpoint.replication_mut().sync_replay_counters(now, *ike, *by));
        for (spi, floor, ike) in wanted {
            if !asked.contains_key(&ike) {
                left.push((spi, floor));
                continue;
            }
            self.marks.doubtful.remove(&spi);
            let why = format!("a packet far ahead was seen on Child SA {spi} before it was taken over");
            core.log(LogLevel::Info, format!("{why}: the peer is to go on above {floor}"));
        }
        left
    }

    /// The IKE SA whose peer can be asked to go on above the floor, and how many numbers it is to
    /// leave out.
    fn skip_to(&self, core: &Core, replicas: &Replicas, spi: Spi, floor: u64) -> Option<(IkeSaId, u64)> {
        let child = replicas.child(spi)?;
        // What the peer has sent reaches the high-water mark at least.
        let by = floor.saturating_sub(child.mark).saturating_add(1);
        let few = child.params.esn || by < MAX_SKIPPED_WITHOUT_ESN;
        core.endpoint.replication().replay_sync_of(child.id).filter(|_| few).map(|ike| (ike, by))
    }

    /// New keys for those Child SAs of this node whose peers may be far below the floor: RFC 4303
    /// knows no way to lower it. `carried` and `spoken`: the shards whose packets this node
    /// carries, and those whose IKE it speaks.
    pub(in crate::member) fn renew_doubtful(
        &mut self,
        core: &mut Core,
        replicas: &Replicas,
        now: Time,
        carried: ShardSet,
        spoken: ShardSet,
    ) {
        if self.marks.doubtful.is_empty() || !core.may_speak(now) {
            return;
        }
        let replicas = &replicas;
        self.marks.doubtful.retain(|spi, _| carried.contains(spi.shard()) && replicas.child(*spi).is_some());
        let due = |(spi, doubt): &(&Spi, &Doubt)| doubt.at <= now && spoken.contains(spi.shard());
        let due: Vec<(Spi, u64)> =
            self.marks.doubtful.iter().filter(due).map(|(spi, doubt)| (*spi, doubt.floor)).collect();
        let due = self.skip_to_floors(core, replicas, now, due);
        for (spi, floor) in due {
            let Some(id) = replicas.child(spi).map(|child| child.id) else { continue };
            // One that the peer has just made cannot be renewed before the peer sends on it.
            if !core.endpoint.rekey_child(now, id) {
                self.marks.doubtful.insert(spi, Doubt { floor, at: now.plus(REKEY_RETRY_INTERVAL) });
                continue;
            }
            self.marks.doubtful.remove(&spi);
            let line =
                format!("a packet far ahead was seen on Child SA {spi} before it was taken over: new keys");
            core.log(LogLevel::Info, line);
        }
    }
}
