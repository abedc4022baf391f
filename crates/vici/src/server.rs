//! The server: clients' sessions, commands that take time, streamed answers.
//!
//! How a host drives it:
//!
//! - [`Server::connect`] for each accepted connection.
//! - [`Server::receive`] with the octets read, at most [`crate::codec::MAX_READ`] at once. The host
//!   wipes its read buffer, which may have held a secret. While [`Server::wants_input`] is false it
//!   leaves octets in the socket.
//! - After that, and after any other call, the host writes the octets of [`Server::poll_output`]
//!   for each of [`Server::clients`], and reports the number written with [`Server::sent`].
//! - A long answer is made in small parts: while [`Server::is_busy`] there is more, and the host
//!   calls again after its other duties.
//! - At [`Server::next_deadline`] it calls [`Server::handle_deadline`].
//! - After an error of `receive` or `poll_output` it closes the connection and calls
//!   [`Server::disconnect`].

mod commands;
mod counters;
mod credentials;
mod jobs;
mod policies;
mod replication;
mod stream;

pub use replication::{carry_out, take_back};

use crate::alarms::AlarmReport;
use crate::control::{Control, JobId};
use crate::error::{CommandError, Error};
use crate::message::Message;
use crate::render;
use crate::session::{Event, Request, RequestId, Session};
use jobs::{Done, Jobs, Pending};
use policies::Replacement;
use std::collections::BTreeMap;
use stream::Stream;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus};
use testudo_ike::output::{IkeSaId, Time};

/// Identifies a client. A server never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// 0 for what an operator must see, 1 for normal events, 2 for details.
    pub level: u8,
    /// The IKE SA, if it is about one.
    pub ike: Option<IkeSaId>,
    /// Its connection, if known.
    pub connection: Option<&'a str>,
    /// The line, without secrets.
    pub message: &'a str,
}

/// All clients and their requests.
#[derive(Default)]
pub struct Server {
    clients: BTreeMap<ClientId, Client>,
    last_client: u64,
    jobs: Jobs,
}

#[derive(Default)]
struct Client {
    session: Session,
    work: Option<Work>,
    failed: Option<Error>,
}

/// What the active request of a client waits for.
enum Work {
    /// The client reads a streamed answer.
    Stream(RequestId, Stream),
    /// The gateway finishes a job.
    Job,
}

/// The immediate result of a request.
enum Answer {
    Now(Message),
    Unknown,
    Stream(Stream),
    Later(JobId, Pending),
}

impl Server {
    /// Most clients at a time.
    pub const MAX_CLIENTS: usize = 64;

    /// A server without clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a client that has connected.
    ///
    /// # Errors
    ///
    /// If [`Server::MAX_CLIENTS`] are connected.
    pub fn connect(&mut self) -> Result<ClientId, Error> {
        if self.clients.len() >= Self::MAX_CLIENTS {
            return Err(Error::TooManyClients { most: Self::MAX_CLIENTS });
        }
        self.last_client += 1;
        let id = ClientId(self.last_client);
        self.clients.insert(id, Client::default());
        Ok(id)
    }

