//! Invariants of sent messages and of the world at rest, and queries for tests.

use super::{Node, World};
use crate::config::peer_addr;
use std::net::IpAddr;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_ike::message::{ExchangeType, Message, MessageId};
use testudo_ike::output::Time;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::ChildSaParams;

impl World {
    /// One content for each message, and one message for each IV.
    pub(super) fn check_message(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).unwrap();
        let header = message.header;
        if header.exchange == ExchangeType::IkeSaInit {
            return;
        }
        // Strangers are answered in clear.
        let Some(encrypted) = message.encrypted else { return };
        let spis = (header.initiator_spi.0, header.responder_spi.0);
        let fragment = encrypted.fragment.map_or(0, |fragment| fragment.number);
        // Beside the windows there may be several (RFC 6311 §5.1).
        let beside = header.exchange == ExchangeType::Informational && header.message_id == MessageId(0);
        self.beside += usize::from(beside && !header.response);
        // SPIs, exchange, flags, Message ID.
        let name = [&bytes[..16], &bytes[18..24]].concat();
        let before = self.messages.entry((name, fragment)).or_insert_with(|| bytes.to_vec());
        assert!(beside || before == bytes, "{header:?} is sent with another content");
        let iv: [u8; 8] = *encrypted.body.first_chunk().unwrap();
        let before =
            self.ivs.entry((spis.0, spis.1, header.from_initiator, iv)).or_insert_with(|| bytes.to_vec());
        assert!(before == bytes, "an IV is used twice");
    }

    /// Where `node` carries packets it sends with numbers behind all that `gone` had. Gives how
    /// many Child SAs these are.
    pub(crate) fn assert_sends_behind(&self, node: usize, gone: usize) -> usize {
        let state = &self.nodes[node];
        let carried = state.numbers.iter().filter(|(spi, _)| state.shards.0.contains(spi.shard()));
        let had = |spi: &Spi| {
            self.blocks[spi].iter().filter(|(_, (_, of))| *of == gone).map(|(next, _)| *next).max()
        };
        let both = carried.filter_map(|(spi, numbers)| Some((*spi, numbers.reserve(1).first, had(spi)?)));
        both.inspect(|(spi, next, had)| assert!(next > had, "{spi}: {next} behind {had}")).count()
    }

    /// No number is granted twice, unless two partitions have been quorate at once.
    pub(super) fn check_block(&mut self, node: usize, spi: Spi, block: SequenceBlock) {
        if self.split {
            return;
        }
        let blocks = self.blocks.entry(spi).or_default();
        for (next, (end, owner)) in blocks.iter() {
            let apart = block.end <= *next || *end <= block.next;
            let same = (*next, *end, *owner) == (block.next, block.end, node);
            assert!(apart || same, "{spi}: node {node} has {block:?}, and node {owner} {next}..{end}");
        }
        blocks.insert(block.next, (block.end, node));
    }

    /// Until when a node may speak.
    pub(crate) fn fence_of(&self, node: usize) -> Time {
        self.nodes[node].member.as_ref().unwrap().group_status().fence
    }

    /// The owner's own SPI of a peer's tunnel.
    pub(crate) fn spi_of(&self, peer: usize) -> Spi {
        self.peers[peer].installed.values().next().unwrap().spi_out
    }

    /// The Child SAs that a node has, those that are looked at first in front.
    pub(crate) fn in_order(&self, node: usize) -> Vec<Spi> {
        let state = &self.nodes[node];
        let mut all: Vec<_> = state
            .installed
            .iter()
            .map(|(child, (params, _))| (state.policies[child], params.spi_in))
            .collect();
        all.sort_unstable();
        all.into_iter().rev().map(|(_, spi)| spi).collect()
    }

    /// How many blocks of numbers a node has had for a tunnel.
    pub(crate) fn blocks_of(&self, node: usize, spi: Spi) -> usize {
        let of = |state: &Node| {
            state
                .installed
                .values()
                .find(|(params, _)| params.spi_in == spi)
                .map(|(_, numbers)| numbers.len())
        };
        self.nodes.get(node).and_then(of).unwrap_or_default()
    }

    /// The nodes whose endpoints have an IKE SA with a peer, once for each.
    pub(crate) fn speakers(&self, peer: usize) -> Vec<usize> {
        let addr: IpAddr = peer_addr(peer);
        let members =
            self.nodes.iter().enumerate().filter_map(|(node, at)| Some((node, at.member.as_ref()?)));
        let sas = members.flat_map(|(node, member)| member.endpoint().sas().map(move |sa| (node, sa)));
        sas.filter(|(_, sa)| sa.remote.ip() == addr).map(|(node, _)| node).collect()
    }

    /// The node whose endpoint has the IKE SA with a peer.
    pub(crate) fn owner_of(&self, peer: usize) -> Option<usize> {
        let addr: IpAddr = peer_addr(peer);
        let has = |node: &Node| {
            let member = node.member.as_ref();
            member.is_some_and(|member| member.endpoint().sas().any(|sa| sa.remote.ip() == addr))
        };
        self.nodes.iter().position(has)
    }

    /// Peer and cluster have one Child SA, the same on every node that is there, which sends through
    /// it, and its owner has numbers for it.
    pub(crate) fn assert_tunnel(&self, peer: usize) {
        let ours: Vec<&ChildSaParams> = self.peers[peer].installed.values().collect();
        assert_eq!(ours.len(), 1, "peer {peer} has {} children; {:?}", ours.len(), self.logs());
        let ours = ours[0];
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.member.is_some()) {
            let fits = |params: &ChildSaParams| {
                (params.spi_in, params.spi_out) == (ours.spi_out, ours.spi_in)
                    && params.key_in == ours.key_out
                    && params.key_out == ours.key_in
            };
            let of_peer =
                node.installed.iter().filter(|(_, (params, _))| params.remote.ip() == peer_addr(peer));
            let found: Vec<_> = of_peer.collect();
            assert_eq!(found.len(), 1, "node {index} has {} children of peer {peer}", found.len());
            let (child, (params, _)) = found[0];
            assert!(fits(params), "node {index}");
            assert!(node.sending.contains(child), "node {index} sends nothing to peer {peer}");
        }
        let shard = ours.spi_out.shard();
        let carriers: Vec<&Node> = self.nodes.iter().filter(|node| node.shards.0.contains(shard)).collect();
        assert_eq!(carriers.len(), 1, "one node carries it");
        let (_, numbers) =
            carriers[0].installed.values().find(|(params, _)| params.spi_in == ours.spi_out).unwrap();
        assert!(!numbers.is_empty(), "and has numbers");
        let owner = self.owner_of(peer).expect("somebody speaks for it");
        assert!(self.nodes[owner].shards.1.contains(shard));
    }

    /// Every shard is carried by one node, which speaks its IKE too, and one node is the default
    /// host.
    pub(crate) fn assert_all_shards_once(&self) {
        let all = |of: &dyn Fn(&Node) -> ShardSet| {
            let mut union = ShardSet::EMPTY;
            let mut sum = 0;
            for node in &self.nodes {
                union = union.union(of(node));
                sum += of(node).len();
            }
            (union, sum)
        };
        assert_eq!(all(&|node| node.shards.0), (ShardSet::ALL, 256), "{:?}", self.logs());
        assert_eq!(all(&|node| node.shards.1), (ShardSet::ALL, 256));
        let there = self.nodes.iter().filter(|node| node.member.is_some());
        let (all, hosts) = (there.clone().count(), there.filter(|node| node.default_host).count());
        assert_eq!(hosts, if self.syncs.routed { all } else { 1 });
    }

    pub(crate) fn logs(&self) -> Vec<&String> {
        self.nodes.iter().flat_map(|node| &node.logs).collect()
    }

    /// With what a node would send next in the tunnel for which we chose that SPI. 1: with nothing,
    /// if it has had no block.
    pub(crate) fn next_number(&self, node: usize, spi: Spi) -> u64 {
        self.nodes[node].numbers.get(&spi).map_or(0, |numbers| numbers.block().next)
    }
}
