//! Which Child SAs are spread over the nodes, and what the log says of it.

use crate::config::of_cluster;
use crate::world::table::Table;
use crate::world::{Node, Syncs, World};
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::session::{SLOTS, Sessions};
use testudo_base::siphash::SipKey;
use testudo_base::turn::Turns;
use testudo_ike::config::{Child, Connection, EspProposal};
use testudo_ipsec::sa::Mac;

const BY_PACKET: Syncs = Syncs {
    version: None,
    asked: false,
    unknown: false,
    spread: Some(Spread::PacketHash),
    routed: false,
    stays: None,
};

const BEHIND_ROUTERS: Syncs = Syncs { routed: true, ..BY_PACKET };

/// What the nodes say of the Child SA of a peer that has connected, if the cluster's connection is
/// this one.
fn said(syncs: Syncs, connection: Option<Connection>) -> Vec<String> {
    let mut world = World::begun_with(3, 1, 1, Duration::from_millis(50), syncs);
    if let Some(connection) = connection {
        let now = world.now;
        for node in &mut world.nodes {
            let endpoint = node.member.as_mut().unwrap().endpoint_mut();
            endpoint.load_connection(now, connection.clone()).unwrap();
        }
    }
    world.initiate(0);
    world.run(Duration::from_secs(1));
    let lines = world.nodes.iter().flat_map(|node| &node.logs);
    lines.filter(|line| line.contains("spread over the nodes")).cloned().collect()
}

#[test]
fn the_owner_says_how_a_child_sa_is_spread() {
    let said = said(BY_PACKET, None);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("of connection peer0 is spread over the nodes by packet-hash"), "{said:?}");
}

/// Behind routers and beside older nodes nobody can count alike.
#[test]
fn lanes_take_turns_only_where_all_nodes_count() {
    let in_turn = Syncs { spread: Some(Spread::PacketSqf), ..BY_PACKET };
    let by_session = Syncs { spread: Some(Spread::SessionRr), ..BY_PACKET };
    for (syncs, how) in [
        (in_turn, "by packet-sqf\""),
        (Syncs { version: Some(27), ..in_turn }, "by packet-hash: a node of the view runs an older version"),
        (Syncs { routed: true, ..in_turn }, "by packet-hash: behind routers nobody can count all packets"),
        (by_session, "by session-rr\""),
        (
            Syncs { version: Some(28), ..by_session },
            "by session-hash: a node of the view runs an older version",
        ),
        (Syncs { version: Some(28), ..in_turn }, "by packet-sqf\""),
        (
            Syncs { routed: true, ..by_session },
            "by session-hash: behind routers nobody can count all packets",
        ),
    ] {
        let said = said(syncs, None);
        assert!(said.len() == 1 && said[0].contains(how), "{said:?}");
    }
}

/// A node is replaced by one of an older version. Once that is upgraded, some nodes would know the
/// Child SA by one scheme, and some by the other.
#[test]
fn child_sas_whose_lanes_take_turns_are_renewed_beside_an_older_node() {
    for (by, older, expected) in
        [(Spread::PacketRr, 27, "packet-hash"), (Spread::SessionSqf, 28, "session-hash")]
    {
        renewed_beside_an_older_node(by, older, expected);
    }
}

fn renewed_beside_an_older_node(by: Spread, older: u8, expected: &str) {
    let in_turn = Syncs { spread: Some(by), ..BY_PACKET };
    let mut world = World::established_with(3, 1, 1, in_turn);
    let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
    let other = (owner + 1) % 3;
    world.crash(other, false);
    world.view(&(0..3).filter(|node| *node != other).collect::<Vec<_>>());
    world.run(Duration::from_secs(2));
    assert_eq!(world.spi_of(0), spi);
    world.syncs.version = Some(older);
    world.restart(other);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(10));
    assert_ne!(world.spi_of(0), spi, "{:?}", world.logs());
    let why = format!("by {expected}: a node of the view runs an older version");
    let says = |line: &&String| line.contains(&why);
    assert!(world.nodes.iter().any(|node| node.logs.iter().any(|line| says(&line))), "{:?}", world.logs());
    world.assert_tunnel(0);
}

#[test]
fn nothing_is_said_of_tunnels_with_one_home() {
    assert_eq!(said(Syncs::default(), None), Vec::<String>::new());
}

