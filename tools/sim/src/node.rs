//! A node of the cluster: the member and the data plane of the gateway, with models of their
//! environment: the filter, the engine's socket, the disk.

mod output;
mod reports;
mod roster;
mod spread;

use crate::config;
use crate::engine::Votes;
use crate::host::{Effect, Host, Input, Sent, Taken, Wish, established_with};
use crate::plane::Plane;
use crate::probe;
use crate::scenario::Scenario;
use crate::world::Birth;
use crate::world::members::FIRST_NODES;
use reports::{FOLLOW, MARKS_INTERVAL, PACKETS_INTERVAL};
use spread::Clocks;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::dispatch::{Ownership, ike_shard};
use testudo_cluster::group::{ClusterKey, GroupConfig, Ingress, NoQuorum, QuorumRule, Rosters, Standing};
use testudo_cluster::member::{
    CarrierTable, Class, Effect as Change, Member, MemberConfig, MemberOutput, PieceName, ShardPackets,
};
use testudo_cluster::node::NodeId;
use testudo_ike::endpoint::Target;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{Time, UnixTime};
use testudo_ipsec::dataplane::{Command, Event, Verdict};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::spd::PolicyId;

/// Packets a second that a node can accept on one SA, and the line rate that a node with slow ports
/// reports.
const PACKETS_PER_SECOND: [u64; 2] = [10_000, 100];

/// Number of configuration items.
pub const PIECES: u64 = 4;

/// Packets recorded of shards that move to another node.
const MAX_NOTES: usize = 4096;

/// One node.
pub struct Node {
    member: Member,
    plane: Plane,
    /// Time of the last input, by its clock.
    now: Time,
    fence: Option<Time>,
    shown: Ownership,
    /// Where routers give each packet to one node: the node that carries each shard, and whether
    /// this node serves.
    carriers: Option<CarrierTable>,
    serves: bool,
    is_routed: bool,
    provisional: ShardSet,
    standing: Option<Standing>,
    /// Of the filter: the highest number seen of each SPI.
    seen: BTreeMap<u32, u32>,
    /// Of the filter: the spread SAs, by SPI; and how many of their clear packets it has counted.
    spread: BTreeMap<Spi, Spread>,
    clocks: Arc<Clocks>,
    dealt: spread::Dealt,
    /// Packets that the filter has passed and that were not processed yet, and whether each was
    /// unseen.
    arrived: BTreeMap<(u32, u32), bool>,
    /// The last SPI of each slot whose SA is gone. No simulation lasts long enough for a slot to
    /// rest.
    resting: BTreeMap<(Shard, u16), Spi>,
    /// The high-water marks reported.
    marks: BTreeMap<Spi, u64>,
    next_marks: Time,
    /// Packets of each shard, and when they are reported next.
    packets: ShardPackets,
    next_packets: Time,
    /// Packets that wait for their shards, as in the worker.
    held: Vec<HeldPacket>,
    /// Operators add and remove nodes.
    changes: bool,
    effects: Vec<Effect>,
}

struct HeldPacket {
    packet: Vec<u8>,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    In,
    Out(Option<Shard>),
}

