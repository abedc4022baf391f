//! What a node does for spread tunnels: which lane a packet has, and how far its rows have come.
//! Behind routers it works on the clear packets that it gets, whatever their lanes.

use super::Node;
use crate::config;
use crate::plane::Plane;
use crate::probe;
use crate::scenario::Scenario;
use crate::trace::digest;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use testudo_base::lane::{self, Spread};
use testudo_base::session::{Followed, SLOTS, Sessions, Told};
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::Turns;
use testudo_cluster::dispatch::Home;
use testudo_cluster::group::GroupConfig;
use testudo_ipsec::dataplane::{Command, Relay};
use testudo_ipsec::number::RowClock;
use testudo_ipsec::sa::OutboundSa;
use testudo_ipsec::spd::PolicyId;
use testudo_planted::{Plant, planted};

/// Row clocks, as the filter counts them.
#[derive(Debug)]
pub(super) struct Clocks([AtomicU64; SHARDS]);

impl Clocks {
    /// The clocks of a node that starts: the filter outlives its daemons.
    pub(super) fn new(row: u64) -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(row)))
    }

    pub(super) fn count(&self, home: Shard) {
        self.0[usize::from(home.0)].fetch_add(1, Relaxed);
    }

    pub(super) fn raise(&self, home: Shard, rows: u64) {
        self.0[usize::from(home.0)].fetch_max(rows, Relaxed);
    }
}

impl RowClock for Clocks {
    fn now(&self, home: Shard) -> u64 {
        self.0[usize::from(home.0)].load(Relaxed)
    }
}

/// What the filter has counted for tunnels whose lanes take turns.
#[derive(Debug)]
pub(super) struct Dealt {
    /// By home shard.
    turns: BTreeMap<Shard, Turns>,
    /// The sessions that take turns.
    sessions: Vec<AtomicU64>,
    /// How many of them other nodes' words have added, and changed.
    learned: u64,
    put_right: u64,
    /// The lanes of packets that it has passed and that were not processed yet, by their digests: of
    /// several copies the first one first.
    lanes: BTreeMap<u64, VecDeque<Shard>>,
}

impl Default for Dealt {
    fn default() -> Self {
        let sessions = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { turns: BTreeMap::new(), sessions, learned: 0, put_right: 0, lanes: BTreeMap::new() }
    }
}

impl Dealt {
    pub(super) fn sessions(&self) -> Sessions<'_> {
        Sessions::of(&self.sessions)
    }

    /// Other nodes have said this of sessions.
    pub(super) fn follow(&mut self, told: &[Told]) {
        for told in told {
            match Sessions::of(&self.sessions).follow(*told) {
                Followed::Learned => self.learned += 1,
                Followed::PutRight => self.put_right += 1,
                Followed::Nothing | Followed::Forgotten => {}
            }
        }
    }

    /// How many sessions other nodes' words have added, and changed.
    pub(super) fn followed(&self) -> [u64; 2] {
        [self.learned, self.put_right]
    }

    /// The lane that the filter has found for a packet, which is processed now.
    pub(super) fn take(&mut self, packet: &[u8]) -> Option<Shard> {
        let lanes = self.lanes.get_mut(&digest(packet))?;
        let lane = lanes.pop_front();
        if lanes.is_empty() {
            self.lanes.remove(&digest(packet));
        }
        lane
    }
}

/// The row clocks of a node that starts, which its data plane reads. It knows whether routers choose
/// the nodes; what it relays is a matter of the world.
pub(super) fn clocks(scenario: &Scenario, index: usize, plane: &mut Plane) -> Arc<Clocks> {
    let clocks = Arc::new(Clocks::new(scenario.first_row(index)));
    plane.apply(Command::SetClock(Arc::clone(&clocks) as Arc<dyn RowClock>));
    if scenario.routed.is_some() {
        plane.apply(Command::SetRelay(Arc::<Relay>::default()));
    }
    clocks
}

/// The connections of the peers whose tunnels are spread over the nodes.
pub(super) fn connections(scenario: &Scenario) -> BTreeMap<String, Spread> {
    let all = scenario.spread.iter().enumerate();
    all.filter_map(|(peer, spread)| spread.map(|spread| (config::name(peer), spread))).collect()
}

impl Node {
    /// The shard by which an ESP packet finds its node.
    pub(super) fn lane_in(&self, esp: &probe::Esp) -> Shard {
        let spi = Spi(esp.spi);
        match self.spread.contains_key(&spi) {
            true => lane::of_number(spi, esp.sequence),
            false => spi.shard(),
        }
    }

