//! Which worker has which queues of which ports, and which processor.
//!
//! Queue q of every port belongs to worker q mod K. K is the number of workers, or less if a port
//! has fewer queues: so each of these K workers has at least one queue of every port, to send by
//! too. Workers beyond K have no queues, and steal work. A port whose interface is missing does not
//! count; when the interface comes it must have K queues each way.

use crate::config::{Config, PortConfig};
use crate::error::{Error, Result};
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::MAX_QUEUES;
use testudo_fastpath::port::xdp::XdpConfig;
use testudo_fastpath::port::{Queues, queues_of};

/// The smallest ring of a queue. A worker's queues of one port share the entries of one usual ring.
pub(crate) const MIN_RING_ENTRIES: u32 = 256;

/// Frames of a worker that has no ports.
const PORTLESS_FRAMES: usize = 256;

/// All workers, by their numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueAssignment(pub(crate) Vec<AssignedWorker>);

/// One worker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AssignedWorker {
    /// The processor that it is pinned to.
    pub(crate) cpu: Option<usize>,
    /// It has a queue of every port whose interface is there, and will have one of those that come.
    pub(crate) carries: bool,
    /// Its queues, as port and queue. It sends by the first queue of each port.
    pub(crate) queues: Vec<(PortIndex, u16)>,
}

/// How many frames a worker needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerFrames {
    /// Of one chunk.
    pub(crate) single: usize,
    /// Of several, where a chunk is too small for the packets of its ports.
    pub(crate) jumbo: usize,
}

impl QueueAssignment {
    /// Asks the kernel for the numbers of queues of the interfaces that are there. Changes nothing.
    pub(crate) fn of(config: &Config) -> Result<Self> {
        let asked = config.ports.iter().map(ask).collect::<Result<Vec<_>>>()?;
        Ok(Self::with(&asked, config.worker.count, &config.worker.cpus))
    }

    /// For `wanted` workers. By default there is one, with which the packets of an SA keep their
    /// order.
    pub(crate) fn with(ports: &[Option<Queues>], wanted: Option<usize>, cpus: &[usize]) -> Self {
        let count = wanted.unwrap_or(1);
        let own = usable(ports).unwrap_or(count).min(count);
        let assigned = |worker: usize| {
            let numbered = ports.iter().enumerate();
            let mine = |(port, queues): (usize, &Option<Queues>)| {
                let queues = queues.map_or(0, |queues| queues.receive);
                of_worker(queues, worker, own).map(move |queue| (PortIndex(port as u16), queue))
            };
            let carries = worker < own;
            let queues = if carries { numbered.flat_map(mine).collect() } else { Vec::new() };
            AssignedWorker { cpu: cpus.get(worker).copied(), carries, queues }
        };
        Self((0..count).map(assigned).collect())
    }

    /// The processors that workers are pinned to.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        self.0.iter().filter_map(|assigned| assigned.cpu).collect()
    }
}

impl AssignedWorker {
    /// How the queues are opened.
    pub(crate) fn ports(&self, config: &Config) -> Vec<XdpConfig> {
        let open = |(port, queue): &(PortIndex, u16)| {
            let of_port = self.queues.iter().filter(|(other, _)| other == port).count();
            let usual =
                usual_port(*port, &config.ports.get(usize::from(port.0))?.interface, config.worker.ring);
            let busy_poll = !config.worker.busy_poll.is_zero();
            Some(XdpConfig { busy_poll, ..queue_config(usual, *queue, of_port) })
        };
        self.queues.iter().filter_map(open).collect()
    }

    /// The frames that it needs. Every port may hold its rings full, also one whose interface is
    /// missing and may come; a quarter more is in the worker's hands.
    pub(crate) fn frames(&self, config: &Config) -> WorkerFrames {
        let has = |index: usize| self.queues.iter().any(|(of, _)| usize::from(of.0) == index);
        let missing = config.ports.iter().enumerate().filter(|(index, _)| self.carries && !has(*index));
        let missing = missing
            .map(|(index, port)| usual_port(PortIndex(index as u16), &port.interface, config.worker.ring));
        let expected: Vec<XdpConfig> = self.ports(config).into_iter().chain(missing).collect();
        let sum = |of: fn(&XdpConfig) -> usize| expected.iter().map(of).sum::<usize>() * 5 / 4;
        let single = match sum(XdpConfig::frames) {
            0 => PORTLESS_FRAMES,
            needed => needed.max(config.worker.frames as usize),
        };
        WorkerFrames { single, jumbo: sum(XdpConfig::jumbo_frames) }
    }
}

/// A worker's queues of an interface that has `queues`, where `own` workers have some.
pub(crate) fn of_worker(queues: u32, worker: usize, own: usize) -> impl Iterator<Item = u16> {
    (0..queues).filter(move |queue| *queue as usize % own == worker).map(|queue| queue as u16)
}

/// The settings of the only queue of a port, with rings of that many entries.
pub(crate) fn usual_port(index: PortIndex, interface: &str, ring: u32) -> XdpConfig {
    XdpConfig { rx_ring: ring, tx_ring: ring, ..XdpConfig::new(index, interface) }
}