impl Node {
    /// A node that starts.
    pub fn new(scenario: &Scenario, birth: &Birth) -> Self {
        let first = if scenario.changes { FIRST_NODES } else { scenario.nodes };
        let mut nodes: Vec<NodeId> = (1..=first as u32).filter_map(NodeId::new).collect();
        nodes.extend(Some(birth.id).filter(|own| !nodes.contains(own)));
        let group = GroupConfig {
            links: 3,
            heartbeat: Duration::from_nanos(scenario.heartbeat),
            fence: Duration::from_nanos(scenario.fence),
            quorum: match scenario.votes {
                Votes::LastManStanding => QuorumRule::LastManStanding,
                _ => QuorumRule::Majority,
            },
            no_quorum: if scenario.forward { NoQuorum::Forward } else { NoQuorum::Stop },
            ingress: if scenario.routed.is_some() { Ingress::Routed } else { Ingress::Flood },
            speaks: scenario.speaks(birth.index, birth.boot),
            ..GroupConfig::new(birth.id, nodes, ClusterKey::new([7; ClusterKey::LEN]))
        };
        let config = MemberConfig {
            endpoint: config::endpoint(),
            // Any majority contains a fast node, and no node accepts more than that one could.
            line_rate: PACKETS_PER_SECOND[usize::from(birth.id.get().is_multiple_of(2))],
            message_id_sync: scenario.seed.is_multiple_of(2),
            // With few blocks, others take their turns between them.
            blocks_at_once: if scenario.seed.is_multiple_of(3) { 1 } else { 1024 },
            withdraw: Duration::from_nanos(scenario.routed.map_or(0, |routed| routed.withdraw)),
            follow: FOLLOW,
            spread: spread::connections(scenario),
            ..MemberConfig::new(group)
        };
        let entropy = || Box::new(birth.entropy.clone());
        let mut member = Member::new(config, birth.disk.clone(), [entropy(), entropy()], birth.now);
        member.set_unix_time(birth.now, UnixTime(1_800_000_000));
        for (peer, manners) in scenario.manners.iter().enumerate() {
            member.endpoint_mut().load_secret(config::secret(peer));
            let connection = config::connection(peer, true, manners);
            let loaded = member.endpoint_mut().load_connection(birth.now, connection);
            loaded.expect("a connection that holds together");
        }
        let policy = |peer| (config::inner_net(), config::peer_net(peer));
        let policies: Vec<_> = (0..scenario.manners.len()).map(policy).collect();
        let mut plane = Plane::new(config::VIP, None, scenario.seed, &policies);
        plane.apply(Command::SetShards(ShardSet::EMPTY));
        plane.apply(Command::SetHashKey(member.hash_key()));
        let clocks = spread::clocks(scenario, birth.index, &mut plane);
        let mut node = Self {
            member,
            plane,
            now: birth.now,
            fence: None,
            shown: Ownership::default(),
            carriers: None,
            serves: false,
            is_routed: scenario.routed.is_some(),
            provisional: ShardSet::EMPTY,
            standing: None,
            seen: BTreeMap::new(),
            spread: BTreeMap::new(),
            clocks,
            dealt: spread::Dealt::default(),
            arrived: BTreeMap::new(),
            resting: BTreeMap::new(),
            held: Vec::new(),
            marks: BTreeMap::new(),
            next_marks: birth.now.plus(MARKS_INTERVAL),
            packets: ShardPackets::default(),
            next_packets: birth.now.plus(PACKETS_INTERVAL),
            changes: scenario.changes,
            effects: Vec::new(),
        };
        // Its files may be older than the configuration of the others.
        (0..PIECES).for_each(|piece| node.configure(birth.now, piece, Some(0)));
        node.follow_nodes();
        node.member.pump(birth.now);
        node
    }

    fn configure(&mut self, now: Time, piece: u64, value: Option<u64>) {
        let name = PieceName { class: Class::Connection, name: format!("piece {piece}") };
        let change = if value.is_some() { Change::Set(name) } else { Change::Unset(name) };
        let octets = value.unwrap_or_default().to_be_bytes().to_vec();
        self.member.configure(now, 1, change, octets.into());
    }

    fn is_open(&self, now: Time) -> bool {
        self.fence.is_some_and(|fence| now < fence)
    }

    fn esp(&mut self, now: Time, packet: &[u8]) {
        let Some(esp) = probe::esp(packet) else { return };
        let spi = Spi(esp.spi);
        let arrival = (esp.spi, esp.sequence);
        let (key, child) = (self.plane.key_in(esp.spi), self.plane.by_spi(spi));
        let done = self.plane.inbound(packet);
        if done.verdict == Verdict::Held {
            return self.held.push(HeldPacket { packet: packet.to_vec(), way: Way::In });
        }
        if let (Verdict::Forward, Some(key), Some(child)) = (done.verdict, key, child) {
            self.member.traffic_seen(now, child);
            let shard = self.lane_in(&esp);
            if shard == spi.shard() {
                self.count_carried(shard);
            }
            // A packet that arrived and was dropped, for instance by a shut fence, was not
            // accepted: a copy of it still counts as unseen.
            // Where routers give packets to one node, no node sees those of others: then all that
            // another may have accepted counts as seen.
            let unseen = self.arrived.remove(&arrival).unwrap_or(false) && !self.is_routed;
            self.effects.push(Effect::Accepted(Taken {
                key,
                sequence: esp.sequence,
                shard,
                provisional: self.provisional.contains(shard),
                unseen,
            }));
            self.effects.push(Effect::Inner(done.packet));
        }
    }

    /// Works on a clear packet. `lane`: the one that it has taken in turn.
    fn clear(&mut self, packet: &[u8], lane: Option<Shard>) {
        let done = self.plane.outbound(packet, lane);
        if done.verdict == Verdict::Held {
            return self.held.push(HeldPacket { packet: packet.to_vec(), way: Way::Out(lane) });
        }
        if done.verdict != Verdict::Forward {
            return;
        }
        let esp = probe::esp(&done.packet);
        let key = esp.and_then(|esp| self.plane.key_out(esp.spi, esp.to));
        let shard = lane.or_else(|| self.shard_of_sent(packet));
        shard.into_iter().for_each(|shard| self.count_carried(shard));
        let provisional = shard.is_some_and(|shard| self.provisional.contains(shard));
        self.effects.push(Effect::Outer(Sent { packet: done.packet, key, shard, provisional }));
    }

