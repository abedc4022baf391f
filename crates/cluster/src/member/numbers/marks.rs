//! High-water marks of inbound packets: an owner reports them, so that the next owner accepts none
//! of these packets again.
//!
//! The next owner also knows the highest number that its own filter has seen, but that packet was
//! not verified. The harm of a forged packet is bounded by how far the owner can have got since its
//! last report. So owners report often, and say when nothing else has moved. A node that may have
//! been misled even so asks the peer to skip numbers (RFC 6311). If the peer cannot, it rekeys at
//! once, which gives a new window.

use super::Numbers;
use super::line_rates::ASSUMED_PACKETS_PER_SECOND;
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

/// Bound on the high-water marks of one update, so that it fits about one batch.
const MAX_MARKS_PER_UPDATE: usize = 512;
/// A floor that is at most this many packets above the expected one is good enough: that many
/// packets may be lost below it.
const TOLERATED_PACKETS: u64 = 256;
/// Bound on the factor by which a peer may have become faster.
const MAX_SPEEDUP: u64 = 4;
/// The least time over which a rate is measured: two high-water marks in quick succession say
/// nothing about it.
const MIN_RATE_SPAN: Duration = Duration::from_millis(500);
/// Without ESN, no more numbers than this are skipped; the SA is rekeyed instead.
const MAX_SKIPPED_WITHOUT_ESN: u64 = 1 << 30;
/// With ESN: all Child SAs of an IKE SA skip the same number, and the high bits of what comes are
/// inferred from the highest number before (RFC 4303 §A2.2).
const MAX_SKIPPED: u64 = 1 << 31;
/// Pause between two attempts of a rekeying that cannot begin yet.
pub(super) const REKEY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// This node's knowledge of high-water marks, beside the mark of each Child SA.
#[derive(Debug, Default)]
pub(in crate::member) struct HighWaterMarks {
    /// Marks that have moved here and were not reported to other nodes yet.
    moved: BTreeMap<Spi, u64>,
    /// When the owner of a shard last reported all marks that had moved.
    all_told: BTreeMap<Shard, AllTold>,
    /// Child SAs whose floor here may lie above all that their peers have sent. Of spread ones it is
    /// the floor of some lanes, on any node: their marks hold all the same.
    doubtful: BTreeMap<Spi, Doubt>,
}

/// A floor that is in doubt.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    floor: u64,
    is_of_lanes: bool,
    /// When to try the next remedy.
    at: Time,
}

/// When all marks of a shard were reported: the last time, and the time before.
#[derive(Clone, Copy, Debug, Default)]
struct AllTold {
    last: Time,
    before: Time,
}

impl HighWaterMarks {
    /// True if a Child SA of the shard waits for a remedy because its floor may be too high.
    pub(in crate::member) fn is_doubtful(&self, shard: Shard) -> bool {
        self.doubtful_marks().any(|spi| spi.shard() == shard)
    }

    /// Child SAs whose marks are in doubt.
    fn doubtful_marks(&self) -> impl Iterator<Item = Spi> {
        self.doubtful.iter().filter(|(_, doubt)| !doubt.is_of_lanes).map(|(spi, _)| *spi)
    }

    /// Child SAs of these home shards of which a floor of some lanes is in doubt, and the floor.
    pub(super) fn doubtful_lanes(&self, homes: ShardSet) -> impl Iterator<Item = (Spi, u64)> {
        let of_lanes = self.doubtful.iter().filter(|(_, doubt)| doubt.is_of_lanes);
        let floors = of_lanes.map(|(spi, doubt)| (*spi, doubt.floor));
        floors.filter(move |(spi, _)| homes.contains(spi.shard()))
    }

    /// Numbers up to this floor may lie above all that the peer of a Child SA has sent.
    pub(super) fn doubt(&mut self, now: Time, spi: Spi, floor: u64, is_of_lanes: bool) {
        let floor = floor.max(self.doubtful.get(&spi).map_or(0, |doubt| doubt.floor));
        self.doubtful.insert(spi, Doubt { floor, is_of_lanes, at: now });
    }

    fn told_all(&mut self, now: Time, shards: impl Iterator<Item = Shard>) {
        for shard in shards {
            let told = self.all_told.entry(shard).or_default();
            *told = AllTold { last: now, before: told.last };
        }
    }

    /// The time for which the high-water mark of a Child SA is known.
    fn known_at(&self, shard: Shard, child: &ChildReplica) -> Time {
        self.all_told.get(&shard).copied().unwrap_or_default().last.max(child.mark_at)
    }

