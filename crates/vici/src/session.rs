//! One client's connection as a state machine: octets in, requests out; answers and events in,
//! octets out.
//!
//! VICI has no number that links an answer to its request, so a session works on one request at a
//! time, and leaves the next one unread until the first is answered. Both directions are bounded:
//! the session fails if a client writes without waiting or does not read. One event of the gateway
//! may fill the backlog at once (ten thousand SAs that go down); then the client gets time to read.

use crate::Error;
use crate::codec::{Deframer, MAX_PACKET, Packet};
use crate::message::Message;
use std::time::Duration;
use testudo_ike::output::Time;

/// Events that a client may register for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An IKE SA, streamed by `list-sas`.
    ListSa,
    /// A connection, streamed by `list-conns`.
    ListConn,
    /// A policy, streamed by `list-policies`.
    ListPolicy,
    /// A certificate, streamed by `list-certs`.
    ListCert,
    /// A certification authority, streamed by `list-authorities`.
    ListAuthority,
    /// The children of a connection, streamed by `testudo-children`.
    TestudoChild,
    /// A line about a running `initiate` or `terminate`, for the client that sent it.
    ControlLog,
    /// Any line of the log.
    Log,
    /// An IKE SA came up or went down.
    IkeUpdown,
    /// A Child SA came up or went down.
    ChildUpdown,
    /// An IKE SA has replaced another.
    IkeRekey,
    /// A Child SA has replaced another.
    ChildRekey,
    /// An alarm was raised, lasts or is over.
    TestudoAlarm,
}

impl Event {
    const ALL: [Self; 13] = [
        Self::ListSa,
        Self::ListConn,
        Self::ListPolicy,
        Self::ListCert,
        Self::ListAuthority,
        Self::TestudoChild,
        Self::ControlLog,
        Self::Log,
        Self::IkeUpdown,
        Self::ChildUpdown,
        Self::IkeRekey,
        Self::ChildRekey,
        Self::TestudoAlarm,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ListSa => "list-sa",
            Self::ListConn => "list-conn",
            Self::ListPolicy => "list-policy",
            Self::ListCert => "list-cert",
            Self::ListAuthority => "list-authority",
            Self::TestudoChild => "testudo-child",
            Self::ControlLog => "control-log",
            Self::Log => "log",
            Self::IkeUpdown => "ike-updown",
            Self::ChildUpdown => "child-updown",
            Self::IkeRekey => "ike-rekey",
            Self::ChildRekey => "child-rekey",
            Self::TestudoAlarm => "testudo-alarm",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// Identifies a request of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifies the request in the answer.
    pub id: RequestId,
    /// The command's name.
    pub name: String,
    /// Its arguments.
    pub message: Message,
    /// Why they cannot be read; then `message` is empty.
    pub unreadable: Option<String>,
}

impl Request {
    /// A request from another node: no session waits for its answer.
    pub(crate) fn of_node(name: String, message: Message) -> Self {
        Self { id: RequestId(0), name, message, unreadable: None }
    }
}

/// The server's end of one connection.
#[derive(Default)]
pub struct Session {
    input: Deframer,
    output: Output,
    registered: Vec<Event>,
    active: Option<RequestId>,
    requests: u64,
}

impl Session {
    /// Octets that may wait without a time limit for a client that does not read. Streamed answers
    /// are made as the client reads; this bound is for events.
    pub const SOFT_MAX_BACKLOG: usize = 2 * MAX_PACKET;
    /// How long more than [`Self::SOFT_MAX_BACKLOG`] may wait for a client that reads nothing.
    pub const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
    /// Most octets that ever wait for a client: more than the events of 50 000 SAs.
    pub const HARD_MAX_BACKLOG: usize = 64 << 20;

    /// A new connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes octets from the client.
    ///
    /// # Errors
    ///
    /// [`Error::Flood`] if the client sends more than fits: the host ignored [`Self::wants_input`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.input.push(bytes)
    }

    /// False while so much is unprocessed that the host must leave the rest in the socket. One read
    /// may take [`crate::codec::MAX_READ`] octets.
    pub fn wants_input(&self) -> bool {
        // Less than this may be the incomplete packet that the session waits for.
        self.input.len() < MAX_PACKET + 4
    }