    /// The shard of a clear packet for a peer's network.
    fn shard_of(&self, packet: &[u8]) -> Option<Shard> {
        let peer = config::peer_of(probe::destination(packet)?)?;
        let sending = self.plane.sending(PolicyId(peer as u32));
        let of_sa = sending.and_then(|child| self.plane.inbound_sa(child)).map(|sa| sa.spi().shard());
        Some(of_sa.unwrap_or_else(|| self.member.hash_key().name(&config::name(peer))))
    }

    fn wish(&mut self, now: Time, wish: Wish) {
        let (Wish::Initiate(peer) | Wish::Terminate(peer) | Wish::RekeyChild(peer) | Wish::RekeyIke(peer)) =
            wish;
        let name = config::name(peer);
        let home = self.member.hash_key().name(&name);
        let starts = self.shown.ike.contains(home);
        let endpoint = self.member.endpoint_mut();
        match wish {
            Wish::Initiate(_) => {
                if starts {
                    let _ = endpoint.initiate(now, Some(&name), config::CHILD);
                }
            }
            Wish::Terminate(_) => {
                let _ = endpoint.terminate(now, &Target::Connection(name), false);
            }
            Wish::RekeyChild(_) | Wish::RekeyIke(_) => {
                let sas: Vec<_> = endpoint.sas_of(&name).collect();
                for sa in sas {
                    if wish == Wish::RekeyIke(peer) {
                        endpoint.rekey_ike(now, sa.id);
                    } else if let Some(child) = sa.children.first() {
                        endpoint.rekey_child(now, child.id);
                    }
                }
            }
        }
    }

    /// Checks that a node that allocates SPIs of a shard lets their slots rest.
    fn check_slot(&mut self, spi: Spi) {
        let last = self.resting.get(&(spi.shard(), spi.slot()));
        if self.shown.ike.contains(spi.shard()) && last.is_some_and(|last| *last != spi) {
            self.effects.push(Effect::Unrested(spi));
        }
    }

    /// Uses all but `left` numbers of the present block of the SA to a peer.
    fn burst(&mut self, now: Time, peer: usize, left: u64) {
        let Some(child) = self.plane.sending(PolicyId(peer as u32)) else { return };
        let Some((sa, inbound)) = self.plane.outbound_sa(child).zip(self.plane.inbound_sa(child)) else {
            return;
        };
        let Some(key) = self.plane.key_out(sa.spi().0, config::peer_addr(peer)) else { return };
        let is_spread = self.spread.contains_key(&inbound.spi());
        if is_spread || !self.is_open(now) || !self.shown.packets.contains(inbound.spi().shard()) {
            return;
        }
        let SequenceBlock { next, end } = sa.numbers().block();
        let count = end.saturating_sub(next).saturating_sub(left);
        if count > 0 {
            let spent = sa.numbers().reserve(u32::try_from(count).unwrap_or(u32::MAX));
            self.effects.push(Effect::Spent(key, spent.first..spent.first + spent.count));
        }
    }

    fn pipeline_events(&mut self, now: Time) {
        for event in self.plane.take_events() {
            match event {
                Event::SequenceLow { spi, rate } => self.member.numbers_low(now, spi, rate),
                Event::IvLow => self.member.renew_sender(now),
                _ => {}
            }
        }
    }

    fn look_where_it_stands(&mut self) {
        self.provisional = self.member.provisional();
        self.standing = self.member.standing();
    }
}

