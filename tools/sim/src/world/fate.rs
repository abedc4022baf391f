//! Faults: when they come, what they do, and how they end.

use super::slot::Pause;
use super::{Arrival, COMMAND_COUNT, What, World};
use crate::engine::{MILLI, Nanos};
use crate::faults::Kind;
use crate::host::Input;
use crate::network::{Link, Weather};
use crate::node::PIECES;
use crate::scenario::Lasting;
use crate::trace::Who;

impl World {
    /// A fault begins, and the next one is arranged.
    pub(super) fn fault(&mut self) {
        if !self.faulty {
            return;
        }
        let pace = self.scenario.fault_pace;
        let next = self.now + pace / 4 + self.random.below(pace * 3 / 2);
        self.at(next, What::Fault);
        let kind = Kind::random(&mut self.random, &self.scenario.only);
        let node = self.random.below(self.slots.len() as u64) as usize;
        if self.strike(kind, node) {
            *self.faults.entry(kind).or_insert(0) += 1;
            self.note(Who::World, kind.name(), node as u64 + 1, 0);
        }
    }

    /// How long a fault lasts: often shorter than anybody could notice, sometimes longer than
    /// patience.
    fn span(&mut self) -> Nanos {
        let longest = *self.random.pick(&[60, 300, 1000, 3000]).unwrap_or(&300);
        self.random.between(5, longest) * MILLI
    }

    /// False if it cannot be.
    fn strike(&mut self, kind: Kind, node: usize) -> bool {
        let span = self.span();
        let end = self.now + span;
        match kind {
            Kind::Crash => return self.strike_crash(node, end),
            Kind::DoubleCrash => return self.strike_two(node, end),
            Kind::Rollback => return self.strike_rollback(node, end),
            Kind::Renewal => return self.strike_renewal(node),
            Kind::PauseHost | Kind::PauseProcess => {
                if !self.slots[node].runs() {
                    return false;
                }
                self.pause(node, if kind == Kind::PauseHost { Pause::Host } else { Pause::Process });
            }
            Kind::EngineCrash => self.engines.stop(self.now, node, self.slots[node].host.is_some()),
            Kind::EngineSlow => self.engines.slow(node, self.random.between(1, 80) * MILLI),
            Kind::ViewStorm => {
                let count = self.random.between(2, 12) as u32;
                self.at(self.now, What::Storm(count));
                return true;
            }
            Kind::Weather => {
                self.network.weather = Weather::random(&mut self.random);
                return true;
            }
            Kind::Port => self.strike_port(node, end),
            Kind::Drain => self.ask_to_drain(node, true),
            _ => self.cut(kind, node),
        }
        self.engines.changed(self.now);
        self.at(end, What::End(kind, node));
        true
    }

    /// Memory may be lost as long as somebody keeps the state who counts: less than half lose it at
    /// once.
    fn may_forget(&self, node: usize) -> bool {
        let keeps =
            |index: usize| index != node && !self.slots[index].empty && self.slots[index].host.is_some();
        let empty = (0..self.slots.len()).filter(|index| self.slots[*index].empty).count();
        if self.slots.len() == 1 {
            return true;
        }
        let limit = ((self.slots.len() - 1) / 2).max(1);
        let lost = empty + usize::from(!self.slots[node].empty);
        (0..self.slots.len()).any(keeps) && lost <= limit
    }

    fn strike_crash(&mut self, node: usize, end: Nanos) -> bool {
        if self.slots[node].host.is_none() || !self.may_forget(node) {
            return false;
        }
        self.crash(node);
        self.at(end, What::End(Kind::Crash, node));
        true
    }

    fn strike_two(&mut self, node: usize, end: Nanos) -> bool {
        let other = (node + 1) % self.slots.len();
        let first = self.strike_crash(node, end);
        let late = self.now + self.random.below(2000) * MILLI;
        let second = other != node && self.strike_crash(other, end.max(late));
        first || second
    }

