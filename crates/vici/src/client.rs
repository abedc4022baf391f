//! A small blocking client, for tools and tests.

use crate::Error;
use crate::codec::{Deframer, Packet};
use crate::message::Message;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to a VICI server.
pub struct Client {
    stream: UnixStream,
    input: Deframer,
    /// Events that arrived while the client waited for something else.
    events: VecDeque<(String, Message)>,
}

impl Client {
    /// Connects to the server's socket.
    pub fn connect(socket: &Path) -> Result<Self, Error> {
        Ok(Self::over(UnixStream::connect(socket)?))
    }

    /// The same, and waits no longer than that for the server.
    pub fn connect_within(socket: &Path, timeout: Duration) -> Result<Self, Error> {
        let mut client = Self::connect(socket)?;
        client.set_timeout(Some(timeout))?;
        Ok(client)
    }

    /// Uses a stream that is already connected.
    pub fn over(stream: UnixStream) -> Self {
        Self { stream, input: Deframer::default(), events: VecDeque::new() }
    }

    /// Sets how long to wait for the server; `None` waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.stream.set_read_timeout(timeout)?;
        Ok(self.stream.set_write_timeout(timeout)?)
    }

    /// Sends a command and waits for its answer.
    pub fn request(&mut self, command: &str, arguments: Message) -> Result<Message, Error> {
        self.send(&Packet::CmdRequest(command.to_owned(), arguments))?;
        match self.receive_answer()? {
            Packet::CmdResponse(message) => Ok(message),
            Packet::CmdUnknown => Err(Error::UnknownCommand(command.to_owned())),
            other => Err(Error::PacketType { found: other.kind(), expected: "1 or 2" }),
        }
    }

    /// Like [`Client::request`], but fails unless the answer says `success = yes`.
    pub fn command(&mut self, command: &str, arguments: Message) -> Result<Message, Error> {
        let answer = self.request(command, arguments)?;
        match answer.text("success") {
            Some("yes") => Ok(answer),
            _ => Err(Error::Refused(answer.text("errmsg").unwrap_or("no reason given").to_owned())),
        }
    }

    /// Sends a command whose answer comes as events, and returns them.
    pub fn stream(&mut self, command: &str, event: &str, arguments: Message) -> Result<Vec<Message>, Error> {
        self.register(event)?;
        self.request(command, arguments)?;
        let (streamed, others) =
            std::mem::take(&mut self.events).into_iter().partition::<Vec<_>, _>(|(name, _)| name == event);
        self.events = others.into();
        self.unregister(event)?;
        Ok(streamed.into_iter().map(|(_, message)| message).collect())
    }

    /// Registers for the events of a name.
    pub fn register(&mut self, event: &str) -> Result<(), Error> {
        self.registration(&Packet::EventRegister(event.to_owned()), event)
    }

    /// Cancels the registration.
    pub fn unregister(&mut self, event: &str) -> Result<(), Error> {
        self.registration(&Packet::EventUnregister(event.to_owned()), event)
    }

    fn registration(&mut self, packet: &Packet, event: &str) -> Result<(), Error> {
        self.send(packet)?;
        match self.receive_answer()? {
            Packet::EventConfirm => Ok(()),
            Packet::EventUnknown => Err(Error::UnknownEvent(event.to_owned())),
            other => Err(Error::PacketType { found: other.kind(), expected: "5 or 6" }),
        }
    }

    /// The next event with its name. Waits if there is none yet.
    pub fn next_event(&mut self) -> Result<(String, Message), Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        match self.receive()? {
            Packet::Event(name, message) => Ok((name, message)),
            other => Err(Error::PacketType { found: other.kind(), expected: "7" }),
        }
    }

    fn receive_answer(&mut self) -> Result<Packet, Error> {
        loop {
            match self.receive()? {
                Packet::Event(name, message) => self.events.push_back((name, message)),
                answer => return Ok(answer),
            }
        }
    }

    fn send(&mut self, packet: &Packet) -> Result<(), Error> {
        let mut bytes = zeroize::Zeroizing::new(Vec::new());
        packet.encode(&mut bytes)?;
        Ok(self.stream.write_all(&bytes)?)
    }

    fn receive(&mut self) -> Result<Packet, Error> {
        let mut chunk = [0; 8192];
        loop {
            if let Some(packet) = self.input.next_packet()? {
                return Packet::parse(&packet);
            }
            let len = match self.stream.read(&mut chunk) {
                // With a timeout set, the kernel does not restart the call after the process was
                // stopped (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            match len {
                0 => return Err(Error::Closed),
                len => self.input.push(chunk.get(..len).unwrap_or_default())?,
            }
        }
    }
}
