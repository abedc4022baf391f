//! The schedule of jobs.
//!
//! Labs have priority: a process for each, as many as there are places on the machine, and one
//! more, which waits in the labs' own queue. At the same time, as many processes as there are
//! processors run at the lowest priority; one of them may be cargo. When none of these is left, the
//! machine has room for more labs.

use crate::job::{Event, Job, Lane};
use crate::outcome::Outcome;
use crate::progress::Progress;
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// As in `lock.rs` of testudo-lab.
const PLACES_PER_PROCESSOR: usize = 2;
/// When nothing computes beside the labs.
const PLACES_WITHOUT_COMPANY: usize = 3;
const TICK: Duration = Duration::from_millis(500);

/// Waiting and running jobs.
#[derive(Debug)]
pub(crate) struct Schedule {
    labs: VecDeque<Job>,
    cargo: VecDeque<Job>,
    others: VecDeque<Job>,
    running: Vec<Running>,
    /// The number of the last job started, which is part of its log's name.
    number: usize,
    processors: usize,
    /// Something else computes all the time.
    loaded: bool,
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Running {
    number: usize,
    lane: Lane,
    /// Its name for the user.
    pub(crate) name: String,
    /// Its start.
    pub(crate) since: Instant,
}

impl Schedule {
    /// A schedule; each lane starts its jobs in this order.
    pub(crate) fn new(jobs: impl IntoIterator<Item = Job>) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let (labs, cargo, others) = Default::default();
        let mut schedule =
            Self { labs, cargo, others, running: Vec::new(), number: 0, processors, loaded: false };
        for job in jobs {
            schedule.queue(job.lane).push_back(job);
        }
        schedule
    }

    /// Something else computes all the time: there is never room for more labs.
    pub(crate) fn under_load(self) -> Self {
        Self { loaded: true, ..self }
    }

    /// Numbers jobs from the one after `number`, so that their logs do not overwrite those of an
    /// earlier schedule.
    pub(crate) fn numbered_behind(self, number: usize) -> Self {
        Self { number, ..self }
    }

    /// Runs all jobs, including those that are planned meanwhile. Returns the results in the order
    /// of their ends.
    pub(crate) fn run(mut self, progress: &mut Progress) -> Vec<Outcome> {
        let (sender, events) = channel();
        let mut outcomes = Vec::new();
        std::thread::scope(|scope| {
            loop {
                while let Some(job) = self.next() {
                    let (number, sender): (usize, Sender<(usize, Event)>) =
                        (self.start(&job), sender.clone());
                    let places = self.places();
                    scope.spawn(move || job.run(number, places, &|event| drop(sender.send((number, event)))));
                }
                if self.running.is_empty() {
                    return outcomes;
                }
                match events.recv_timeout(TICK) {
                    Ok((_, Event::Ended(outcome))) => {
                        progress.ended(&outcome);
                        outcomes.push(outcome);
                    }
                    Ok((_, Event::More(plan))) => {
                        progress.more(&plan);
                        plan.jobs.into_iter().for_each(|job| self.queue(job.lane).push_back(job));
                    }
                    Ok((number, Event::Over)) => self.running.retain(|running| running.number != number),
                    // Never disconnected: this thread keeps a sender.
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                }
                progress.show(&self.running);
            }
        })
    }

    /// The next job that may start now.
    fn next(&mut self) -> Option<Job> {
        let busy = self.running(&[Lane::Processor, Lane::Cargo]);
        let lane = if self.running(&[Lane::Lab]) <= self.places() && !self.labs.is_empty() {
            Lane::Lab
        } else if busy < self.processors && self.running(&[Lane::Cargo]) == 0 && !self.cargo.is_empty() {
            Lane::Cargo
        } else if busy < self.processors {
            Lane::Processor
        } else {
            return None;
        };
        self.queue(lane).pop_front()
    }

    fn running(&self, lanes: &[Lane]) -> usize {
        self.running.iter().filter(|job| lanes.contains(&job.lane)).count()
    }

    /// How many places this machine has for labs now.
    fn places(&self) -> usize {
        let waiting = self.cargo.len() + self.others.len();
        let computes = self.loaded || waiting + self.running(&[Lane::Processor, Lane::Cargo]) > 0;
        self.processors * if computes { PLACES_PER_PROCESSOR } else { PLACES_WITHOUT_COMPANY }
    }

    fn start(&mut self, job: &Job) -> usize {
        self.number += 1;
        let (number, lane, name, since) = (self.number, job.lane, job.name(), Instant::now());
        self.running.push(Running { number, lane, name, since });
        number
    }

    fn queue(&mut self, lane: Lane) -> &mut VecDeque<Job> {
        match lane {
            Lane::Lab => &mut self.labs,
            Lane::Cargo => &mut self.cargo,
            Lane::Processor => &mut self.others,
        }
    }
}
