//! What the data path needs for tunnels that are spread over the nodes of a cluster: stripes of
//! numbers, row clocks, sessions, and the floors of lanes.

use super::DataPath;
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::session::{Followed, Sessions, Told};
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::member::TakenLanes;
use testudo_fastpath::filter::{RowClocks, SessionTable};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::dataplane::Command;
use testudo_ipsec::number::{RowClock, Stripe};

/// The row clocks of this node: what its filter has counted, and what it has missed. Behind routers
/// the filter counts nothing, and they show what other nodes have told.
#[derive(Debug)]
pub(super) struct NodeClocks {
    counted: RowClocks,
    missed: MissedRows,
}

/// Rows that other nodes have seen beyond what this node's filter has counted.
#[derive(Debug)]
struct MissedRows {
    of_shards: [AtomicU64; SHARDS],
    /// All of them since the start.
    total: AtomicU64,
    /// Those among them by which a clock was further behind than a peer's window reaches.
    past_window: AtomicU64,
}

/// The sessions that take turns, which this node's filter knows too.
pub(super) struct NodeSessions {
    table: SessionTable,
    counts: SessionCounts,
}

/// What other nodes' words have changed in the sessions of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionCounts {
    /// Sessions of which it knew nothing: it was away, or has missed their packets.
    pub(crate) learned: u64,
    /// Sessions of which it knew otherwise.
    pub(crate) put_right: u64,
}

impl NodeSessions {
    /// The table outlives daemons. This one has yet to hear what is in it.
    pub(super) fn new(table: SessionTable) -> Self {
        table.sessions().clear();
        Self { table, counts: SessionCounts::default() }
    }
}

impl SessionCounts {
    fn add(&mut self, followed: Followed) {
        match followed {
            Followed::Learned => self.learned += 1,
            Followed::PutRight => self.put_right += 1,
            Followed::Nothing | Followed::Forgotten => {}
        }
    }
}

impl NodeClocks {
    pub(super) fn new(counted: RowClocks) -> Self {
        Self { counted, missed: MissedRows::new() }
    }
}

impl RowClock for NodeClocks {
    fn now(&self, home: Shard) -> u64 {
        self.missed.add_to(home, self.counted.now(home))
    }
}

impl MissedRows {
    fn new() -> Self {
        Self {
            of_shards: std::array::from_fn(|_| AtomicU64::new(0)),
            total: AtomicU64::new(0),
            past_window: AtomicU64::new(0),
        }
    }

    /// The row of a clock whose filter has counted so far.
    fn add_to(&self, home: Shard, counted: u64) -> u64 {
        let missed = self.of_shards.get(usize::from(home.0)).map_or(0, |missed| missed.load(Relaxed));
        counted.saturating_add(missed)
    }

    /// Another node's clock shows this row; `window` is what a peer's window holds, in rows. Only
    /// the control thread calls it.
    fn raise(&self, home: Shard, counted: u64, row: u64, window: u64) {
        let behind = row.saturating_sub(self.add_to(home, counted));
        self.past_window.fetch_add(behind.saturating_sub(window), Relaxed);
        if let Some(missed) = self.of_shards.get(usize::from(home.0)) {
            missed.fetch_add(behind, Relaxed);
            self.total.fetch_add(behind, Relaxed);
        }
    }
}

impl DataPath {
    /// The next numbers of a spread Child SA.
    pub(crate) fn add_stripe(&mut self, child: ChildSaId, stripe: Stripe) -> Result<()> {
        let commands = self.sas.add_stripe(child, stripe)?;
        self.send_all(commands);
        Ok(())
    }

    /// How far the rows of a shard have come here: by the clock, or by the packets sent if that is
    /// more. The clock has counted a packet before it takes a row, so that row is no further.
    pub(crate) fn row_of(&self, home: Shard) -> u64 {
        let shown = self.cluster.as_ref().map_or(0, |cluster| cluster.clocks.now(home));
        self.sas.next_rows(home).map(|next| next.saturating_sub(1)).fold(shown, u64::max)
    }