    fn strike_rollback(&mut self, node: usize, end: Nanos) -> bool {
        let running = self.slots[node].runs();
        if !self.scenario.rollbacks || !running || !self.may_forget(node) {
            return false;
        }
        self.pause(node, Pause::Host);
        self.slots[node].empty = true;
        self.at(end, What::End(Kind::Rollback, node));
        true
    }

    /// Nobody else hears of the sender ID that it is about to ask for. It could use that only if
    /// its own word were enough; and once set back, nothing would remember that.
    fn strike_renewal(&mut self, node: usize) -> bool {
        if !self.scenario.rollbacks || !self.slots[node].runs() || !self.may_forget(node) {
            return false;
        }
        self.cut(Kind::Renewal, node);
        self.engines.changed(self.now);
        self.renewals.insert(node, self.now);
        self.at(self.now + 1, What::Node(node, Arrival::Input(Input::IvLow)));
        let end = self.now + self.random.between(20, 150) * MILLI;
        self.at(end, What::End(Kind::Renewal, node));
        true
    }

    fn end_renewal(&mut self, node: usize) {
        let to = self.renewals.remove(&node).unwrap_or_default();
        if self.slots[node].runs() && self.slots[node].birth_at <= to && self.may_forget(node) {
            self.roll_back(node, to, true);
        }
        self.network.heal();
        self.engines.changed(self.now);
        self.tell_links();
    }

    fn strike_port(&mut self, node: usize, _end: Nanos) {
        let link = *self.random.pick(&Link::ALL).unwrap_or(&Link::Outer);
        self.network.set_port(link, node, false);
        // Without carrier the node sees it; a switch that swallows everything it does not.
        if self.random.permille(600) {
            self.arrive(node, Arrival::Input(Input::Link(link.number(), false)));
        }
    }

    /// Any node may be told, at any time as long as there are faults.
    pub(super) fn configure(&mut self, left: u64) {
        if left < COMMAND_COUNT {
            let node = self.whims.below(self.slots.len() as u64) as usize;
            let value = if self.whims.permille(250) { None } else { Some(left) };
            let piece = self.whims.below(PIECES);
            self.arrive(node, Arrival::Input(Input::Configure(piece, value)));
        }
        if left > 0 {
            let time = self.scenario.calm + self.scenario.faults;
            let at = self.now + self.whims.below(2 * time / COMMAND_COUNT);
            self.at(at, What::Configure(left - 1));
        }
    }

    /// Any node may be told.
    fn ask_to_drain(&mut self, node: usize, drained: bool) {
        let asked = self.random.below(self.slots.len() as u64) as usize;
        self.arrive(asked, Arrival::Input(Input::Drain(node, drained)));
    }

    fn cut(&mut self, kind: Kind, node: usize) {
        let others: Vec<usize> = (0..self.slots.len()).filter(|other| *other != node).collect();
        let links: &[Link] = match kind {
            Kind::ClusterLink | Kind::OneWayCluster => &[Link::Cluster],
            Kind::EngineOnly | Kind::Renewal => &[],
            _ => &Link::ALL,
        };
        // Who stays on the side of the node.
        let mut side = vec![node];
        if matches!(kind, Kind::Partition | Kind::ClusterLink | Kind::EngineOnly) {
            side.extend(others.iter().copied().filter(|_| self.random.permille(350)));
        }
        let one_way = matches!(kind, Kind::OneWay | Kind::OneWayCluster);
        let inwards = self.random.permille(500);
        for (a, b) in side.iter().flat_map(|a| others.iter().map(|b| (*a, *b))) {
            if side.contains(&b) {
                continue;
            }
            let (first, second) = if inwards { (b, a) } else { (a, b) };
            links.iter().for_each(|link| self.network.cut(*link, first, second));
            if !one_way {
                links.iter().for_each(|link| self.network.cut(*link, second, first));
            }
            if matches!(kind, Kind::EngineOnly | Kind::Renewal) {
                self.network.cut_engine(first, second);
                self.network.cut_engine(second, first);
            }
        }
        if kind == Kind::Isolate {
            self.network.set_port(Link::Outer, node, false);
            self.network.set_port(Link::Inner, node, false);
        }
    }

