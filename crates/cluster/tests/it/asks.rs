//! The owner executes the request of an operator at any node, and that node learns the result.

use crate::config::{of_peer, peer_addr};
use crate::world::{World, id};
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_cluster::member::{Ask, AskError, InitiationOutcome, Member, MemberOutput, Sa};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Path;

/// A Child SA that has been renewed takes packets in for a while.
const RETIRED: Duration = Duration::from_secs(10);

/// An operator asks that node.
fn ask(world: &mut World, node: usize, job: u64, ask: Ask) {
    let now = world.now;
    world.nodes[node].member.as_mut().unwrap().ask(now, job, ask).unwrap();
    world.run(Duration::from_secs(2));
}

fn initiate(peer: usize, child: &str) -> Ask {
    Ask::Initiate { connection: format!("peer{peer}"), child: child.into() }
}

/// Results that the node has received for its requests since the last call.
fn heard(world: &mut World, node: usize) -> Vec<(u64, InitiationOutcome)> {
    std::mem::take(&mut world.nodes[node].initiated)
}

/// The IKE SA of a peer, by the SPI that the cluster chose, and how many the peer has.
fn ike_of(world: &World, peer: usize) -> (IkeSpi, usize) {
    let sas: Vec<_> = world.peers[peer].endpoint.sas().collect();
    let sa = sas.first().expect("an IKE SA");
    (if sa.initiator { sa.spi_r } else { sa.spi_i }, sas.len())
}

fn children_of(world: &World, peer: usize) -> usize {
    world.peers[peer].installed.len()
}

#[test]
fn a_child_that_any_node_is_asked_for_comes_up_once() {
    let mut world = World::begun(3, 3, 820, Duration::from_millis(50));
    for peer in 0..3 {
        for node in 0..3 {
            ask(&mut world, node, 100 + node as u64, initiate(peer, "net"));
            world.assert_tunnel(peer);
            assert_eq!(ike_of(&world, peer).1, 1);
            assert_eq!(heard(&mut world, node), [(100 + node as u64, InitiationOutcome::Up)]);
        }
        assert_eq!(world.speakers(peer).len(), 1);
    }
    let lines: usize = world.nodes.iter().map(|node| node.lines.len()).sum();
    assert!(lines > 0, "what the owner logs meanwhile is shown where it was asked for");
}

/// The owner of the IKE SA initiates, not the home of the connection, which may be another node.
#[test]
fn a_child_comes_up_on_the_ike_sa_that_is_there() {
    let mut world = World::established(3, 6, 821);
    for peer in 0..6 {
        let (before, spi) = (ike_of(&world, peer), world.spi_of(peer));
        ask(&mut world, peer % 3, 7, initiate(peer, "net"));
        assert_eq!((ike_of(&world, peer), world.spi_of(peer)), (before, spi), "it is up already");
        assert_eq!(heard(&mut world, peer % 3), [(7, InitiationOutcome::Up)]);
        ask(&mut world, peer % 3, 8, Ask::Terminate { sas: vec![Sa::Child(spi)], force: false });
        assert_eq!((ike_of(&world, peer), children_of(&world, peer)), (before, 0));
        ask(&mut world, peer % 3, 9, initiate(peer, "net"));
        assert_eq!(ike_of(&world, peer), before);
        assert_eq!(heard(&mut world, peer % 3), [(9, InitiationOutcome::Up)]);
        world.assert_tunnel(peer);
    }
}

#[test]
fn an_ike_sa_alone_comes_up_too() {
    let mut world = World::begun(3, 1, 822, Duration::from_millis(50));
    for node in 0..3 {
        ask(&mut world, node, 5, initiate(0, ""));
        assert_eq!((ike_of(&world, 0).1, children_of(&world, 0)), (1, 0));
        assert_eq!(heard(&mut world, node), [(5, InitiationOutcome::Up)], "node {node}");
    }
    ask(&mut world, 0, 6, initiate(0, "net"));
    world.assert_tunnel(0);
    assert_eq!(ike_of(&world, 0).1, 1);
}

