//! Faults: their times, effects, and ends.

use super::slot::Pause;
use super::{Arrival, COMMAND_COUNT, What, World};
use crate::engine::{MILLI, Nanos, Votes};
use crate::faults::Kind;
use crate::host::Input;
use crate::network::{Link, Weather};
use crate::node::PIECES;
use crate::random::Random;
use crate::scenario::{Lasting, Scenario};
use crate::trace::Who;
use std::collections::BTreeMap;

/// What goes wrong.
pub(super) struct Fate {
    /// Faults may begin.
    pub(super) may_strike: bool,
    pub(super) counts: BTreeMap<Kind, u64>,
    /// Chance that decides on what operators do.
    whims: Random,
    /// Since when nodes need a sender ID; they will be restored to before that.
    renewals: BTreeMap<usize, Nanos>,
    /// The node whose process is stopped permanently.
    pub(super) stopped: Option<usize>,
    /// The port that has failed permanently.
    dead_port: Option<(Link, usize)>,
    /// The node that operators are about to remove.
    pub(super) leaving: Option<usize>,
    /// Both of two nodes may be quorate alone.
    pub(super) split: bool,
    /// The state was lost because all nodes that had it lost their memory: lost tunnels are not
    /// violations.
    pub(super) state_lost: u64,
}

impl Fate {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            may_strike: true,
            counts: BTreeMap::new(),
            whims: Random::new(scenario.seed ^ 0x5eed_0f0b_e4a7_0125),
            renewals: BTreeMap::new(),
            stopped: None,
            dead_port: None,
            leaving: None,
            split: scenario.votes == Votes::TwoNode,
            state_lost: 0,
        }
    }

    /// Both partitions have been told that they have the majority: the consequences are the
    /// engine's fault, except for invariants that must hold even then.
    pub(super) fn is_split_brain(&self) -> bool {
        self.split
    }

    /// True if a lost tunnel is a violation.
    pub(super) fn may_blame(&self) -> bool {
        self.state_lost == 0 && !self.is_split_brain()
    }
}

/// A fault begins; schedules the next one.
pub(super) fn fault(world: &mut World) {
    if !world.fate.may_strike {
        return;
    }
    let pace = world.scenario.fault_pace;
    let next = world.schedule.now + pace / 4 + world.random.below(pace * 3 / 2);
    world.schedule.at(next, What::Fault);
    let kind = Kind::random(&mut world.random, &world.scenario.only);
    let node = world.random.below(world.slots.len() as u64) as usize;
    if strike(world, kind, node) {
        *world.fate.counts.entry(kind).or_insert(0) += 1;
        world.note(Who::World, kind.name(), node as u64 + 1, 0);
    }
}

/// The duration of a fault: often too short to be detected, sometimes longer than timeouts.
fn span(world: &mut World) -> Nanos {
    let longest = *world.random.pick(&[60, 300, 1000, 3000]).unwrap_or(&300);
    world.random.between(5, longest) * MILLI
}

/// False if the fault is not possible now.
fn strike(world: &mut World, kind: Kind, node: usize) -> bool {
    let span = span(world);
    let end = world.schedule.now + span;
    match kind {
        Kind::Crash => return strike_crash(world, node, end),
        Kind::DoubleCrash => return strike_two(world, node, end),
        Kind::Rollback => return strike_rollback(world, node, end),
        Kind::Renewal => return strike_renewal(world, node),
        Kind::PauseHost | Kind::PauseProcess => {
            if !world.slots[node].runs() {
                return false;
            }
            world.pause(node, if kind == Kind::PauseHost { Pause::Host } else { Pause::Process });
        }
        Kind::EngineCrash => world.engines.stop(world.schedule.now, node, world.slots[node].host.is_some()),
        Kind::EngineSlow => world.engines.slow(node, world.random.between(1, 80) * MILLI),
        Kind::ViewStorm => {
            let count = world.random.between(2, 12) as u32;
            world.schedule.at(world.schedule.now, What::Storm(count));
            return true;
        }
        Kind::Weather => {
            world.network.weather = Weather::random(&mut world.random);
            return true;
        }
        Kind::Port => strike_port(world, node),
        Kind::Drain => ask_to_drain(world, node, true),
        _ => cut(world, kind, node),
    }
    world.engines.changed(world.schedule.now);
    world.schedule.at(end, What::End(kind, node));
    true
}

