//! What the VICI server, the log and waiting commands are told of SAs.

use super::Gateway;
use testudo_cluster::member::{Effect, InitiationOutcome, MemberOutput, PieceName};
use testudo_cluster::node::NodeId;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, LogLevel, Reason};
use testudo_vici::CommandError;
use testudo_vici::alarms::AlarmReport;
use testudo_vici::control::JobId;
use zeroize::Zeroizing;

/// Something for the VICI server to pass on.
pub(crate) enum Note {
    /// A line of the log, and the jobs it belongs to.
    Log { ike: Option<IkeSaId>, connection: Option<String>, level: u8, message: String, jobs: Vec<JobId> },
    /// An initiation is over.
    Initiated(JobId, Result<(), CommandError>),
    /// A termination is over.
    Terminated(JobId, u32),
    /// The other nodes have a command that changes the configuration.
    Replicated(JobId),
    /// A command that changed the configuration is undone: it was outdated.
    Outdated(JobId),
    /// A command that changes the configuration has come from another node.
    Configure(NodeId, Effect, Zeroizing<Vec<u8>>),
    /// What this command has loaded has to be unloaded.
    Unconfigure(PieceName, Zeroizing<Vec<u8>>),
    /// An IKE SA came up or went down.
    Ike(bool, Box<IkeSaStatus>),
    /// A Child SA came up or went down.
    Child(bool, Box<IkeSaStatus>, Box<ChildSaStatus>),
    /// An IKE SA has taken the place of another.
    IkeRekeyed(Box<(IkeSaStatus, IkeSaStatus)>),
    /// An alarm was raised, lasts or is over: the state's name.
    Alarm(&'static str, Box<AlarmReport>),
    /// A Child SA of an IKE SA has taken the place of another.
    ChildRekeyed(Box<(IkeSaStatus, ChildSaStatus, ChildSaStatus)>),
}

impl Gateway {
    /// Sets whether a client wants events of SAs.
    pub(crate) fn watch(&mut self, wanted: bool) {
        if wanted && !self.watched {
            let all = self.endpoint.sa_ids().into_iter().filter_map(|id| self.endpoint.sa(id));
            self.ikes = all.map(|status| (status.id, status)).collect();
        } else if !wanted {
            self.ikes.clear();
        }
        self.watched = wanted;
    }