#[test]
fn an_impossible_initiation_is_reported() {
    let mut world = World::begun(3, 1, 823, Duration::from_millis(50));
    for (node, wish) in [
        Ask::Initiate { connection: "nowhere".into(), child: "net".into() },
        Ask::Initiate { connection: "nowhere".into(), child: String::new() },
        initiate(0, "nothing"),
    ]
    .into_iter()
    .enumerate()
    {
        ask(&mut world, node, 3, wish);
        let heard = heard(&mut world, node);
        assert!(matches!(heard[..], [(3, InitiationOutcome::Failed { .. })]), "{heard:?}");
    }
    // The peer does not answer, and the operator gives up.
    world.deaf = true;
    ask(&mut world, 1, 4, initiate(0, ""));
    assert_eq!(heard(&mut world, 1), []);
    let owner = world.owner_of(0).unwrap();
    let now = world.now;
    let all = testudo_ike::endpoint::Target::All;
    world.nodes[owner].member.as_mut().unwrap().endpoint_mut().terminate(now, &all, true).unwrap();
    world.run(Duration::from_secs(2));
    let heard = heard(&mut world, 1);
    assert!(matches!(heard[..], [(4, InitiationOutcome::Failed { .. })]), "{heard:?}");
}

/// Each owner takes its own of them down or renews it, and leaves all others alone.
#[test]
fn sas_are_ended_and_renewed_wherever_they_are() {
    let mut world = World::established(3, 6, 824);
    let owners: BTreeSet<_> = (0..6).map(|peer| world.owner_of(peer)).collect();
    assert!(owners.len() > 1, "one node has them all");
    let named = |world: &World| -> Vec<_> {
        (0..6).map(|peer| (ike_of(world, peer).0, world.spi_of(peer))).collect()
    };

    let before = named(&world);
    let sas = [0, 1, 2].map(|peer| Sa::Child(before[peer].1));
    ask(&mut world, 0, 1, Ask::Rekey { sas: sas.into(), reauth: false });
    world.run(RETIRED);
    let after = named(&world);
    for peer in 0..6 {
        world.assert_tunnel(peer);
        assert_eq!(after[peer].0, before[peer].0, "peer {peer}");
        assert_eq!(after[peer].1 != before[peer].1, peer < 3, "peer {peer}");
    }

    let before = after;
    let sas = [3, 4, 5].map(|peer| Sa::Ike(before[peer].0));
    ask(&mut world, 1, 2, Ask::Rekey { sas: sas.into(), reauth: false });
    world.run(RETIRED);
    let after = named(&world);
    for peer in 0..6 {
        world.assert_tunnel(peer);
        assert_eq!(after[peer].0 != before[peer].0, peer >= 3, "peer {peer}");
        assert_eq!(after[peer].1, before[peer].1, "peer {peer}");
    }

    let sas = vec![Sa::Child(after[0].1), Sa::Ike(after[5].0)];
    ask(&mut world, 2, 3, Ask::Terminate { sas, force: false });
    let left: Vec<_> =
        world.peers.iter().map(|peer| (peer.endpoint.sas().count(), peer.installed.len())).collect();
    assert_eq!(left, [(1, 0), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0)]);
}

/// The node that is to do it has just been given the share, and may not speak for it yet.
#[test]
fn the_next_owner_does_it_as_soon_as_it_can_speak() {
    let mut world = World::established(3, 6, 825);
    let spi = world.spi_of(0);
    let owner = world.owner_of(0).unwrap();
    let left: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
    world.crash(owner, false);
    world.view(&left);
    world.run(Duration::from_millis(5));
    assert_eq!(world.owner_of(0), None, "nobody has taken it yet");
    ask(&mut world, left[0], 1, Ask::Rekey { sas: vec![Sa::Child(spi)], reauth: false });
    ask(&mut world, left[1], 2, initiate(0, "net"));
    world.run(RETIRED);
    world.assert_tunnel(0);
    assert_ne!(world.spi_of(0), spi);
    assert_eq!(heard(&mut world, left[1]), [(2, InitiationOutcome::Up)]);
}