    /// Removes a client. Jobs that it has begun continue.
    pub fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.jobs.forget(client);
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients.keys().copied()
    }

    /// False while the host should leave a client's octets in its socket.
    pub fn wants_input(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.session.wants_input())
    }

    /// Takes octets from a client, and processes the complete requests.
    pub fn receive(
        &mut self,
        client: ClientId,
        bytes: &[u8],
        now: Time,
        control: &mut dyn Control,
    ) -> Result<(), Error> {
        self.clients.get_mut(&client).ok_or(Error::Closed)?.session.receive(bytes)?;
        self.advance(client, now, control)
    }

    /// Octets to write to a client, empty if there are none now. Continues streamed answers as the
    /// client reads.
    pub fn poll_output(
        &mut self,
        client: ClientId,
        now: Time,
        control: &mut dyn Control,
    ) -> Result<&[u8], Error> {
        self.advance(client, now, control)?;
        let session = &mut self.clients.get_mut(&client).ok_or(Error::Closed)?.session;
        session.check_backlog(now)?;
        Ok(session.output())
    }

    /// Reports that the first `len` octets of [`Server::poll_output`] are written.
    pub fn sent(&mut self, client: ClientId, len: usize) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.session.sent(len);
        }
    }

    /// True if [`Server::poll_output`] can make more of an answer before the client reads or sends
    /// anything.
    pub fn is_busy(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| match &client.work {
            Some(Work::Stream(..)) => Stream::wants_more(&client.session),
            Some(Work::Job) | None => false,
        })
    }

    fn advance(&mut self, id: ClientId, now: Time, control: &mut dyn Control) -> Result<(), Error> {
        loop {
            let client = self.clients.get_mut(&id).ok_or(Error::Closed)?;
            if let Some(error) = client.failed.take() {
                return Err(error);
            }
            match &mut client.work {
                Some(Work::Job) => return Ok(()),
                Some(Work::Stream(request, stream)) => {
                    let request = *request;
                    if !stream.fill(&mut client.session, now, control)? {
                        return Ok(());
                    }
                    client.work = None;
                    client.session.respond(request, Message::new())?;
                }
                None if !control.takes_commands() => return Ok(()),
                None => {
                    let Some(request) = client.session.next_request()? else { return Ok(()) };
                    self.begin(id, request, now, control)?;
                }
            }
        }
    }

    fn begin(
        &mut self,
        id: ClientId,
        request: Request,
        now: Time,
        control: &mut dyn Control,
    ) -> Result<(), Error> {
        let job = self.jobs.next_id();
        let replaced = match &request.unreadable {
            Some(why) => Err(CommandError::new(why)),
            None => policies::replaced(&request, control),
        };
        let carried_out = replaced.as_ref().map(|replaced| match replaced {
            Some(Replacement { request, of }) => (request, Some(*of)),
            None => (&request, None),
        });
        let answer = match carried_out {
            Ok((request, _)) => commands::process(request, job, control),
            Err(why) => Answer::Now(commands::failed(why.to_string())),
        };
        note_refusal(&request.name, &answer, control);
        let answer = match carried_out {
            Ok((request, of)) => replication::replicate(request, of, job, answer, control),
            Err(_) => answer,
        };
        let client = self.clients.get_mut(&id).ok_or(Error::Closed)?;
        match answer {
            Answer::Now(message) => client.session.respond(request.id, commands::fitting(message)),
            Answer::Unknown => client.session.respond_unknown(request.id),
            Answer::Stream(stream) => {
                client.work = Some(Work::Stream(request.id, stream));
                Ok(())
            }
            Answer::Later(job, pending) => {
                client.work = Some(Work::Job);
                self.jobs.insert(job, id, request.id, pending, now);
                Ok(())
            }
        }
    }

    /// Ends an initiation; the error is the reason of its failure.
    pub fn finish_initiate(&mut self, job: JobId, result: Result<(), CommandError>) {
        if let Some(done) = self.jobs.finish_initiate(job, result) {
            self.answer_job(done);
        }
    }

    /// Ends a termination; `terminated` of the matching SAs are gone.
    pub fn finish_terminate(&mut self, job: JobId, terminated: u32) {
        if let Some(done) = self.jobs.finish_terminate(job, terminated) {
            self.answer_job(done);
        }
    }

    /// Ends a replication: the other nodes have the command.
    pub fn finish_replication(&mut self, job: JobId) {
        if let Some(done) = self.jobs.finish_replication(job) {
            self.answer_job(done);
        }
    }

    /// Ends a replication without success: the command came too late, see
    /// [`crate::control::ConfigChange::Replace`].
    pub fn refuse_replication(&mut self, job: JobId) {
        if let Some(done) = self.jobs.refuse_replication(job) {
            self.answer_job(done);
        }
    }

    /// The next timeout of a job.
    pub fn next_deadline(&self) -> Option<Time> {
        self.jobs.next_deadline()
    }

    /// Answers the jobs whose timeouts are over. Returns the initiations and terminations among
    /// them, for the log.
    pub fn handle_deadline(&mut self, now: Time) -> Vec<String> {
        let mut failures = Vec::new();
        while let Some((done, failure)) = self.jobs.expire(now) {
            failures.extend(failure);
            self.answer_job(done);
        }
        failures
    }

    fn answer_job(&mut self, Done { client, request, message }: Done) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.work = None;
            client.attempt(|session| session.respond(request, message));
        }
    }

    /// Sends a line about a running job to the client that waits for it.
    pub fn control_log(&mut self, job: JobId, line: LogLine<'_>) {
        self.jobs.said(job, line);
        if let Some(client) = self.jobs.listener(job, line.level)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.attempt(|session| session.send_event(Event::ControlLog, render::log_line(&line)));
        }
    }

    /// Sends a log line to all clients registered for `log`; without details, as in charon.
    pub fn log(&mut self, line: LogLine<'_>) {
        if line.level <= 1 {
            self.broadcast(Event::Log, || render::log_line(&line));
        }
    }

    /// Sends the event that an alarm was raised, lasts or is over: `state`.
    pub fn alarm(&mut self, state: &str, alarm: &AlarmReport) {
        let number = alarm.number.to_string();
        let message = || Message::new().with("state", state).with_section(&number, alarm.to_message());
        self.broadcast(Event::TestudoAlarm, message);
    }

    /// Sends the event that an IKE SA came up or went down.
    pub fn ike_updown(&mut self, up: bool, sa: &IkeSaStatus, now: Time) {
        self.broadcast(Event::IkeUpdown, || render::ike_updown(up, sa, now));
    }

    /// Sends the event that a Child SA of `sa` came up or went down.
    pub fn child_updown(
        &mut self,
        up: bool,
        sa: &IkeSaStatus,
        child: &ChildSaStatus,
        now: Time,
        control: &dyn Control,
    ) {
        let usage = |id| control.child_usage(id);
        self.broadcast(Event::ChildUpdown, || render::child_updown(up, sa, child, now, &usage));
    }

    /// Sends the event that an IKE SA has replaced another.
    pub fn ike_rekey(&mut self, old: &IkeSaStatus, new: &IkeSaStatus, now: Time) {
        self.broadcast(Event::IkeRekey, || render::ike_rekey(old, new, now));
    }

    /// Sends the event that a Child SA of `sa` has replaced another.
    pub fn child_rekey(
        &mut self,
        sa: &IkeSaStatus,
        old: &ChildSaStatus,
        new: &ChildSaStatus,
        now: Time,
        control: &dyn Control,
    ) {
        let usage = |id| control.child_usage(id);
        self.broadcast(Event::ChildRekey, || render::child_rekey(sa, old, new, now, &usage));
    }

    /// True if a client has registered for events about SAs: then the host must be able to describe
    /// SAs that are gone.
    pub fn is_watched(&self) -> bool {
        let events = [Event::IkeUpdown, Event::ChildUpdown, Event::IkeRekey, Event::ChildRekey];
        let watches = |client: &Client| events.into_iter().any(|event| client.session.is_registered(event));
        self.clients.values().any(watches)
    }

    fn broadcast(&mut self, event: Event, message: impl Fn() -> Message) {
        for client in self.clients.values_mut() {
            if client.session.is_registered(event) {
                client.attempt(|session| session.send_event(event, message()));
            }
        }
    }
}

/// The commands besides `load-...` whose failure is an event of the gateway. The others that unload
/// something fail only if it is not there.
const NOTED: [&str; 6] = ["initiate", "install", "uninstall", "terminate", "unload-pool", "reload-settings"];

/// Reports a command that was refused or has failed to the gateway, which logs it. That nothing is
/// there to go is no event.
fn note_refusal(command: &str, answer: &Answer, control: &mut dyn Control) {
    if let Answer::Now(message) = answer
        && message.text("success") == Some("no")
        && message.text("matches") != Some("0")
        && (command.starts_with("load-") || NOTED.contains(&command))
    {
        control.command_refused(command, message.text("errmsg").unwrap_or("no reason given"));
    }
}

impl Client {
    /// Runs an action, and keeps its error until the host next calls for this client.
    fn attempt(&mut self, action: impl FnOnce(&mut Session) -> Result<(), Error>) {
        if self.failed.is_none()
            && let Err(error) = action(&mut self.session)
        {
            self.failed = Some(error);
        }
    }
}