    /// The rate of a Child SA. It has stood still if its mark was not among the last that were
    /// reported.
    fn rate(&self, shard: Shard, child: &ChildReplica) -> u64 {
        let before = self.all_told.get(&shard).copied().unwrap_or_default().before;
        if child.mark_at > before { child.rate } else { 0 }
    }

    /// The inbound high-water mark of a Child SA has moved.
    fn moved_to(&self, now: Time, shard: Shard, child: &mut ChildReplica, mark: u64) {
        child.rate = self.rate(shard, child);
        if child.rate == 0 {
            child.measured = (child.mark, self.known_at(shard, child));
        }
        let (from, since) = child.measured;
        let span = now.since(since);
        let passed = u128::from(mark.saturating_sub(from)) * 1000 / span.max(MIN_RATE_SPAN).as_millis();
        let rate = u64::try_from(passed).unwrap_or(u64::MAX);
        // Within a shorter time it has at least not become slower.
        child.rate = if span < MIN_RATE_SPAN { child.rate.max(rate) } else { rate };
        (child.mark, child.mark_at) = (child.mark.max(mark), now);
        if span >= MIN_RATE_SPAN {
            child.measured = (child.mark, now);
        }
    }
}

impl Member {
    /// The inbound high-water marks of SAs of this node that have moved since the last call. To be
    /// called about once a second.
    pub fn report_marks(&mut self, now: Time, marks: &[(Spi, u64)]) {
        self.replication.numbers.note_marks(marks);
        // Without a view they would pile up, and the next report includes them.
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

    /// Reports to the others the moved marks of shards that this node has taken. Those of
    /// provisionally carried shards are kept, as these may become its own. `all`: no other mark has
    /// moved.
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
            let doubtful = self.marks.doubtful.get(&spi).is_some_and(|doubt| !doubt.is_of_lanes);
            if provisional.contains(shard) || doubtful {
                // The shard may become this node's. For a doubtful floor a rekeying comes first:
                // the next owner would doubt it as well.
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
        // This node knows nothing about a shard that is its own but not taken yet: others may carry
        // it, and their packets move its marks.
        let sure = active.without(self.marks.doubtful_marks().map(Spi::shard).collect());
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
        // A report of an earlier view has waited for an unknown time: its marks hold, but not for
        // this moment.
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
        // Between the report and this position in the total order a shard may have changed hands;
        // the report does not cover the new owner's packets.
        let theirs: ShardSet = all_of.iter().filter(|shard| fresh && core.may_say(from, *shard)).collect();
        self.marks.told_all(now, theirs.iter());
    }

    /// How far the owner of a shard can have got since it reported the mark of a Child SA: as far
    /// as the ports of the fastest node can receive, or the SA's own rate allows. Routers may give
    /// the packets of a spread Child SA to all nodes at once.
    pub(in crate::member) fn reach(&self, core: &Core, now: Time, shard: Shard, child: &ChildReplica) -> u64 {
        let passed = self.untold(core, now, shard, child);
        let carried = self.fastest_of(shard, child);
        let is_dealt_out = child.spread.is_some() && core.is_routed();
        let ports = if is_dealt_out { self.line_rates.sum() } else { self.line_rates.fastest() };
        let reach = u128::from(ports.max(carried)) * passed.as_millis() / 1000;
        u64::try_from(reach).unwrap_or(u64::MAX)
    }

    /// For how long the owner may have gone on since the last report.
    fn untold(&self, core: &Core, now: Time, shard: Shard, child: &ChildReplica) -> Duration {
        now.since(self.marks.known_at(shard, child)).saturating_add(core.config.detection)
    }

    /// How fast the peer may be, by the SA's own rate. Numbers that it has skipped count as packets,
    /// so the rate may be more than any host can handle: with it the next floor would lie further
    /// ahead than the last, and so would what the peer skips then.
    fn fastest_of(&self, shard: Shard, child: &ChildReplica) -> u64 {
        let most = self.line_rates.fastest().max(ASSUMED_PACKETS_PER_SECOND);
        self.marks.rate(shard, child).saturating_mul(MAX_SPEEDUP).min(most)
    }

    /// How far the peer may have gone on since the last report, by the SA's own rate.
    fn expected(&self, core: &Core, now: Time, shard: Shard, child: &ChildReplica) -> u64 {
        let passed = self.untold(core, now, shard, child);
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.fastest_of(shard, child).saturating_mul(millis) / 1000
    }

    /// This node's state is void. The windows in its data plane stay.
    pub(in crate::member) fn void_marks(&mut self) {
        let doubtful = std::mem::take(&mut self.marks.doubtful);
        self.marks = HighWaterMarks { doubtful, ..HighWaterMarks::default() };
    }

    /// Packets of Child SAs are accepted here, and numbers up to these floors count as seen.
    pub(in crate::member) fn taken_in(
        &mut self,
        core: &Core,
        replicas: &Replicas,
        now: Time,
        floors: &[(Spi, u64)],
    ) {
        for (spi, floor) in floors {
            let Some(child) = replicas.child(*spi) else { continue };
            // A floor that is a bound, and not what was seen, says nothing of where the peer is.
            let expected = if core.is_routed() { 0 } else { self.expected(core, now, spi.shard(), child) };
            if floor.saturating_sub(child.mark) <= expected.saturating_add(TOLERATED_PACKETS) {
                continue;
            }
            match child.spread {
                Some(_) => self.lane_floors.raised(*spi, *floor),
                None => self.marks.doubt(now, *spi, *floor, false),
            }
        }
    }

    /// Asks the peers to go on above these floors. Returns the Child SAs whose peers cannot be
    /// asked.
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
        // All Child SAs of an IKE SA skip the same number, so each IKE SA asks once, for the Child
        // SA that needs the most.
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
            let why = why_doubtful(core, spi);
            core.log(LogLevel::Info, format!("{why}: asking the peer to skip to {floor}"));
        }
        left
    }

    /// The IKE SA whose peer can be asked to go on above the floor, and how many numbers it must
    /// skip. Of a spread Child SA it cannot: the high bits of what it sends then would be inferred
    /// wrongly by a node that has received nothing for long.
    fn skip_to(&self, core: &Core, replicas: &Replicas, spi: Spi, floor: u64) -> Option<(IkeSaId, u64)> {
        let child = replicas.child(spi).filter(|child| child.spread.is_none())?;
        // The peer has sent at least up to the high-water mark.
        let by = floor.saturating_sub(child.mark).saturating_add(1);
        let few = by < if child.params.esn { MAX_SKIPPED } else { MAX_SKIPPED_WITHOUT_ESN };
        core.endpoint.replication().replay_sync_of(child.id).filter(|_| few).map(|ike| (ike, by))
    }

    /// Rekeys the Child SAs of this node whose peers may be far below the floor: RFC 4303 has no
    /// way to lower it. `spoken`: the shards whose IKE this node speaks.
    pub(in crate::member) fn renew_doubtful(
        &mut self,
        core: &mut Core,
        replicas: &Replicas,
        now: Time,
        spoken: ShardSet,
    ) {
        if self.marks.doubtful.is_empty() || !core.may_speak(now) {
            return;
        }
        let replicas = &replicas;
        // A shard that another node carries for a while may come back to a window with this floor.
        let is_above =
            |spi: &Spi, doubt: &Doubt| replicas.child(*spi).is_some_and(|sa| sa.mark < doubt.floor);
        self.marks.doubtful.retain(|spi, doubt| is_above(spi, doubt));
        let due = |(spi, doubt): &(&Spi, &Doubt)| doubt.at <= now && spoken.contains(spi.shard());
        let due: Vec<(Spi, u64)> =
            self.marks.doubtful.iter().filter(due).map(|(spi, doubt)| (*spi, doubt.floor)).collect();
        let due = self.skip_to_floors(core, replicas, now, due);
        for (spi, _) in due {
            let Some(id) = replicas.child(spi).map(|child| child.id) else { continue };
            // A Child SA that the peer has just made cannot be rekeyed before the peer sends on it.
            if !core.endpoint.rekey_child(now, id) {
                if let Some(doubt) = self.marks.doubtful.get_mut(&spi) {
                    doubt.at = now.plus(REKEY_RETRY_INTERVAL);
                }
                continue;
            }
            self.marks.doubtful.remove(&spi);
            let why = why_doubtful(core, spi);
            core.log(LogLevel::Info, format!("{why}: rekeying"));
        }
    }
}

/// Why the peer of a Child SA may be below its floor.
fn why_doubtful(core: &Core, spi: Spi) -> String {
    match core.is_routed() {
        true => format!("the replay floor of Child SA {spi} may lie above all that the peer has sent"),
        false => format!("the replay floor of Child SA {spi} may be forged"),
    }
}

#[cfg(test)]
mod tests;