    /// True if the filter keeps an ESP packet.
    pub(super) fn keeps_esp(&self, esp: &probe::Esp) -> bool {
        let is_spread = self.spread.contains_key(&Spi(esp.spi));
        self.shown.keeps(Home::Packets(self.lane_in(esp))) || is_spread && planted(Plant::LaneOwnedTwice)
    }

    /// The shard by which a clear packet finds its node.
    pub(super) fn lane_out(&self, packet: &[u8]) -> Option<Shard> {
        match self.spread_of(packet) {
            Some((_, by)) => Some(lane::of_packet(self.member.hash_key(), by, packet)),
            None => self.shard_of(packet),
        }
    }

    /// The home of the spread SA that a clear packet takes, and how it is spread.
    pub(super) fn spread_of(&self, packet: &[u8]) -> Option<(Shard, Spread)> {
        let peer = config::peer_of(probe::destination(packet)?)?;
        let sending = self.plane.sending(PolicyId(peer as u32))?;
        let spi = self.plane.inbound_sa(sending)?.spi();
        self.spread.get(&spi).map(|by| (spi.shard(), *by))
    }

    /// True if the filter keeps a clear packet. It counts those of spread tunnels where all nodes see
    /// them.
    pub(super) fn keeps_clear(&mut self, packet: &[u8]) -> bool {
        let spread = self.spread_of(packet);
        let lane = spread.filter(|_| !self.is_routed).and_then(|(home, by)| self.count(home, by, packet));
        let sends = spread.is_some_and(|(home, _)| self.is_routed && self.may_number(packet, home));
        let shard = lane.or_else(|| self.lane_out(packet));
        let keeps = sends || shard.is_some_and(|shard| self.shown.keeps(Home::Packets(shard)));
        if let Some(lane) = lane.filter(|_| keeps) {
            self.dealt.lanes.entry(digest(packet)).or_default().push_back(lane);
        }
        keeps
    }

    /// Counts a packet of a spread tunnel. Returns the lane that it takes in turn, if it does.
    fn count(&mut self, home: Shard, by: Spread, packet: &[u8]) -> Option<Shard> {
        self.clocks.count(home);
        let (key, Dealt { turns, sessions, .. }) = (self.member.hash_key(), &mut self.dealt);
        let turns = turns.entry(home).or_default();
        let in_turn = self.shown.in_turn.knows(by);
        in_turn.then(|| turns.count(key, by, packet, Sessions::of(sessions))).flatten()
    }

    /// True if the node is in service and has numbers for a packet of a spread tunnel.
    fn may_number(&self, packet: &[u8], home: Shard) -> bool {
        let peer = probe::destination(packet).and_then(config::peer_of);
        let child = peer.and_then(|peer| self.plane.sending(PolicyId(peer as u32)));
        let has = |child| self.plane.has_numbers(child, self.clocks.now(home));
        !self.shown.packets.is_empty() && child.is_some_and(has)
    }

    /// The shard whose carrier sends a clear packet. None if any node may.
    pub(super) fn shard_of_sent(&self, packet: &[u8]) -> Option<Shard> {
        match self.spread_of(packet) {
            Some(_) if self.is_routed => None,
            _ => self.lane_out(packet),
        }
    }

    /// How far the rows of spread SAs have come here, by home shard, where nodes tell each other.
    pub(super) fn spread_rows(&self) -> Vec<(Shard, u64)> {
        let tells = self.is_routed && self.member.status().version == GroupConfig::NEWEST;
        if tells { self.rows_of_homes().into_iter().collect() } else { Vec::new() }
    }

    /// How far the rows of each home shard have come here.
    pub(super) fn rows_of_homes(&self) -> BTreeMap<Shard, u64> {
        let homes: BTreeSet<Shard> = self.spread.keys().map(|spi| spi.shard()).collect();
        homes.into_iter().map(|home| (home, self.row_of(home))).collect()
    }

    /// How far the rows of a home shard have come here.
    fn row_of(&self, home: Shard) -> u64 {
        let of_home = self.plane.children().filter(|(spi, _)| spi.shard() == home);
        let used = of_home.filter_map(|(_, child)| self.plane.outbound_sa(child)).map(OutboundSa::next_row);
        used.map(|next| next.saturating_sub(1)).fold(self.clocks.now(home), u64::max)
    }

    /// The highest numbers accepted in these lanes, by spread SA.
    pub(super) fn tops_of(&self, lanes: ShardSet) -> Vec<(Spi, Vec<(Shard, u64)>)> {
        let of = |spi: &Spi| Some((*spi, self.plane.inbound_sa(self.plane.by_spi(*spi)?)?.lane_tops(lanes)));
        self.spread.keys().filter_map(of).collect()
    }
}