/// Memory may be lost as long as the state survives: less than half of the nodes that have it
/// lose it at once.
fn may_forget(world: &World, node: usize) -> bool {
    let keeps =
        |index: usize| index != node && !world.slots[index].empty && world.slots[index].host.is_some();
    let there = || (0..world.slots.len()).filter(|index| !world.slots[*index].away);
    let empty = there().filter(|index| world.slots[*index].empty).count();
    if world.slots.len() == 1 {
        return true;
    }
    let limit = (there().count().saturating_sub(1) / 2).max(1);
    let lost = empty + usize::from(!world.slots[node].empty);
    (0..world.slots.len()).any(keeps) && lost <= limit
}

fn strike_crash(world: &mut World, node: usize, end: Nanos) -> bool {
    if world.slots[node].host.is_none() || !may_forget(world, node) {
        return false;
    }
    world.crash(node);
    world.schedule.at(end, What::End(Kind::Crash, node));
    true
}

fn strike_two(world: &mut World, node: usize, end: Nanos) -> bool {
    let other = (node + 1) % world.slots.len();
    let first = strike_crash(world, node, end);
    let late = world.schedule.now + world.random.below(2000) * MILLI;
    let second = other != node && strike_crash(world, other, end.max(late));
    first || second
}

fn strike_rollback(world: &mut World, node: usize, end: Nanos) -> bool {
    let running = world.slots[node].runs();
    if !world.scenario.rollbacks || !running || !may_forget(world, node) {
        return false;
    }
    world.pause(node, Pause::Host);
    world.slots[node].empty = true;
    world.schedule.at(end, What::End(Kind::Rollback, node));
    true
}

/// No other node hears of the sender ID that it is about to request. It could use that ID only
/// if its own message were enough; and after the rollback nothing would remember it.
fn strike_renewal(world: &mut World, node: usize) -> bool {
    if !world.scenario.rollbacks || !world.slots[node].runs() || !may_forget(world, node) {
        return false;
    }
    cut(world, Kind::Renewal, node);
    world.engines.changed(world.schedule.now);
    world.fate.renewals.insert(node, world.schedule.now);
    world.schedule.at(world.schedule.now + 1, What::Node(node, Arrival::Input(Input::IvLow)));
    let end = world.schedule.now + world.random.between(20, 150) * MILLI;
    world.schedule.at(end, What::End(Kind::Renewal, node));
    true
}

fn end_renewal(world: &mut World, node: usize) {
    let to = world.fate.renewals.remove(&node).unwrap_or_default();
    if world.slots[node].runs() && world.slots[node].birth_at <= to && may_forget(world, node) {
        world.roll_back(node, to, true);
    }
    world.network.heal();
    world.engines.changed(world.schedule.now);
    tell_links(world);
}

fn strike_port(world: &mut World, node: usize) {
    let link = *world.random.pick(&Link::ALL).unwrap_or(&Link::Outer);
    world.network.set_port(link, node, false);
    // Without carrier the node notices it; behind a switch that drops everything it does not.
    if world.random.permille(600) {
        world.arrive(node, Arrival::Input(Input::Link(link.number(), false)));
    }
}

/// Gives a command about the configuration to a random node, as long as there are faults.
pub(super) fn configure(world: &mut World, left: u64) {
    if left < COMMAND_COUNT {
        let node = world.fate.whims.below(world.slots.len() as u64) as usize;
        let value = if world.fate.whims.permille(250) { None } else { Some(left) };
        let piece = world.fate.whims.below(PIECES);
        world.arrive(node, Arrival::Input(Input::Configure(piece, value)));
    }
    if left > 0 {
        let time = world.scenario.calm + world.scenario.faults;
        let at = world.schedule.now + world.fate.whims.below(2 * time / COMMAND_COUNT);
        world.schedule.at(at, What::Configure(left - 1));
    }
}

/// Gives the command to a random node.
fn ask_to_drain(world: &mut World, node: usize, drained: bool) {
    let asked = world.random.below(world.slots.len() as u64) as usize;
    world.arrive(asked, Arrival::Input(Input::Drain(node, drained)));
}