    /// The next request. Answers registrations before it. `None` if there is none yet, or if the
    /// last one is not answered.
    pub fn next_request(&mut self) -> Result<Option<Request>, Error> {
        while self.active.is_none() {
            let Some(bytes) = self.input.next_packet()? else { break };
            let packet = match Packet::parse(&bytes) {
                Ok(packet) => packet,
                // An operator's text in another encoding: the packet ends where it says, so the
                // client may go on with what else it has to load.
                Err(error @ Error::NameEncoding { .. }) => {
                    let Some(command) = Packet::command_of(&bytes) else { return Err(error) };
                    let id = self.activate();
                    let unreadable = Some(format!("{command}: {error}"));
                    let (name, message) = (command.to_owned(), Message::new());
                    return Ok(Some(Request { id, name, message, unreadable }));
                }
                Err(error) => return Err(error),
            };
            match packet {
                Packet::CmdRequest(name, message) => {
                    let id = self.activate();
                    return Ok(Some(Request { id, name, message, unreadable: None }));
                }
                Packet::EventRegister(name) => self.register(&name)?,
                Packet::EventUnregister(name) => self.unregister(&name)?,
                other => return Err(Error::PacketType { found: other.kind(), expected: "0, 3 or 4" }),
            }
        }
        Ok(None)
    }

    fn activate(&mut self) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.active = Some(id);
        id
    }

    fn register(&mut self, name: &str) -> Result<(), Error> {
        let Some(event) = Event::from_name(name) else { return self.output.push(&Packet::EventUnknown) };
        if !self.is_registered(event) {
            self.registered.push(event);
        }
        self.output.push(&Packet::EventConfirm)
    }

    fn unregister(&mut self, name: &str) -> Result<(), Error> {
        let before = self.registered.len();
        self.registered.retain(|event| event.name() != name);
        let found = self.registered.len() < before;
        self.output.push(if found { &Packet::EventConfirm } else { &Packet::EventUnknown })
    }

    /// True if the client has registered for this event.
    pub fn is_registered(&self, event: Event) -> bool {
        self.registered.contains(&event)
    }

    /// Answers the active request; an answer to any other request is dropped.
    pub fn respond(&mut self, id: RequestId, message: Message) -> Result<(), Error> {
        self.finish(id, &Packet::CmdResponse(message))
    }

    /// Answers the active request: there is no such command.
    pub fn respond_unknown(&mut self, id: RequestId) -> Result<(), Error> {
        self.finish(id, &Packet::CmdUnknown)
    }

    fn finish(&mut self, id: RequestId, packet: &Packet) -> Result<(), Error> {
        if self.active == Some(id) {
            self.active = None;
            self.output.push(packet)?;
        }
        Ok(())
    }

    /// Sends an event if the client has registered for it.
    pub fn send_event(&mut self, event: Event, message: Message) -> Result<(), Error> {
        if !self.is_registered(event) {
            return Ok(());
        }
        self.output.push(&Packet::Event(event.name().to_owned(), message))
    }

    /// Checks that the client reads what the server sends. To be called at every opportunity to
    /// write.
    pub fn check_backlog(&mut self, now: Time) -> Result<(), Error> {
        self.output.check(now)
    }

    /// Octets to write to the client.
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Removes the first `len` octets of [`Session::output`], which are written.
    pub fn sent(&mut self, len: usize) {
        self.output.sent(len);
    }
}

/// Octets that wait for the client.
#[derive(Default)]
struct Output {
    buffer: Vec<u8>,
    sent: usize,
    /// Since when the backlog is above the soft limit while the client reads nothing.
    stuck: Option<Time>,
}

impl Output {
    fn pending(&self) -> &[u8] {
        self.buffer.get(self.sent..).unwrap_or_default()
    }

    fn push(&mut self, packet: &Packet) -> Result<(), Error> {
        packet.encode(&mut self.buffer)?;
        let found = self.pending().len();
        if found > Session::HARD_MAX_BACKLOG {
            return Err(Error::Backlog { found, most: Session::HARD_MAX_BACKLOG });
        }
        Ok(())
    }

    fn check(&mut self, now: Time) -> Result<(), Error> {
        let found = self.pending().len();
        if found <= Session::SOFT_MAX_BACKLOG {
            self.stuck = None;
            return Ok(());
        }
        let since = *self.stuck.get_or_insert(now);
        if now.since(since) < Session::UNREAD_TIMEOUT {
            return Ok(());
        }
        Err(Error::Backlog { found, most: Session::SOFT_MAX_BACKLOG })
    }

    fn sent(&mut self, len: usize) {
        if len > 0 {
            self.stuck = None;
        }
        self.sent = self.sent.saturating_add(len).min(self.buffer.len());
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            // Frees the memory of an exceptional backlog.
            self.buffer.shrink_to(Session::SOFT_MAX_BACKLOG);
            self.sent = 0;
        } else if self.sent > self.buffer.len() / 2 {
            self.buffer.drain(..self.sent);
            self.sent = 0;
        }
    }
}