    /// A fault ends.
    pub(super) fn end(&mut self, kind: Kind, node: usize) {
        self.note(Who::World, "over", kind as u64, node as u64 + 1);
        match kind {
            Kind::Crash | Kind::DoubleCrash => {
                if self.slots[node].host.is_none() {
                    self.boot(node);
                }
            }
            Kind::Rollback => {
                if self.slots[node].pause == Some(Pause::Host) {
                    let since = self.slots[node].birth_at;
                    let back = self.random.below((self.now - since).clamp(1, 4000 * MILLI));
                    let with_disk = self.random.permille(500);
                    self.roll_back(node, self.now - back, with_disk);
                }
            }
            Kind::Renewal => self.end_renewal(node),
            Kind::PauseHost | Kind::PauseProcess => {
                if self.stopped != Some(node) {
                    self.resume(node);
                }
            }
            Kind::EngineCrash => {
                if self.slots[node].host.is_some() {
                    self.engines.start(self.now, node);
                }
            }
            Kind::EngineSlow => self.engines.slow(node, 0),
            Kind::Drain => self.ask_to_drain(node, false),
            _ => {
                self.network.heal();
                self.engines.changed(self.now);
                self.tell_links();
            }
        }
    }

    /// All ports have carrier again.
    fn tell_links(&mut self) {
        for node in 0..self.slots.len() {
            for link in Link::ALL {
                self.arrive(node, Arrival::Input(Input::Link(link.number(), true)));
            }
        }
        self.set_ports();
    }

    pub(super) fn storm(&mut self, left: u32) {
        if !self.faulty {
            return;
        }
        self.engines.storm(self.now);
        if left > 0 {
            let next = self.now + self.random.below(150) * MILLI;
            self.at(next, What::Storm(left - 1));
        }
    }

    /// From now on nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.faulty = false;
        self.note(Who::World, "heals", 0, 0);
        self.network.heal();
        self.network.weather = Weather::FAIR;
        for node in 0..self.slots.len() {
            self.engines.slow(node, 0);
            if self.slots[node].host.is_none() {
                self.boot(node);
            }
            // One that is to be set back comes to that by itself.
            if !self.slots[node].empty || self.slots[node].pause != Some(Pause::Host) {
                self.resume(node);
            }
            self.engines.start(self.now, node);
        }
        self.engines.changed(self.now);
        self.tell_links();
        self.begin_lasting();
    }

    /// What is wrong from now on to the end.
    fn begin_lasting(&mut self) {
        let Some(node) = (0..self.slots.len()).find(|node| self.may_forget(*node)) else { return };
        match self.scenario.lasting {
            Lasting::None => {}
            Lasting::Stopped => {
                self.stopped = Some(node);
                self.pause(node, Pause::Process);
            }
            Lasting::Carrier | Lasting::Silent => {
                let link = if self.random.permille(500) { Link::Outer } else { Link::Inner };
                self.dead_port = Some((link, node));
                self.set_ports();
            }
        }
    }

    /// The port that is dead for good, among others that are not.
    fn set_ports(&mut self) {
        let Some((link, node)) = self.dead_port else { return };
        self.network.set_port(link, node, false);
        if self.scenario.lasting == Lasting::Carrier {
            self.arrive(node, Arrival::Input(Input::Link(link.number(), false)));
        }
    }

    /// Both of two sides have been told that they are the majority: what follows is theirs who told
    /// them so, but for what must hold even then.
    pub(super) fn is_split_brain(&self) -> bool {
        self.split
    }

    /// Forgives what cannot hold once two sides were the majority, or once nobody was left who held
    /// the state.
    pub(super) fn excuse(&mut self) {
        if !self.may_blame() {
            self.checks.excuse();
        }
    }

    /// True if a lost tunnel is a fault of ours.
    pub(super) fn may_blame(&self) -> bool {
        self.state_lost == 0 && !self.is_split_brain()
    }
}
