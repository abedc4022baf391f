//! The workers, as control drives them. All get the same commands in the same order, and their
//! reports are merged.

use crate::error::{Error, Result};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use testudo_fastpath::frame::FrameMemory;
use testudo_fastpath::port::xdp::XdpPort;
use testudo_fastpath::worker::{PortChanges, WorkerCommand, WorkerEvent, WorkerGarbage, WorkerHandle};
use testudo_ipsec::dataplane::{Counters as PipelineCounters, Event, Garbage, Note};

/// All workers, by their numbers.
pub(super) struct Workers(Vec<Running>);

/// One of them.
pub(super) struct Running {
    pub(super) handle: WorkerHandle,
    pub(super) pipeline: Arc<PipelineCounters>,
    pub(super) cpu: Option<usize>,
    /// `None` if it has no ports, and will have none.
    bay: Option<Bay>,
    /// Commands, in order, which wait while its queue is full.
    backlog: VecDeque<WorkerCommand>,
    /// Notes that it has given back, until the other workers have, too.
    noted: VecDeque<(Box<[Note]>, usize)>,
}

/// Where the ports of a running worker are changed.
pub(super) struct Bay {
    /// What their frames lie in.
    pub(super) memory: Arc<FrameMemory>,
    pub(super) changes: Arc<PortChanges<XdpPort>>,
}

/// The merged reports of workers.
#[derive(Default)]
pub(super) struct WorkerReports {
    /// The notes of all workers together, once the last of them has given its back.
    pub(super) noted: Vec<Vec<Note>>,
    pub(super) events: Vec<WorkerEvent>,
}

impl Running {
    pub(super) fn new(handle: WorkerHandle, pipeline: Arc<PipelineCounters>, cpu: Option<usize>) -> Self {
        Self { handle, pipeline, cpu, bay: None, backlog: VecDeque::new(), noted: VecDeque::new() }
    }

    /// The worker whose ports may be changed there.
    pub(super) fn with_bay(self, bay: Option<Bay>) -> Self {
        Self { bay, ..self }
    }

    /// A worker's queue is bounded. The backlog holds what IKE has decided and cannot take back.
    fn flush(&mut self) {
        let queued = self.backlog.len();
        while let Some(command) = self.backlog.pop_front() {
            if let Err(command) = self.handle.push(command) {
                self.backlog.push_front(command);
                break;
            }
        }
        if self.backlog.len() < queued {
            self.handle.wake();
        }
    }

    /// Frees the worker's garbage.
    fn collect(&mut self) {
        let notes = |garbage| match garbage {
            WorkerGarbage::Ipsec(Garbage::Noted(notes, count)) => Some((notes, count)),
            // The rest only has to be dropped.
            _ => None,
        };
        self.noted.extend(self.handle.collect().filter_map(notes));
    }
}

impl Workers {
    pub(super) fn new(workers: Vec<Running>) -> Self {
        Self(workers)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Running> {
        self.0.iter()
    }

    /// The bays of the workers that have ports, which come before all others.
    pub(super) fn bays(&self) -> impl Iterator<Item = &Bay> {
        self.0.iter().filter_map(|worker| worker.bay.as_ref())
    }

    /// Readable when a worker has something to tell.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(|worker| worker.handle.fd().as_raw_fd())
    }

    /// Queues a command for each worker.
    pub(super) fn queue(&mut self, command: WorkerCommand) {
        let Some((last, others)) = self.0.split_last_mut() else { return };
        for worker in others {
            worker.backlog.push_back(command.clone());
        }
        last.backlog.push_back(command);
    }

    /// Sends the commands that wait, as far as there is room. True if none waits any more.
    pub(super) fn flush(&mut self) -> bool {
        self.0.iter_mut().for_each(Running::flush);
        self.is_flushed()
    }

    /// True if every worker has been sent all its commands.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.iter().all(|worker| worker.backlog.is_empty())
    }

    /// Frees the workers' garbage, and takes their reports, in order. What several report alike is
    /// given once.
    pub(super) fn reports(&mut self) -> WorkerReports {
        self.0.iter_mut().for_each(Running::collect);
        let complete = self.0.iter().map(|worker| worker.noted.len()).min().unwrap_or(0);
        let noted = (0..complete).map(|_| {
            let each = self.0.iter_mut().filter_map(|worker| worker.noted.pop_front());
            latest_first(&each.collect::<Vec<_>>())
        });
        let noted = noted.collect();
        let mut known = BTreeSet::new();
        let is_news = |event: &WorkerEvent| subject(event).is_none_or(|subject| known.insert(subject));
        let mut events: Vec<_> = self.0.iter().flat_map(|worker| worker.handle.events()).collect();
        events.sort_by_key(|(at, _)| *at);
        let events = events.into_iter().map(|(_, event)| event).filter(is_news).collect();
        WorkerReports { noted, events }
    }

    /// Fails if one has ended by itself.
    pub(super) fn check(&self) -> Result<()> {
        let ended = self.0.iter().find(|worker| worker.handle.is_finished());
        ended.map_or(Ok(()), |worker| Err(Error::WorkerEnded(worker.handle.id())))
    }

    /// Ends all of them.
    pub(super) fn stop(self) -> Result<()> {
        let ends: Vec<_> = self.0.into_iter().map(|worker| worker.handle.stop()).collect();
        match ends.into_iter().sum::<std::result::Result<usize, _>>()? {
            0 => Ok(()),
            lost => Err(Error::FramesLost(lost)),
        }
    }
}

/// The subject of an event that is the same whichever worker reports it.
fn subject(event: &WorkerEvent) -> Option<(u8, u32)> {
    match event {
        WorkerEvent::Ipsec(Event::NoSa { policy, .. }) => Some((0, policy.0)),
        WorkerEvent::Ipsec(Event::SequenceLow { spi, .. }) => Some((1, spi.0)),
        WorkerEvent::Ipsec(Event::KeyWanted { spi }) => Some((2, spi.0)),
        WorkerEvent::Ipsec(Event::Carried { spi }) => Some((3, spi.0)),
        WorkerEvent::Ipsec(Event::IvLow) => Some((4, 0)),
        // The later event tells where the peer is now.
        WorkerEvent::Ipsec(Event::AddressChanged { .. })
        | WorkerEvent::NeighbourMissing { .. }
        | WorkerEvent::PathTooBig { .. } => None,
    }
}

/// The notes of all workers, each with their number, the oldest first: one of each in turns, the
/// latest first.
fn latest_first(each: &[(Box<[Note]>, usize)]) -> Vec<Note> {
    let most = each.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let of_age = |age: usize| {
        let at = move |(notes, count): &(Box<[Note]>, usize)| notes.get(count.checked_sub(age)?).copied();
        each.iter().filter_map(at)
    };
    (1..=most).flat_map(of_age).collect()
}

#[cfg(test)]
mod tests;
