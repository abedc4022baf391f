//! What the hosts of members and peers do: they carry out what is asked of them, and check it.

use super::{Arrival, LAN, Node, WAN, World, id};
use crate::config::peer_addr;
use std::collections::BTreeSet;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::dispatch::Ownership;
use testudo_cluster::engine::EngineEvent;
use testudo_cluster::member::{Flushed, Member, MemberOutput, TakenIn};
use testudo_ike::message::{ExchangeType, Message};
use testudo_ike::output::{Output, Path, Time};
use testudo_ipsec::dataplane::Note;
use testudo_ipsec::number::{SequenceAllocator, SequenceBlock};

impl Node {
    /// Shows its sessions to the member if time has come for that.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let is_due = |member: &&mut Member| member.next_timeout().is_some_and(|at| at <= now);
        if let Some(member) = self.member.as_mut().filter(is_due) {
            member.show_sessions(now, self.table.sessions());
            member.handle_timeout(now);
        }
    }
}

impl World {
    pub(super) fn perform(&mut self, node: usize, output: MemberOutput) {
        let state = &mut self.nodes[node];
        match output {
            MemberOutput::Ike(Output::Send { path, bytes, .. }) => {
                assert!(!state.shards.1.is_empty(), "who speaks owns something");
                assert!(self.now < self.fence_of(node), "node {node} speaks behind its fence");
                self.check_message(&bytes);
                let peer = (0..self.peers.len()).find(|peer| peer_addr(*peer) == path.remote.ip());
                let back = Path { local: path.remote, remote: path.local };
                if let Some(peer) = peer {
                    self.at(WAN, Arrival::ToPeer(peer, back, bytes));
                }
            }
            MemberOutput::Multicast(bytes) => {
                let Some(ring) = state.ring else { return };
                let late = self.slow.filter(|(slow, _)| *slow == node).map_or(LAN, |(_, late)| late);
                for to in 0..self.nodes.len() {
                    if self.nodes[to].ring == Some(ring) {
                        let event = EngineEvent::Message { from: id(node), bytes: bytes.clone() };
                        self.at(late, Arrival::Engine(to, ring, event));
                    }
                }
            }
            MemberOutput::Datagram { to, link, bytes } => {
                let to = usize::from(to.get()) - 1;
                if self.mute.is_none_or(|mute| mute != to && mute != node) {
                    self.at(LAN, Arrival::Heartbeat(to, link, bytes));
                }
            }
            MemberOutput::InstallChild { child, params, place, replaces, .. } => {
                assert_eq!(*self.places.entry(params.spi_in).or_insert(place), place);
                let inherited = replaces.and_then(|old| state.policies.get(&old).copied());
                state.policies.insert(child, inherited.unwrap_or(place));
                let numbers = SequenceAllocator::new(SequenceBlock::EMPTY, params.esn).unwrap();
                state.numbers.insert(params.spi_in, numbers);
                let new = state.installed.insert(child, (params, BTreeSet::new())).is_none();
                assert!(new, "a child is installed once");
                if replaces.is_none() {
                    state.sending.insert(child);
                }
            }
            MemberOutput::Numbers { child, spi_in, block, at_once } => {
                let numbers = &state.numbers[&spi_in];
                if at_once { numbers.advance(block) } else { numbers.follow(block) }.unwrap();
                assert!(state.installed.contains_key(&child), "numbers are for what is installed");
                self.check_block(node, spi_in, block);
                let state = &mut self.nodes[node];
                state.installed.get_mut(&child).unwrap().1.insert(block.next);
            }
            MemberOutput::TakeIn { children } => {
                let floor = |taken: &TakenIn| {
                    (taken.spi_in, taken.floor(self.seen.get(&taken.spi_in).copied().map(u64::from)))
                };
                let floors: Vec<(Spi, u64)> = children.iter().map(floor).collect();
                state.member.as_mut().unwrap().taken_in(self.now, &floors);
                for (spi, floor) in floors {
                    state.floors.insert(spi, floor);
                    let highest = state.highest_floors.entry(spi).or_default();
                    *highest = floor.max(*highest);
                }
                let known: BTreeSet<Spi> =
                    state.installed.values().map(|(params, _)| params.spi_in).collect();
                assert!(children.iter().all(|child| known.contains(&child.spi_in)));
            }
            MemberOutput::Stripe { child, stripe, .. } => {
                state.installed.get_mut(&child).unwrap().1.insert(stripe.start);
            }
            MemberOutput::TakeInLanes { children } => {
                let estimates = children.iter().filter(|taken| taken.is_estimate());
                let floors: Vec<(Spi, u64)> =
                    estimates.map(|taken| (taken.spi_in, taken.floor(0, None))).collect();
                state.member.as_mut().unwrap().taken_in(self.now, &floors);
            }
            MemberOutput::Ike(Output::RemoveChild { child, spi_in }) => {
                let (params, _) = state.installed.remove(&child).expect("only what is installed goes");
                assert_eq!(params.spi_in, spi_in);
                state.sending.remove(&child);
            }
            MemberOutput::Ike(Output::AdvanceSequence { .. } | Output::InstallChild { .. }) => {
                panic!("a member gives blocks, and says where a Child SA stands")
            }
            MemberOutput::Ike(Output::SwitchChild { to, .. }) => {
                let (params, blocks) = &state.installed[&to];
                let carried = state.shards.0.contains(params.spi_in.shard());
                assert!(!carried || !blocks.is_empty(), "it sends with no numbers");
                state.sending.insert(to);
            }
            MemberOutput::Ike(Output::StartChild { child }) => {
                assert!(state.installed.contains_key(&child));
                state.sending.insert(child);
            }
            MemberOutput::Shards(Ownership { packets, held, ike, default_host, .. }) => {
                let gone = state.shards.0.union(state.held).without(packets.union(held));
                let is_nobodys = |shard: Shard| state.carriers[usize::from(shard.0)] == Some(id(node));
                assert!(!gone.iter().any(is_nobodys), "node {node} relays to itself what it gives away");
                state.held = held;
                (state.shards, state.default_host) = ((packets, ike), default_host);
                for (other, state) in self.nodes.iter().enumerate().filter(|(other, _)| *other != node) {
                    let both = packets.iter().filter(|shard| state.shards.0.contains(*shard));
                    self.doubled = self.doubled.union(both.collect());
                    let spoken = ike.iter().any(|shard| state.shards.1.contains(shard));
                    assert!(
                        !spoken || state.ring.is_none() || self.split,
                        "nodes {node} and {other} speak for one shard"
                    );
                }
            }
            MemberOutput::ForgetSessions => state.table.sessions().clear(),
            MemberOutput::Sessions(told) => told.into_iter().for_each(|told| state.table.follow(told)),
            MemberOutput::Carriers(table) => state.carriers = *table,
            MemberOutput::Serves(serves) => state.serves = serves,
            MemberOutput::TooBig(told) => state.too_big.push(told),
            MemberOutput::Flush { shards } => {
                state.unflushed = state.unflushed.union(shards);
                if self.busy != Some(node) {
                    self.flush(node);
                }
            }
            MemberOutput::Handled { shards, digests } => {
                assert!(shards.iter().all(|shard| state.held.contains(shard)));
                state.handled.extend(digests);
            }
            MemberOutput::Sender(sender) => {
                assert!(state.sender.is_none_or(|old| old.0 < sender.0));
                state.sender = Some(sender);
            }
            // A data plane without a sender ID is not the subject here; the node is out of the
            // engine's group.
            MemberOutput::Rejoin => state.ring = None,
            MemberOutput::PathMtu { remote, mtu, age } => {
                state.paths.insert(remote, (mtu, Time(self.now.0 - age)));
            }
            MemberOutput::Persist(durable) => {
                state.member.as_mut().unwrap().persisted(self.now, &durable);
                state.disk = durable;
            }
            MemberOutput::Ike(Output::Event(event)) => state.logs.push(format!("{event:?}")),
            MemberOutput::Initiated { job, outcome } => state.initiated.push((job, outcome)),
            MemberOutput::Line { job, .. } => state.lines.push(job),
            MemberOutput::RemoteEvent(event) => state.remote_events.push(event),
            MemberOutput::Ike(Output::UpdateChild { path, .. }) => state.moved.push(path),
            _ => {}
        }
    }