    /// How far the row clocks of these shards have come at another node.
    pub(crate) fn raise_clocks(&self, clocks: &[(Shard, u64)]) {
        if let Some(cluster) = &self.cluster {
            let NodeClocks { counted, missed } = &*cluster.clocks;
            let window = cluster.peer_window / cluster.nodes.max(1);
            clocks.iter().for_each(|(home, row)| missed.raise(*home, counted.now(*home), *row, window));
        }
    }

    /// Rows that other nodes have seen and this node's filter has not, since the start. Behind
    /// routers a node does not see the packets of others, and misses nothing.
    pub(crate) fn rows_missed(&self) -> u64 {
        self.missed(|missed| &missed.total)
    }

    /// Of [`Self::rows_missed`], those by which this node was further behind the others than the
    /// window of a peer reaches.
    pub(crate) fn rows_past_window(&self) -> u64 {
        self.missed(|missed| &missed.past_window)
    }

    fn missed(&self, count: impl Fn(&MissedRows) -> &AtomicU64) -> u64 {
        let flooded = self.cluster.as_ref().filter(|_| !self.is_routed());
        flooded.map_or(0, |cluster| count(&cluster.clocks.missed).load(Relaxed))
    }

    /// The sessions of this node.
    pub(crate) fn sessions(&self) -> Sessions<'_> {
        self.cluster.as_ref().map_or(Sessions::NONE, |cluster| cluster.sessions.table.sessions())
    }

    /// Other nodes have said this of sessions.
    pub(crate) fn follow_sessions(&mut self, told: &[Told]) {
        if let Some(NodeSessions { table, counts }) = self.cluster.as_mut().map(|all| &mut all.sessions) {
            told.iter().for_each(|told| counts.add(table.sessions().follow(*told)));
        }
    }

    /// What other nodes' words have changed since the start.
    pub(crate) fn session_counts(&self) -> SessionCounts {
        self.cluster.as_ref().map_or(SessionCounts::default(), |cluster| cluster.sessions.counts)
    }

    /// This node accepts packets of these lanes from now on. Numbers that other nodes may have
    /// accepted count as seen. Gives the estimates among the floors, by Child SA.
    pub(crate) fn take_in_lanes(&mut self, children: &[TakenLanes]) -> Result<Vec<(Spi, u64)>> {
        let (mut floors, mut estimates) = (Vec::new(), Vec::new());
        for taken in children {
            let Some(here) = self.sas.high_water_mark(taken.spi_in) else { continue };
            let seen = self.guard.seen(taken.spi_in)?;
            floors.extend(taken.floors(here, seen));
            if taken.is_estimate() {
                estimates.push((taken.spi_in, taken.floor(here, seen)));
            }
        }
        self.send(Command::TakeInLanes(floors.into()));
        Ok(estimates)
    }

    /// How many nodes carry a Child SA.
    pub(super) fn carriers(&self, child: ChildSaId) -> u64 {
        let nodes = self.cluster.as_ref().filter(|_| self.sas.is_spread(child)).map(|cluster| cluster.nodes);
        nodes.unwrap_or(1).max(1)
    }

    /// How far this node got in these lanes, by spread Child SA.
    pub(super) fn lane_tops(&self, lanes: ShardSet) -> Vec<(Spi, Vec<(Shard, u64)>)> {
        self.sas.spread().map(|sa| (sa.spi(), sa.lane_tops(lanes))).collect()
    }
}

/// The clock as workers get it.
pub(super) fn clock(clocks: &Arc<NodeClocks>) -> Command {
    Command::SetClock(Arc::clone(clocks) as Arc<dyn RowClock>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_has_missed_packets_goes_on_from_the_others() {
        let (missed, home) = (MissedRows::new(), Shard(7));
        missed.raise(home, 100, 90, 10);
        missed.raise(home, 100, 100, 10);
        assert_eq!((missed.add_to(home, 100), missed.total.load(Relaxed)), (100, 0));
        missed.raise(home, 100, 112, 10);
        assert_eq!(missed.add_to(home, 100), 112);
        // The filter counts on, and the clock with it.
        assert_eq!(missed.add_to(home, 105), 117);
        missed.raise(home, 105, 112, 10);
        missed.raise(home, 105, 120, 10);
        assert_eq!((missed.add_to(home, 105), missed.add_to(Shard(8), 105)), (120, 105));
        assert_eq!((missed.total.load(Relaxed), missed.past_window.load(Relaxed)), (15, 2));
    }
}
