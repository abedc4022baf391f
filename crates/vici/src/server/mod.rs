//! The server: clients' sessions, commands that take time, streamed answers.
//!
//! How a host drives it: [`Server::connect`] for each accepted connection; octets read go to
//! [`Server::receive`]; then, and after anything else that it does with the server, the host writes
//! what [`Server::poll_output`] gives for each of [`Server::clients`] and says how much with
//! [`Server::sent`]. An error of either means: close the connection and call
//! [`Server::disconnect`]. While [`Server::wants_input`] is false the host leaves octets in the
//! socket; it reads at most [`crate::codec::MAX_READ`] of them at once, and wipes its read buffer,
//! which may have held a secret. A long answer is made in small parts: while [`Server::is_busy`]
//! there is more, and the host comes back after it has looked at its other duties. At
//! [`Server::next_deadline`] it calls [`Server::handle_deadline`].

mod commands;
mod counters;
mod credentials;
mod jobs;
mod policies;
mod replication;
mod stream;

pub use replication::{carry_out, take_back};

use crate::control::{Control, JobId};
use crate::error::{CommandError, Error};
use crate::message::Message;
use crate::render;
use crate::session::{Event, Request, RequestId, Session};
use jobs::{Done, Jobs, Pending};
use std::collections::BTreeMap;
use stream::Stream;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus};
use testudo_ike::output::{IkeSaId, Time};

/// Names a client. Never used twice by one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// 0 for what an operator must see, 1 for the ordinary course, 2 for detail.
    pub level: u8,
    /// The IKE SA, if it is about one.
    pub ike: Option<IkeSaId>,
    /// Its connection, if known.
    pub connection: Option<&'a str>,
    /// The line, without secrets.
    pub message: &'a str,
}

/// All clients, and what they wait for.
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

/// What comes of a request at once.
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

    /// A client has connected.
    pub fn connect(&mut self) -> Result<ClientId, Error> {
        if self.clients.len() >= Self::MAX_CLIENTS {
            return Err(Error::TooManyClients { most: Self::MAX_CLIENTS });
        }
        self.last_client += 1;
        let id = ClientId(self.last_client);
        self.clients.insert(id, Client::default());
        Ok(id)
    }

    /// A client is gone. What it has begun goes on.
    pub fn disconnect(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.jobs.forget(client);
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients.keys().copied()
    }

    /// False while a client's octets should stay in its socket.
    pub fn wants_input(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.session.wants_input())
    }

    /// A client has sent octets: processes what is complete.
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

    /// The first `len` octets of [`Server::poll_output`] are written.
    pub fn sent(&mut self, client: ClientId, len: usize) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.session.sent(len);
        }
    }

    /// True if [`Server::poll_output`] can make more of an answer without the client doing
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
        let replaced = policies::replaced(&request, control);
        let carried_out = replaced.as_ref().map(|replaced| replaced.as_ref().unwrap_or(&request));
        let answer = match carried_out {
            Ok(request) => commands::process(request, job, control),
            Err(why) => Answer::Now(commands::failed(why.to_string())),
        };
        note_refusal(&request.name, &answer, control);
        let answer = match carried_out {
            Ok(request) => replication::replicate(request, job, answer, control),
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

    /// An initiation is over; the text says why it failed.
    pub fn finish_initiate(&mut self, job: JobId, result: Result<(), CommandError>) {
        if let Some(done) = self.jobs.finish_initiate(job, result) {
            self.answer_job(done);
        }
    }

    /// A termination is over: so many of the matching SAs are gone.
    pub fn finish_terminate(&mut self, job: JobId, terminated: u32) {
        if let Some(done) = self.jobs.finish_terminate(job, terminated) {
            self.answer_job(done);
        }
    }

    /// The other nodes have a command that changes the configuration.
    pub fn finish_replication(&mut self, job: JobId) {
        if let Some(done) = self.jobs.finish_replication(job) {
            self.answer_job(done);
        }
    }

    /// When a job's time is over next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.jobs.next_deadline()
    }

    /// Answers the jobs whose time is over. Gives what the initiations among them came to, for the
    /// log.
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

    /// A line about a running job, for the client that waits for it.
    pub fn control_log(&mut self, job: JobId, line: LogLine<'_>) {
        self.jobs.said(job, line);
        if let Some(client) = self.jobs.listener(job, line.level)
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.attempt(|session| session.send_event(Event::ControlLog, render::log_line(&line)));
        }
    }

    /// A line of the log, for all who registered for `log`; like charon without details.
    pub fn log(&mut self, line: LogLine<'_>) {
        if line.level <= 1 {
            self.broadcast(Event::Log, || render::log_line(&line));
        }
    }

    /// An IKE SA came up or went down.
    pub fn ike_updown(&mut self, up: bool, sa: &IkeSaStatus, now: Time) {
        self.broadcast(Event::IkeUpdown, || render::ike_updown(up, sa, now));
    }

    /// A Child SA of `sa` came up or went down.
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

    /// An IKE SA has taken the place of another.
    pub fn ike_rekey(&mut self, old: &IkeSaStatus, new: &IkeSaStatus, now: Time) {
        self.broadcast(Event::IkeRekey, || render::ike_rekey(old, new, now));
    }

    /// A Child SA of `sa` has taken the place of another.
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

    /// True if anybody has registered for SAs that come, go, or take each other's place: then the
    /// host has to be able to describe those that are gone.
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

/// What fails to load or to come up is an event of the gateway, whoever asked for it.
fn note_refusal(command: &str, answer: &Answer, control: &mut dyn Control) {
    if let Answer::Now(message) = answer
        && message.text("success") == Some("no")
        && (command.starts_with("load-") || ["initiate", "install", "reload-settings"].contains(&command))
    {
        control.command_refused(command, message.text("errmsg").unwrap_or("no reason given"));
    }
}

impl Client {
    /// Keeps an error for the next time that the host asks about this client.
    fn attempt(&mut self, action: impl FnOnce(&mut Session) -> Result<(), Error>) {
        if self.failed.is_none()
            && let Err(error) = action(&mut self.session)
        {
            self.failed = Some(error);
        }
    }
}