    pub(super) fn perform_of_peer(&mut self, peer: usize, output: Output) {
        let state = &mut self.peers[peer];
        match output {
            Output::Send { path, bytes, .. } => {
                state.sent += 1;
                let back = Path { local: path.remote, remote: path.local };
                let auth = Message::parse(&bytes)
                    .is_ok_and(|message| message.header.exchange == ExchangeType::IkeAuth);
                let after = if auth { self.late_auth } else { WAN };
                self.at(after, Arrival::ToCluster(back, bytes));
            }
            Output::InstallChild { child, params, .. } => {
                state.installed.insert(child, *params);
            }
            Output::RemoveChild { child, .. } => {
                state.installed.remove(&child);
            }
            Output::AdvanceSequence { child, by } => state.skipped.push((child, by)),
            _ => {}
        }
    }

    /// The workers of a node are done with the shards that it has stopped.
    pub(crate) fn flush(&mut self, node: usize) {
        self.flush_saying(node, Vec::new(), Vec::new());
    }

    /// The same, with the last high-water marks, and notes of packets.
    pub(crate) fn flush_saying(&mut self, node: usize, marks: Vec<(Spi, u64)>, notes: Vec<Note>) {
        let (now, state) = (self.now, &mut self.nodes[node]);
        let shards = std::mem::take(&mut state.unflushed);
        let flushed = Flushed { shards, marks, tops: Vec::new(), notes };
        if let Some(member) = &mut state.member {
            member.flushed(now, &flushed);
        }
    }
}