impl Host for Node {
    fn handle(&mut self, now: Time, input: Input) {
        self.now = now;
        self.plane.set_now(now.0.as_millis() as u64);
        self.plane.set_open(self.is_open(now));
        let mut looks = true;
        match input {
            Input::Engine(event) => self.member.handle_engine(now, event),
            // The next output is requested only after this.
            Input::Refused(bytes) => return self.member.multicast_refused(now, bytes),
            Input::Ready => self.member.multicast_ready(),
            Input::Heartbeat(link, bytes) => {
                let before = self.member.relayed_ike();
                self.member.handle_heartbeat(now, link, &bytes);
                if self.member.relayed_ike() != before {
                    self.effects.push(Effect::RelayedAgain);
                }
            }
            Input::Ike(path, bytes) => self.member.handle_ike(now, path, &bytes),
            Input::Esp(packet) => {
                looks = false;
                self.esp(now, &packet);
            }
            Input::Clear(packet) => {
                looks = false;
                let lane = self.dealt.take(&packet);
                self.clear(&packet, lane);
            }
            Input::Timeout => {
                self.tell_marks(now);
                self.tell_packets(now);
                let rows = self.rows_of_homes();
                self.member.show_clocks(now, |home| rows.get(&home).copied().unwrap_or_default());
                self.member.show_sessions(now, self.dealt.sessions());
                self.member.handle_timeout(now);
            }
            Input::Link(link, up) => self.member.set_link(now, link, up),
            Input::Operator(wish) => self.wish(now, wish),
            Input::Drain(node, drained) => {
                let node = u32::try_from(node + 1).ok().and_then(NodeId::new);
                // It may be refused, like any command of an operator.
                let _ = node.map(|node| self.member.drain(now, node, drained));
            }
            Input::Configure(piece, value) => self.configure(now, piece, value),
            Input::Change(change) => self.change_nodes(now, &change),
            Input::IvLow => self.member.renew_sender(now),
            Input::Burst(peer, left) => {
                looks = false;
                self.burst(now, peer, left);
            }
            Input::Written(durable) => self.member.persisted(now, &durable),
            Input::RolledBack => {
                // The worker checks the generation itself first, once per burst.
                self.fence = None;
                self.member.rolled_back(now);
            }
        }
        self.pipeline_events(now);
        self.member.pump(now);
        if looks {
            self.look_where_it_stands();
        }
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        // The engine accepts or refuses a message before the next one.
        while let Some(output) = self.member.poll_output() {
            let multicast = matches!(output, MemberOutput::Multicast(_));
            self.output(output);
            if multicast {
                break;
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn next_timeout(&self) -> Option<Time> {
        let packets = self.is_routed.then_some(self.next_packets);
        self.member.next_timeout().into_iter().chain([self.next_marks]).chain(packets).min()
    }

    fn filter_outer(&mut self, packet: &[u8]) -> bool {
        let Some(esp) = probe::esp(packet) else { return false };
        let before = self.seen.get(&esp.spi).copied().unwrap_or(0);
        if self.plane.by_spi(Spi(esp.spi)).is_some() {
            self.seen.insert(esp.spi, before.max(esp.sequence));
        }
        let ours = self.keeps_esp(&esp);
        if ours {
            self.arrived.entry((esp.spi, esp.sequence)).or_insert(before < esp.sequence);
        }
        ours
    }

    fn filter_inner(&mut self, packet: &[u8]) -> bool {
        self.keeps_clear(packet)
    }

    fn serves(&self, now: Time) -> bool {
        self.serves && self.is_open(now)
    }

    fn relays_outer(&mut self, now: Time, packet: &[u8], counts: bool) -> Option<NodeId> {
        let esp = probe::esp(packet)?;
        let shard = self.lane_in(&esp);
        self.relays(now, shard, counts && shard == Spi(esp.spi).shard())
    }

    fn relays_inner(&mut self, now: Time, packet: &[u8], counts: bool) -> Option<NodeId> {
        let shard = self.lane_out(packet)?;
        self.relays(now, shard, counts && self.spread_of(packet).is_none())
    }

    fn filter_ike(&mut self, bytes: &[u8]) -> bool {
        if self.is_routed {
            return true;
        }
        ike_shard(self.member.hash_key(), bytes).is_some_and(|shard| self.shown.ike.contains(shard))
    }

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn standing(&self) -> Option<Standing> {
        self.standing
    }

    fn state(&self) -> u64 {
        self.member.digest()
    }

    fn owns(&self, now: Time, shard: Shard) -> bool {
        self.is_open(now) && self.shown.packets.without(self.provisional).contains(shard)
    }

    fn rows(&self) -> Vec<(Shard, u64)> {
        self.spread_rows()
    }

    fn is_named(&self, shard: Shard) -> bool {
        self.member.is_named(shard)
    }

    fn knows(&self, ours: IkeSpi, message_id: u32) -> bool {
        self.member.last_answered(ours).is_some_and(|last| last.0 >= message_id)
    }

    fn ikes_with(&self, peer: IpAddr) -> Vec<IkeSpi> {
        established_with(self.member.endpoint(), peer)
    }

    fn rosters(&self) -> Option<&Rosters> {
        Some(self.member.rosters())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.plane.drops();
        let status = self.member.status();
        counters.push(("changes of the nodes", self.member.rosters().settled.number));
        counters.push(("shards moved to their packets", status.counters.followed));
        counters.push(("not ours", status.counters.not_ours));
        counters.push(("not the owner's", status.counters.not_owner));
        let told = status.counters.told;
        counters.push(("whole states told", told.states.messages));
        counters.push(("changes told", told.mid_i.messages + told.mid_r.messages + told.updates.messages));
        counters.push(("changes that do not fit", status.counters.unfit));
        let [learned, put_right] = self.dealt.followed();
        counters.push(("sessions learned", learned));
        counters.push(("sessions put right", put_right));
        counters
    }
}
