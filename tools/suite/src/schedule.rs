//! What runs beside what.
//!
//! Labs have priority: a process for each, as many as there are places on the machine and one more,
//! which waits in the labs' own queue. Beside them as many processes as there are processors work
//! at the lowest priority, one of which may be cargo.

use crate::job::{Event, Job, Lane};
use crate::outcome::Outcome;
use crate::progress::Progress;
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// As `lock.rs` of testudo-lab has it.
const PLACES_PER_PROCESSOR: usize = 2;
const TICK: Duration = Duration::from_millis(500);

/// Jobs that wait, and those that run.
#[derive(Debug)]
pub(crate) struct Schedule {
    labs: VecDeque<Job>,
    cargo: VecDeque<Job>,
    others: VecDeque<Job>,
    running: Vec<Running>,
    /// The number of the last job that was started: its log bears it.
    number: usize,
    processors: usize,
}

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Running {
    number: usize,
    lane: Lane,
    /// What the user sees of it.
    pub(crate) name: String,
    /// When it began.
    pub(crate) since: Instant,
}

impl Schedule {
    /// Within its lane each job begins in this order.
    pub(crate) fn new(jobs: impl IntoIterator<Item = Job>) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let (labs, cargo, others) = Default::default();
        let mut schedule = Self { labs, cargo, others, running: Vec::new(), number: 0, processors };
        for job in jobs {
            schedule.queue(job.lane).push_back(job);
        }
        schedule
    }

    /// Jobs are numbered from behind that, so that their logs lie beside those of an earlier
    /// schedule.
    pub(crate) fn numbered_behind(self, number: usize) -> Self {
        Self { number, ..self }
    }

    /// Runs all jobs, and those that come of them. What the tests came to, in the order of their
    /// ends.
    pub(crate) fn run(mut self, progress: &mut Progress) -> Vec<Outcome> {
        let (sender, events) = channel();
        let mut outcomes = Vec::new();
        std::thread::scope(|scope| {
            loop {
                while let Some(job) = self.next() {
                    let (number, sender): (usize, Sender<(usize, Event)>) =
                        (self.start(&job), sender.clone());
                    scope.spawn(move || job.run(number, &|event| drop(sender.send((number, event)))));
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
                    // Disconnected cannot be: this thread keeps a sender.
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                }
                progress.show(&self.running);
            }
        })
    }

    /// A job for which there is room now.
    fn next(&mut self) -> Option<Job> {
        let running = |lanes: &[Lane]| self.running.iter().filter(|job| lanes.contains(&job.lane)).count();
        let busy = running(&[Lane::Processor, Lane::Cargo]);
        let lane = if running(&[Lane::Lab]) <= self.processors * PLACES_PER_PROCESSOR && !self.labs.is_empty()
        {
            Lane::Lab
        } else if busy < self.processors && running(&[Lane::Cargo]) == 0 && !self.cargo.is_empty() {
            Lane::Cargo
        } else if busy < self.processors {
            Lane::Processor
        } else {
            return None;
        };
        self.queue(lane).pop_front()
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