#[test]
fn what_cannot_be_spread_stays_at_home_and_the_log_says_why() {
    let changed = |change: &dyn Fn(&mut Connection)| {
        let mut connection = of_cluster(0);
        change(&mut connection);
        Some(connection)
    };
    let outer = |connection: &mut Connection| {
        // Without encryption it is AH.
        let ah =
            EspProposal { integrity: vec![Mac::HmacSha256_128], esn: vec![true], ..EspProposal::default() };
        let child = Child { name: "outer".into(), proposals: vec![ah], ..connection.children[0].clone() };
        connection.children.push(child);
    };
    for (syncs, connection, why) in [
        (BY_PACKET, changed(&|connection| connection.children[0].replay_window = 0), "replay_window is 0"),
        (BY_PACKET, changed(&outer), "an AH child too"),
        (Syncs { version: Some(22), ..BY_PACKET }, None, "runs an older version"),
        (Syncs { version: Some(24), ..BEHIND_ROUTERS }, None, "runs an older version"),
    ] {
        let said = said(syncs, connection);
        assert!(said.len() == 1 && said[0].contains("is not spread"), "{why}: {said:?}");
        assert!(said[0].contains(why), "{said:?}");
    }
}

/// Behind routers nobody knows which numbers a dead node has accepted in its lanes. What the peer
/// sends lies below their floors until it has new keys, which only the owner of the SA's home can
/// ask for: another node than the one that takes the lanes.
#[test]
fn a_peer_gets_new_keys_when_lanes_are_taken_over_behind_routers() {
    for (syncs, is_renewed) in [(BEHIND_ROUTERS, true), (BY_PACKET, false)] {
        let mut world = World::established_with(4, 1, 1, syncs);
        let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
        let dies = (0..4).find(|node| *node != owner).unwrap();
        world.crash(dies, false);
        let left: Vec<usize> = (0..4).filter(|node| *node != dies).collect();
        world.view(&left);
        world.run(Duration::from_secs(30));
        assert_eq!(world.owner_of(0), Some(owner));
        assert_eq!(world.spi_of(0) != spi, is_renewed, "{:?}", world.logs());
        let says = |line: &&String| line.contains("above all that the peer has sent: rekeying");
        let said: Vec<bool> =
            world.nodes.iter().map(|node| node.logs.iter().any(|line| says(&line))).collect();
        let expected: Vec<bool> = (0..4).map(|node| is_renewed && node == owner).collect();
        assert_eq!(said, expected, "{:?}", world.logs());
        world.assert_tunnel(0);
    }
}

/// The owner of a home goes just after the peer has renewed the SA, so that nobody can rekey it
/// until the peer says something. The node comes back as the owner and has to know of the floors
/// that were set while it was away.
#[test]
fn a_node_that_was_away_learns_of_the_floors_that_are_in_doubt() {
    let mut world = World::established_with(4, 1, 1, BEHIND_ROUTERS);
    let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
    world.entry = owner;
    let (now, child) = (world.now, *world.peers[0].installed.keys().next().unwrap());
    assert!(world.peers[0].endpoint.rekey_child(now, child));
    let end = now.plus(Duration::from_secs(1));
    while world.peers[0].installed.len() < 2 {
        assert!(world.step(end));
    }
    world.crash(owner, false);
    world.entry = usize::MAX;
    world.view(&(0..4).filter(|node| *node != owner).collect::<Vec<_>>());
    world.run(Duration::from_secs(2));
    world.restart(owner);
    world.view(&[0, 1, 2, 3]);
    let end = world.now.plus(Duration::from_secs(10));
    while world.owner_of(0) != Some(owner) || world.speakers(0).len() > 1 {
        assert!(world.step(end), "{:?}", world.logs());
    }
    let of_peer: Vec<_> = world.peers[0].installed.values().map(|child| child.spi_out).collect();
    assert!(of_peer.len() == 2 && of_peer.contains(&spi), "the peer could not end the old one: {of_peer:?}");
    let said = world.nodes[owner].logs.len();
    world.entry = owner;
    world.run(Duration::from_secs(60));
    let rekeys = |line: &String| line.contains("above all that the peer has sent: rekeying");
    assert!(world.nodes[owner].logs[said..].iter().any(rekeys), "{:?}", world.logs());
    assert!(!of_peer.contains(&world.spi_of(0)), "the peer has new keys once more");
    world.assert_tunnel(0);
}

