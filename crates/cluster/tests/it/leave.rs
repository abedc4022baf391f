//! A node that is told to end gives its shards away first, whatever begins meanwhile.

use crate::world::World;
use std::time::Duration;
use testudo_cluster::group::Phase;

const STEP: Duration = Duration::from_micros(200);
/// How long the host of a node waits at most.
const PATIENCE: Duration = Duration::from_secs(20);

fn leave(world: &mut World, node: usize) {
    let now = world.now;
    world.nodes[node].member.as_mut().unwrap().leave(now).unwrap();
    world.settle();
}

/// True if its host may end it.
fn may_end(world: &mut World, node: usize) -> bool {
    let now = world.now;
    world.nodes[node].member.as_mut().unwrap().is_empty_handed(now)
}

/// Waits until it may end, and ends it: nothing is left to it by then.
fn await_end(world: &mut World, node: usize) {
    await_may_end(world, node);
    end(world, node);
}

fn await_may_end(world: &mut World, node: usize) {
    let limit = world.now.plus(PATIENCE);
    while !may_end(world, node) {
        world.run(STEP);
        assert!(world.now < limit, "node {node} waits for nothing");
    }
}

fn end(world: &mut World, node: usize) {
    assert_eq!(world.nodes[node].shards, Default::default(), "node {node} ends with shards");
    world.crash(node, false);
}

fn await_phase(world: &mut World, node: usize, phase: Phase) {
    while world.nodes[node].member.as_ref().unwrap().status().group.phase != phase {
        assert!(world.step(world.now.plus(Duration::from_secs(1))));
    }
}

/// The remaining nodes carry everything.
fn go_on(world: &mut World, left: &[usize]) {
    world.view(left);
    world.run(Duration::from_secs(2));
    world.assert_all_shards_once();
    (0..8).for_each(|peer| world.assert_tunnel(peer));
}

/// The view in which another node is gone, because it leaves too or has died, begins while one
/// gives its shards away.
#[test]
fn a_view_that_begins_meanwhile_holds_nobody_up_and_sends_nobody_away() {
    for delay in (0..4000).step_by(200) {
        for dies in [false, true] {
            let mut world = World::established(5, 8, 300);
            if !dies {
                leave(&mut world, 0);
                await_may_end(&mut world, 0);
            }
            leave(&mut world, 1);
            world.run(Duration::from_micros(delay));
            match dies {
                true => world.crash(0, false),
                false => end(&mut world, 0),
            }
            world.view(&[1, 2, 3, 4]);
            await_end(&mut world, 1);
            go_on(&mut world, &[2, 3, 4]);
        }
    }
}

/// Told to end while a view begins, it gives away in that view.
#[test]
fn a_node_told_to_leave_during_an_exchange_leaves_in_the_new_view() {
    let mut world = World::established(5, 8, 301);
    world.crash(4, false);
    world.view(&[0, 1, 2, 3]);
    await_phase(&mut world, 0, Phase::Exchange);
    leave(&mut world, 0);
    assert!(!may_end(&mut world, 0));
    await_end(&mut world, 0);
    go_on(&mut world, &[1, 2, 3]);
}

/// A node that is being synchronized owns nothing, and need not wait until it does.
#[test]
fn a_node_that_is_not_synchronized_leaves_at_once() {
    for begun in [false, true] {
        let mut world = World::established(5, 8, 303);
        world.crash(0, false);
        world.view(&[1, 2, 3, 4]);
        world.run(Duration::from_secs(1));
        world.restart(0);
        world.view(&[0, 1, 2, 3, 4]);
        await_phase(&mut world, 0, if begun { Phase::Running } else { Phase::Exchange });
        leave(&mut world, 0);
        assert_eq!(may_end(&mut world, 0), begun);
        let before = world.now;
        await_end(&mut world, 0);
        assert!(world.now.since(before) < Duration::from_millis(50));
        go_on(&mut world, &[1, 2, 3, 4]);
    }
}

/// Without a quorum no node takes over anything: it does not wait.
#[test]
fn a_node_without_quorum_leaves_at_once() {
    let mut world = World::established(3, 3, 302);
    world.view(&[0]);
    world.run(Duration::from_millis(50));
    let now = world.now;
    let member = world.nodes[0].member.as_mut().unwrap();
    assert!(member.leave(now).is_err() && member.is_empty_handed(now));
}