    /// Handles an event of this node or, in a cluster, of another.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Log { ike, connection, level, message } => self.log(ike, connection, level, message),
            Event::IkeUp(ike) => {
                self.ike_initiated(ike, &Ok(()));
                if let Some(status) = self.look(ike) {
                    self.notes.push_back(Note::Ike(true, Box::new(status)));
                }
            }
            Event::IkeDown(ike, reason) => {
                let told = reason != Reason::Rekeyed;
                if let Some(status) = self.ikes.remove(&ike).filter(|_| told) {
                    self.notes.push_back(Note::Ike(false, Box::new(status)));
                }
                self.ike_initiated(ike, &Err(reason.into()));
                let complete = self.jobs.ike_gone(ike);
                self.notes.extend(complete.into_iter().map(|(job, gone)| Note::Terminated(job, gone)));
            }
            Event::ChildUp(ike, child) => {
                if let Some(status) = self.look(ike) {
                    self.note_child(true, status, child);
                }
            }
            Event::ChildDown(ike, child, reason) => {
                // Nobody is told of the end of a Child SA that was renewed.
                let told = reason != Reason::Rekeyed;
                if let Some(status) = self.ikes.get(&ike).filter(|_| told).cloned() {
                    self.note_child(false, status, child);
                }
                let complete = self.jobs.child_gone(child);
                self.notes.extend(complete.into_iter().map(|(job, gone)| Note::Terminated(job, gone)));
            }
            Event::OtherVoucher { identity, line, .. } => self.alarms.other_voucher(identity, line),
            Event::ChildRekeyed(ike, old, new) => {
                if let Some(status) = self.look(ike) {
                    let child = |id| status.children.iter().find(|child| child.id == id).cloned();
                    if let Some((old, new)) = child(old).zip(child(new)) {
                        self.notes.push_back(Note::ChildRekeyed(Box::new((status, old, new))));
                    }
                }
            }
            Event::IkeRekeyed(old, new) => {
                self.virtual_ips.hand_on(old, new);
                let before = self.ikes.get(&old).cloned();
                if let Some((before, after)) = before.zip(self.look(new)) {
                    self.notes.push_back(Note::IkeRekeyed(Box::new((before, after))));
                }
            }
            Event::InitiateMoved { from, to, child } => self.jobs.moved(from, to, &child),
            Event::InitiateDone { ike, child, result } => {
                let result = result.map(drop).map_err(CommandError::from);
                for job in self.jobs.initiated(ike, &child) {
                    self.notes.push_back(Note::Initiated(job, result.clone()));
                }
            }
        }
    }

    /// Ends the jobs that wait for the IKE SA alone.
    pub(crate) fn ike_initiated(&mut self, ike: IkeSaId, result: &Result<(), CommandError>) {
        for job in self.jobs.initiated(ike, "") {
            self.notes.push_back(Note::Initiated(job, result.clone()));
        }
    }

    /// Passes on what the member tells operators.
    pub(super) fn tell_operators(&mut self, output: MemberOutput) {
        match output {
            MemberOutput::Configure { from, effect, octets } => {
                self.notes.push_back(Note::Configure(from, effect, octets));
            }
            MemberOutput::Unconfigure { name, octets } => {
                self.notes.push_back(Note::Unconfigure(name, octets))
            }
            MemberOutput::Configured { job } => self.notes.push_back(Note::Replicated(JobId(job))),
            MemberOutput::Outdated { job } => self.notes.push_back(Note::Outdated(JobId(job))),
            MemberOutput::Initiated { job, outcome } => {
                let result = match outcome {
                    InitiationOutcome::Up => Ok(()),
                    InitiationOutcome::Failed { reason } => Err(CommandError::new(reason)),
                };
                self.notes.push_back(Note::Initiated(JobId(job), result));
            }
            MemberOutput::Line { job, connection, level, message } => {
                let jobs = vec![JobId(job)];
                self.notes.push_back(Note::Log { ike: None, connection, level, message, jobs });
            }
            MemberOutput::RemoteEvent(event) => self.event(event),
            // All other outputs are the data path's.
            _ => {}
        }
    }

    fn look(&mut self, ike: IkeSaId) -> Option<IkeSaStatus> {
        if !self.watched {
            return None;
        }
        let status = self.endpoint.sa(ike)?;
        self.ikes.insert(ike, status.clone());
        Some(status)
    }

    fn note_child(&mut self, up: bool, ike: IkeSaStatus, child: ChildSaId) {
        if let Some(child) = ike.children.iter().find(|c| c.id == child).cloned() {
            self.notes.push_back(Note::Child(up, Box::new(ike), Box::new(child)));
        }
    }

    /// Writes a line to the log, and to every client that waits for that IKE SA.
    pub(crate) fn log(
        &mut self,
        ike: Option<IkeSaId>,
        connection: Option<String>,
        level: LogLevel,
        message: String,
    ) {
        let (name, number) = (connection.as_deref(), ike.map(|ike| ike.0));
        match level {
            LogLevel::Error => tracing::error!(connection = name, ike_sa = number, "{message}"),
            LogLevel::Warning => tracing::warn!(connection = name, ike_sa = number, "{message}"),
            LogLevel::Notice | LogLevel::Info => {
                tracing::info!(connection = name, ike_sa = number, "{message}")
            }
            LogLevel::Detail => tracing::debug!(connection = name, ike_sa = number, "{message}"),
        }
        let level = level.charon();
        let jobs = ike.map(|ike| self.jobs.listeners(ike)).unwrap_or_default();
        self.notes.push_back(Note::Log { ike, connection, level, message, jobs });
    }

    /// The next note for the VICI server.
    pub(crate) fn take_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Whether notes are left.
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }
}