#[test]
fn without_a_quorum_nobody_can_be_asked() {
    let mut world = World::established(3, 1, 826);
    world.lose_engine(1);
    let now = world.now;
    let refused = world.nodes[1].member.as_mut().unwrap().ask(now, 1, initiate(0, "net"));
    assert_eq!(refused, Err(AskError::NoView));
}

/// The peer is behind a NAT that gives it another port. The owner hears of it by ESP, and the
/// others by the owner.
#[test]
fn all_nodes_follow_a_peer_that_moves() {
    let mut world = World::begun(3, 1, 827, Duration::from_millis(50));
    let mut behind_nat = of_peer(0);
    behind_nat.encap = true;
    let now = world.now;
    world.peers[0].endpoint.load_connection(now, behind_nat).unwrap();
    world.initiate(0);
    world.run(Duration::from_secs(1));
    world.assert_tunnel(0);
    let owner = world.owner_of(0).unwrap();
    let to = std::net::SocketAddr::new(peer_addr(0), 50_123);
    let now = world.now;
    let endpoint = world.nodes[owner].member.as_mut().unwrap().endpoint_mut();
    let child = endpoint.sas().next().unwrap().children[0].id;
    endpoint.esp_source(now, child, to);
    world.run(Duration::from_millis(100));
    for (node, state) in world.nodes.iter().enumerate() {
        let paths: Vec<&Path> = state.moved.iter().collect();
        assert_eq!(paths.iter().map(|path| path.remote).collect::<Vec<_>>(), [to], "node {node}");
    }
    // So does the node that takes over.
    world.crash(owner, false);
    world.view(&(0..3).filter(|node| *node != owner).collect::<Vec<_>>());
    world.run(Duration::from_secs(2));
    let taker = world.owner_of(0).unwrap();
    let sas: Vec<_> = world.nodes[taker].member.as_ref().unwrap().endpoint().sas().collect();
    assert_eq!(sas[0].remote, to);
}

/// The engine takes nothing for a while. What it has refused is offered again in its order.
#[test]
fn messages_refused_by_the_engine_keep_their_order() {
    let mut world = World::established(3, 1, 828);
    let now = world.now;
    let member = world.nodes[0].member.as_mut().unwrap();
    for job in 0..3 {
        let nothing = Ask::Rekey { sas: Vec::new(), reauth: false };
        member.ask(now, job, nothing).unwrap();
    }
    let multicasts = |member: &mut Member, most: usize| -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while found.len() < most
            && let Some(output) = member.poll_output()
        {
            if let MemberOutput::Multicast(bytes) = output {
                found.push(bytes);
            }
        }
        found
    };
    let first = multicasts(member, 1).remove(0);
    member.multicast_refused(now, first.clone());
    member.pump(now);
    assert_eq!(multicasts(member, 9), Vec::<Vec<u8>>::new(), "it is not offered again at once");
    member.multicast_ready();
    member.pump(now);
    let again = multicasts(member, 9);
    assert_eq!((again.len(), &again[0]), (3, &first), "what comes behind it stays behind it");
}

#[test]
fn the_host_tells_its_load_and_wants_another_sender_id() {
    let mut world = World::begun(3, 1, 829, Duration::from_millis(50));
    let now = world.now;
    let sender = |world: &World| world.nodes[0].sender.unwrap().0;
    let before = sender(&world);
    let member = world.nodes[0].member.as_mut().unwrap();
    member.set_load(321);
    member.renew_sender(now);
    world.run(Duration::from_secs(1));
    assert!(sender(&world) > before, "{before}");
    let status = world.nodes[1].member.as_ref().unwrap().group_status();
    let load = status.peers.iter().find(|peer| peer.node == id(0)).map(|peer| peer.load);
    assert_eq!(load, Some(321));
}