/// The peer renews the SA, and its Delete of the former one is lost. Few of its packets belong to
/// lanes of the node that speaks for the SA.
#[test]
fn a_packet_on_any_node_proves_that_the_peer_uses_a_new_child_sa() {
    for (version, switches) in [(None, true), (Some(25), false)] {
        let mut world = World::established_with(3, 1, 1, Syncs { version, ..BEHIND_ROUTERS });
        let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
        let (now, child) = (world.now, *world.peers[0].installed.keys().next().unwrap());
        assert!(world.peers[0].endpoint.rekey_child(now, child));
        let end = now.plus(Duration::from_secs(1));
        while world.peers[0].installed.len() < 2 {
            assert!(world.step(end));
        }
        world.entry = usize::MAX;
        world.run(Duration::from_millis(200));
        let new = world.peers[0].installed.values().map(|child| child.spi_out).find(|new| *new != spi);
        let of = |node: &Node, spi| {
            let found = node.installed.iter().find(|(_, (params, _))| Some(params.spi_in) == spi);
            found.map(|(child, _)| *child).expect("every node has it")
        };
        let send = |world: &World, spi| {
            let sends = |node: &Node| node.sending.contains(&of(node, spi));
            world.nodes.iter().map(sends).collect::<Vec<_>>()
        };
        assert_eq!(send(&world, new), [false; 3], "nothing has come yet");
        let (now, other) = (world.now, (owner + 1) % 3);
        let child = of(&world.nodes[other], new);
        world.nodes[other].member.as_mut().unwrap().traffic_seen(now, child);
        world.run(Duration::from_millis(200));
        assert_eq!(send(&world, new), [switches; 3], "{:?}", world.logs());
    }
}

/// A node that has joined gets numbers from a row on that all nodes reach together. With a lane it
/// would send at once, and the peer would drop what the others send below.
#[test]
fn a_node_that_has_joined_gets_no_lane_before_its_numbers_begin() {
    for (syncs, waits) in [(BY_PACKET, true), (Syncs::default(), false)] {
        let mut world = World::begun_with(3, 1, 1, Duration::from_millis(50), syncs);
        world.initiate(0);
        world.run(Duration::from_secs(1));
        world.crash(2, false);
        world.view(&[0, 1]);
        world.run(Duration::from_secs(2));
        world.restart(2);
        world.view(&[0, 1, 2]);
        let end = world.now.plus(Duration::from_secs(10));
        while !world.nodes[2].logs.iter().any(|line| line.contains("holds the whole state")) {
            assert!(world.step(end));
        }
        world.run(Duration::from_millis(90));
        assert_eq!(world.nodes[2].shards.0.is_empty() && world.nodes[2].held.is_empty(), waits);
        world.run(Duration::from_secs(5));
        world.assert_all_shards_once();
        assert!(!world.nodes[2].shards.0.is_empty());
    }
}

/// A node that was cut off comes back with its Child SAs. It may have used all of its numbers, and
/// so may the former self of a node that has lost its memory.
#[test]
fn a_node_that_comes_back_sends_with_stripes_of_after_only_and_keeps_what_it_has() {
    for crashes in [true, false] {
        let mut world = World::established_with(3, 1, 1, BY_PACKET);
        let away = (0..3).find(|node| Some(*node) != world.owner_of(0)).unwrap();
        let others: Vec<usize> = (0..3).filter(|node| *node != away).collect();
        let stripes = |world: &World, node: usize| {
            let (child, (_, starts)) = world.nodes[node].installed.iter().next().unwrap();
            (*child, starts.clone())
        };
        let (child, before) = stripes(&world, away);
        assert_eq!(before.len(), 1, "all three have a part of the first stripe");
        match crashes {
            true => world.crash(away, false),
            false => world.view(&[away]),
        }
        world.view(&others);
        world.run(Duration::from_secs(3));
        if crashes {
            world.restart(away);
        }
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(3));
        world.assert_tunnel(0);
        let (found, after) = stripes(&world, away);
        let new: Vec<u64> = after.difference(&before).copied().collect();
        assert_eq!(new.len(), 1, "{after:?}");
        assert!(new[0] > before.iter().copied().max().unwrap());
        match crashes {
            true => assert_eq!(after.len(), 1, "{after:?}"),
            false => assert_eq!(found, child, "it is not installed anew"),
        }
    }
}