fn cut(world: &mut World, kind: Kind, node: usize) {
    let others: Vec<usize> = (0..world.slots.len()).filter(|other| *other != node).collect();
    let links: &[Link] = match kind {
        Kind::ClusterLink | Kind::OneWayCluster => &[Link::Cluster],
        Kind::EngineOnly | Kind::Renewal => &[],
        _ => &Link::ALL,
    };
    // The nodes on the side of this one.
    let mut side = vec![node];
    if matches!(kind, Kind::Partition | Kind::ClusterLink | Kind::EngineOnly) {
        side.extend(others.iter().copied().filter(|_| world.random.permille(350)));
    }
    let one_way = matches!(kind, Kind::OneWay | Kind::OneWayCluster);
    let inwards = world.random.permille(500);
    for (a, b) in side.iter().flat_map(|a| others.iter().map(|b| (*a, *b))) {
        if side.contains(&b) {
            continue;
        }
        let (first, second) = if inwards { (b, a) } else { (a, b) };
        links.iter().for_each(|link| world.network.cut(*link, first, second));
        if !one_way {
            links.iter().for_each(|link| world.network.cut(*link, second, first));
        }
        if matches!(kind, Kind::EngineOnly | Kind::Renewal) {
            world.network.cut_engine(first, second);
            world.network.cut_engine(second, first);
        }
    }
    if kind == Kind::Isolate {
        world.network.set_port(Link::Outer, node, false);
        world.network.set_port(Link::Inner, node, false);
    }
}

/// A fault ends.
pub(super) fn end(world: &mut World, kind: Kind, node: usize) {
    world.note(Who::World, "over", kind as u64, node as u64 + 1);
    match kind {
        Kind::Crash | Kind::DoubleCrash => {
            if world.slots[node].host.is_none() && !world.slots[node].away {
                world.boot(node);
            }
        }
        Kind::Rollback => {
            if world.slots[node].pause == Some(Pause::Host) {
                let since = world.slots[node].birth_at;
                let back = world.random.below((world.schedule.now - since).clamp(1, 4000 * MILLI));
                let with_disk = world.random.permille(500);
                world.roll_back(node, world.schedule.now - back, with_disk);
            }
        }
        Kind::Renewal => end_renewal(world, node),
        Kind::PauseHost | Kind::PauseProcess => {
            if world.fate.stopped != Some(node) {
                world.resume(node);
            }
        }
        Kind::EngineCrash => {
            if world.slots[node].host.is_some() {
                world.engines.start(world.schedule.now, node);
            }
        }
        Kind::EngineSlow => world.engines.slow(node, 0),
        Kind::Drain => ask_to_drain(world, node, false),
        _ => {
            world.network.heal();
            world.engines.changed(world.schedule.now);
            tell_links(world);
        }
    }
}

/// All ports have carrier again.
fn tell_links(world: &mut World) {
    for node in 0..world.slots.len() {
        for link in Link::ALL {
            world.arrive(node, Arrival::Input(Input::Link(link.number(), true)));
        }
    }
    set_ports(world);
}

pub(super) fn storm(world: &mut World, left: u32) {
    if !world.fate.may_strike {
        return;
    }
    world.engines.storm(world.schedule.now);
    if left > 0 {
        let next = world.schedule.now + world.random.below(150) * MILLI;
        world.schedule.at(next, What::Storm(left - 1));
    }
}

/// Ends all faults.
pub(super) fn heal(world: &mut World) {
    world.fate.may_strike = false;
    world.note(Who::World, "heals", 0, 0);
    world.network.heal();
    world.network.weather = Weather::FAIR;
    for node in 0..world.slots.len() {
        world.engines.slow(node, 0);
        if world.slots[node].away {
            continue;
        }
        if world.slots[node].host.is_none() {
            world.boot(node);
        }
        // A node with a pending rollback recovers by it.
        if !world.slots[node].empty || world.slots[node].pause != Some(Pause::Host) {
            world.resume(node);
        }
        world.engines.start(world.schedule.now, node);
    }
    world.engines.changed(world.schedule.now);
    tell_links(world);
    begin_lasting(world);
}

/// Begins the permanent fault.
fn begin_lasting(world: &mut World) {
    let Some(node) = (0..world.slots.len()).find(|node| may_forget(world, *node)) else { return };
    match world.scenario.lasting {
        Lasting::None => {}
        Lasting::Stopped => {
            world.fate.stopped = Some(node);
            world.pause(node, Pause::Process);
        }
        Lasting::Carrier | Lasting::Silent => {
            let link = if world.random.permille(500) { Link::Outer } else { Link::Inner };
            world.fate.dead_port = Some((link, node));
            set_ports(world);
        }
    }
}

/// Sets the permanently failed port among the others.
fn set_ports(world: &mut World) {
    let Some((link, node)) = world.fate.dead_port else { return };
    world.network.set_port(link, node, false);
    if world.scenario.lasting == Lasting::Carrier {
        world.arrive(node, Arrival::Input(Input::Link(link.number(), false)));
    }
}

/// Excuses violations that are inevitable once two partitions had the majority, or once no node
/// had the state any more.
pub(super) fn excuse(world: &mut World) {
    if !world.fate.may_blame() {
        world.checks.excuse();
    }
}
