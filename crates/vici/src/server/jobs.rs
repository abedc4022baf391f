//! Commands that take time: their clients, timeouts and answers.

use super::{ClientId, LogLine, commands, replication};
use crate::control::JobId;
use crate::error::CommandError;
use crate::message::Message;
use crate::session::RequestId;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_ike::output::Time;

/// A command that was begun.
pub(super) struct Pending {
    pub(super) kind: Kind,
    /// Lines above this level are not sent.
    pub(super) log_level: i64,
    pub(super) timeout: Option<Duration>,
}

pub(super) enum Kind {
    /// The subject of the initiation, such as "CHILD_SA 'net'".
    Initiate { what: String },
    /// The number of matching SAs.
    Terminate { matches: u32 },
    /// The answer for when the other nodes have the command.
    Replicate { answer: Message },
}

struct Job {
    client: ClientId,
    request: RequestId,
    pending: Pending,
    deadline: Option<Time>,
    /// The last log line about it.
    last: String,
}

/// An answer that is due.
pub(super) struct Done {
    pub(super) client: ClientId,
    pub(super) request: RequestId,
    pub(super) message: Message,
}

#[derive(Default)]
pub(super) struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    last: u64,
}

impl Jobs {
    pub(super) fn next_id(&mut self) -> JobId {
        self.last += 1;
        JobId(self.last)
    }

    pub(super) fn insert(
        &mut self,
        id: JobId,
        client: ClientId,
        request: RequestId,
        pending: Pending,
        now: Time,
    ) {
        let deadline = pending.timeout.and_then(|timeout| now.0.checked_add(timeout)).map(Time);
        self.jobs.insert(id, Job { client, request, pending, deadline, last: String::new() });
    }

    /// Drops the jobs of a client that has disconnected.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.jobs.retain(|_, job| job.client != client);
    }

    /// Notes a log line about a job. The last one is a part of the answer if the job times out.
    pub(super) fn said(&mut self, id: JobId, line: LogLine<'_>) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|_| line.level <= 1) {
            line.message.clone_into(&mut job.last);
        }
    }

    /// The client that receives the log of a job.
    pub(super) fn listener(&self, id: JobId, level: u8) -> Option<ClientId> {
        let job = self.jobs.get(&id)?;
        (i64::from(level) <= job.pending.log_level).then_some(job.client)
    }

    pub(super) fn finish_initiate(&mut self, id: JobId, result: Result<(), CommandError>) -> Option<Done> {
        let Kind::Initiate { what } = &self.jobs.get(&id)?.pending.kind else { return None };
        let message = commands::initiated(what, result);
        self.take(id, message)
    }

    pub(super) fn finish_terminate(&mut self, id: JobId, terminated: u32) -> Option<Done> {
        let Kind::Terminate { matches } = self.jobs.get(&id)?.pending.kind else { return None };
        self.take(id, commands::terminated(matches, terminated))
    }

    pub(super) fn finish_replication(&mut self, id: JobId) -> Option<Done> {
        let Kind::Replicate { answer } = &self.jobs.get(&id)?.pending.kind else { return None };
        let message = answer.clone();
        self.take(id, message)
    }

    pub(super) fn refuse_replication(&mut self, id: JobId) -> Option<Done> {
        let Kind::Replicate { .. } = &self.jobs.get(&id)?.pending.kind else { return None };
        self.take(id, replication::outdated())
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.jobs.values().filter_map(|job| job.deadline).min()
    }

    /// A job whose timeout is over, and for an initiation or a termination the failure text.
    pub(super) fn expire(&mut self, now: Time) -> Option<(Done, Option<String>)> {
        let due = |job: &Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let (&id, job) = self.jobs.iter().find(|(_, job)| due(job))?;
        let after = job.pending.timeout.unwrap_or_default().as_millis();
        let (message, failure) = match &job.pending.kind {
            Kind::Initiate { what } => {
                let last = if job.last.is_empty() { String::new() } else { format!(": {}", job.last) };
                let failure = format!("{what} not established after {after}ms{last}");
                (commands::failed(failure.clone()), Some(failure))
            }
            Kind::Terminate { matches } => {
                let noun = if *matches == 1 { "SA" } else { "SAs" };
                let failure = format!("{matches} {noun} not terminated after {after}ms");
                (commands::terminated(*matches, 0), Some(failure))
            }
            Kind::Replicate { .. } => (replication::not_replicated(), None),
        };
        self.take(id, message).map(|done| (done, failure))
    }

    fn take(&mut self, id: JobId, message: Message) -> Option<Done> {
        self.jobs.remove(&id).map(|job| Done { client: job.client, request: job.request, message })
    }
}