/// The settings of a queue where a worker has `of_port` queues of the port.
pub(crate) fn queue_config(usual: XdpConfig, queue: u16, of_port: usize) -> XdpConfig {
    // The largest power of two such that the queues together have no more entries than one usual
    // ring.
    let ring = (usual.rx_ring / of_port.max(1) as u32).max(MIN_RING_ENTRIES);
    let ring = 1 << ring.ilog2();
    XdpConfig { queue: u32::from(queue), rx_ring: ring, tx_ring: ring, ..usual }
}

/// How many workers can have a queue of each port to receive by, and one to send by. `None`: no
/// interface is there.
fn usable(ports: &[Option<Queues>]) -> Option<usize> {
    let each = ports.iter().flatten().map(|queues| queues.receive.min(queues.send));
    each.min().map(|least| least.max(1) as usize)
}

/// True if this host has an interface of that name now.
pub(crate) fn is_there(interface: &str) -> bool {
    nix::net::if_::if_nametoindex(interface).is_ok()
}

/// `None` if there is no such interface.
fn ask(port: &PortConfig) -> Result<Option<Queues>> {
    if !is_there(&port.interface) {
        return Ok(None);
    }
    let found = queues_of(&port.interface).map_err(Error::at(&port.place))?;
    numbered(&port.interface, found).map_err(Error::at(&port.place)).map(Some)
}

/// The queues of an interface, unless there are more of them than numbers.
pub(crate) fn numbered(interface: &str, found: Queues) -> Result<Queues> {
    if found.receive <= MAX_QUEUES.into() {
        return Ok(found);
    }
    Err(Error::TooManyQueues { interface: interface.to_owned(), found: found.receive })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(ports: &[(u32, u32)], count: usize) -> Vec<Vec<(u16, u16)>> {
        // (0, 0) is an interface that is missing.
        let queues = |&(receive, send): &(u32, u32)| (receive > 0).then_some(Queues { receive, send });
        let ports: Vec<Option<Queues>> = ports.iter().map(queues).collect();
        let workers = QueueAssignment::with(&ports, Some(count), &[]).0;
        workers
            .iter()
            .map(|assigned| assigned.queues.iter().map(|(port, queue)| (port.0, *queue)).collect())
            .collect()
    }

    #[test]
    fn there_is_one_unless_more_are_wanted() {
        let ports = [Some(Queues { receive: 8, send: 8 })];
        assert_eq!(QueueAssignment::with(&ports, None, &[]).0.len(), 1);
        assert_eq!(QueueAssignment::with(&ports, Some(2), &[5, 3]).cpus(), [5, 3]);
    }

    #[test]
    fn one_worker_has_all_queues() {
        assert_eq!(assignment(&[(1, 1), (1, 1)], 1), [vec![(0, 0), (1, 0)]]);
        assert_eq!(assignment(&[(2, 2), (1, 1)], 1), [vec![(0, 0), (0, 1), (1, 0)]]);
    }

    #[test]
    fn the_port_with_the_fewest_queues_decides_how_many_have_some() {
        let two = [vec![(0, 0), (0, 2), (1, 0)], vec![(0, 1), (0, 3), (1, 1)]];
        assert_eq!(assignment(&[(4, 4), (2, 2)], 2), two);
        assert_eq!(assignment(&[(4, 4), (2, 2)], 4), [two[0].clone(), two[1].clone(), vec![], vec![]]);
        assert_eq!(assignment(&[(4, 1), (4, 4)], 2)[1], [], "there is nothing for it to send by");
    }

    #[test]
    fn a_port_whose_interface_is_missing_limits_nobody() {
        assert_eq!(assignment(&[(4, 4), (0, 0)], 2), [vec![(0, 0), (0, 2)], vec![(0, 1), (0, 3)]]);
        let carrying = |ports: &[Option<Queues>]| {
            let workers = QueueAssignment::with(ports, Some(3), &[]).0;
            workers.iter().filter(|assigned| assigned.carries).count()
        };
        assert_eq!(carrying(&[None, Some(Queues { receive: 2, send: 2 })]), 2);
        assert_eq!(carrying(&[None, None]), 3, "any of them may have a queue of what comes");
    }

    #[test]
    fn too_many_queues_are_refused_with_what_helps() {
        let queues = Queues { receive: 65, send: 1 };
        let refused = numbered("wan0", queues).unwrap_err().to_string();
        assert!(
            refused.contains("\"wan0\" has 65 receive queues, expected at most 64: ethtool -L wan0"),
            "{refused}"
        );
    }

    #[test]
    fn every_queue_has_one_worker_who_can_send_by_his_first() {
        for (receive, send, count) in [(1, 4, 3), (7, 3, 5), (64, 64, 6), (5, 5, 64)] {
            let assignment = assignment(&[(receive, send), (9, 9)], count);
            let mut all: Vec<(u16, u16)> = assignment.iter().flatten().copied().collect();
            all.sort_unstable();
            let expected = (0..receive).map(|q| (0, q as u16)).chain((0..9).map(|q| (1, q)));
            assert_eq!(all, expected.collect::<Vec<_>>());
            for assigned in assignment.iter().filter(|assigned| !assigned.is_empty()) {
                for port in 0..2 {
                    let first = assigned.iter().find(|(of, _)| *of == port).expect("a queue of every port").1;
                    assert!(port == 1 || u32::from(first) < send);
                }
            }
        }
    }
}