/// A cluster whose nodes have tables of sessions, which the test fills as their filters would.
struct Counting {
    world: World,
    turns: Vec<Turns>,
}

impl Counting {
    fn new(nodes: usize) -> Self {
        let by_session = Syncs { spread: Some(Spread::SessionRr), ..BY_PACKET };
        let mut counting = Self {
            world: World::established_with(nodes, 1, 1, by_session),
            turns: vec![Turns::default(); nodes],
        };
        (0..nodes).for_each(|node| counting.forget(node));
        counting
    }

    /// The filter of a node begins anew.
    fn forget(&mut self, node: usize) {
        self.turns[node] = Turns::default();
        self.world.nodes[node].table = Table::empty();
    }

    fn table(&self, node: usize) -> Sessions<'_> {
        self.world.nodes[node].table.sessions()
    }

    /// New sessions begin, but some node misses their packets.
    fn begin(&mut self, sessions: std::ops::Range<u16>, missed: Option<usize>) {
        for session in sessions {
            let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
            packet.extend(session.to_be_bytes());
            packet.resize(40, 0);
            for node in (0..self.turns.len()).filter(|node| Some(*node) != missed) {
                let table = self.world.nodes[node].table.sessions();
                self.turns[node].count(SipKey::new([5; 16]), Spread::SessionRr, &packet, table);
            }
        }
    }

    /// How many sessions nodes have learned meanwhile, and put right.
    fn run(&mut self, by: Duration) -> [usize; 2] {
        self.world.run(by);
        let taken = self.world.nodes.iter_mut().map(|node| std::mem::take(&mut node.table.followed));
        taken.fold([0; 2], |[learned, right], followed| [learned + followed[0], right + followed[1]])
    }

    fn differ(&self, one: usize, other: usize) -> usize {
        (0..SLOTS).filter(|slot| self.table(one).get(*slot) != self.table(other).get(*slot)).count()
    }
}

/// What a node has missed it learns within two heartbeats from the owners of the slots' shards, and
/// all that there is when it comes back with nothing, whoever owns the shards by then.
#[test]
fn nodes_put_each_others_sessions_right() {
    let mut nodes = Counting::new(3);
    nodes.run(Duration::from_secs(1));
    nodes.begin(0..300, None);
    assert_eq!(nodes.run(Duration::from_millis(300)), [0; 2]);
    nodes.begin(300..500, Some(2));
    nodes.begin(500..700, None);
    assert!(nodes.differ(0, 2) > 190 && nodes.differ(0, 1) == 0);
    let [learned, put_right] = nodes.run(Duration::from_millis(160));
    assert!(learned > 100 && put_right > 10, "{learned} learned, {put_right} put right");
    // Of slots of its own the node says in turn that it knows no session there.
    nodes.run(Duration::from_secs(2));
    assert_eq!([nodes.differ(0, 1), nodes.differ(0, 2)], [0; 2]);

    nodes.world.crash(1, false);
    nodes.world.view(&[0, 2]);
    nodes.run(Duration::from_secs(2));
    nodes.begin(700..800, Some(1));
    nodes.run(Duration::from_secs(1));
    nodes.forget(1);
    nodes.world.restart(1);
    nodes.world.view(&[0, 1, 2]);
    let lanes = |nodes: &Counting| (0..SLOTS).map(|slot| nodes.table(0).get(slot)).collect::<Vec<_>>();
    let before = lanes(&nodes);
    let known = before.iter().flatten().count();
    // It notes no session before it holds the state, and then it has heard of all.
    let [learned, _] = nodes.run(Duration::from_millis(110));
    assert!(learned == known && known > 600, "{learned} of {known}");
    nodes.begin(0..800, None);
    nodes.run(Duration::from_secs(3));
    assert_eq!([nodes.differ(0, 1), nodes.differ(0, 2)], [0; 2]);
    let after = lanes(&nodes);
    let mut both = before.iter().zip(&after).filter(|(before, _)| before.is_some());
    assert!(both.all(|(before, after)| before == after), "no session changes its lane");
}
