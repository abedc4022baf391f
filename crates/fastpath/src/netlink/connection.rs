//! Requests to rtnetlink, one at a time: a change with its acknowledgement, or a dump.

use super::error::{MessageError, NetlinkError, Result};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::TimeVal;
use std::io;

/// The kernel fills at most this much at a time.
const BUFFER_LEN: usize = 65536;
/// Bound on the wait for an answer. The kernel answers at once; this only keeps a lost answer from
/// blocking the thread.
const TIMEOUT_SECONDS: libc::time_t = 5;
/// A dump during which the table changed is repeated, but only this often: another change is
/// announced anyway.
const MAX_DUMP_ATTEMPTS: usize = 4;

/// A socket for requests.
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Connection {
    /// Opens a connection in the thread's network namespace.
    pub(crate) fn open() -> Result<Self> {
        let socket = open_socket().map_err(request_failed("cannot open a netlink socket"))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER_LEN] })
    }

    /// Requests a change and waits until it is made. `operation` names it in an error.
    pub(crate) fn request(
        &mut self,
        operation: impl Fn() -> String,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<()> {
        self.acknowledged(operation, message, flags, |_| {})
    }

    /// Asks for one object.
    pub(crate) fn get(
        &mut self,
        operation: impl Fn() -> String,
        message: RouteNetlinkMessage,
        each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<()> {
        self.acknowledged(operation, message, 0, each)
    }

    fn acknowledged(
        &mut self,
        operation: impl Fn() -> String,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<()> {
        let sent = self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags);
        let sequence = sent.map_err(|e| request_failed(&operation())(e))?;
        self.receive(&operation, sequence, &mut each).map(|_| ())
    }

    /// Hands every object of a table to `each`, which collects into `S`. Starts again with an empty
    /// collection if the table changed meanwhile.
    pub(crate) fn dump<S: Default>(
        &mut self,
        operation: &str,
        message: &RouteNetlinkMessage,
        mut each: impl FnMut(&mut S, RouteNetlinkMessage),
    ) -> Result<S> {
        let mut collected = S::default();
        for _ in 0..MAX_DUMP_ATTEMPTS {
            collected = S::default();
            let sent = self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP);
            let sequence = sent.map_err(request_failed(operation))?;
            let operation = || operation.to_owned();
            if self.receive(&operation, sequence, &mut |object| each(&mut collected, object))? {
                break;
            }
        }
        Ok(collected)
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        Ok(self.sequence)
    }

    /// Reads the answer to the end. Returns false if a change has disturbed the dump.
    fn receive(
        &mut self,
        operation: &impl Fn() -> String,
        sequence: u32,
        each: &mut impl FnMut(RouteNetlinkMessage),
    ) -> Result<bool> {
        let mut consistent = true;
        loop {
            let received = receive_from_kernel(&self.socket, &mut self.buffer);
            let length = received.map_err(|e| request_failed(&operation())(e))?;
            let datagram = self.buffer.get(..length).unwrap_or_default();
            for part in Messages(datagram) {
                let message = match part {
                    Ok(message) => message,
                    // One unreadable object must not hide the others.
                    Err(error) => {
                        tracing::warn!("netlink: skipping an object that cannot be read: {error}");
                        continue;
                    }
                };
                if message.header.sequence_number != sequence {
                    continue;
                }
                consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(object) => each(object),
                    NetlinkPayload::Done(_) => return Ok(consistent),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(consistent),
                        Some(_) => return Err(request_failed(&operation())(error.to_io())),
                    },
                    _ => {}
                }
            }
        }
    }
}

fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // Without this the kernel ignores which table a dump asks for.
    socket.set_netlink_get_strict_chk(true)?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(TIMEOUT_SECONDS, 0))?;
    Ok(socket)
}

/// Reads one datagram from the kernel; those of other processes are skipped.
pub(super) fn receive_from_kernel(socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let (length, sender) = socket.recv_from(&mut &mut *buffer, libc::MSG_TRUNC)?;
        if length > buffer.len() {
            return Err(io::Error::other(format!(
                "an answer of {length} octets, expected at most {BUFFER_LEN}"
            )));
        }
        if sender.port_number() == 0 {
            return Ok(length);
        }
    }
}

/// The messages in a datagram.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl Iterator for Messages<'_> {
    type Item = std::result::Result<NetlinkMessage<RouteNetlinkMessage>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let claimed = u32::from_ne_bytes(*self.0.first_chunk()?) as usize;
        let Some((message, _)) = self.0.split_at_checked(claimed).filter(|_| claimed >= HEADER_LEN) else {
            let error = MessageError::Length { claimed, left: self.0.len() };
            self.0 = &[];
            return Some(Err(error));
        };
        self.0 = self.0.get(claimed.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkMessage::deserialize(message).map_err(MessageError::Contents))
    }
}

/// Octets of a netlink message header.
const HEADER_LEN: usize = 16;

fn request_failed(operation: &str) -> impl FnOnce(io::Error) -> NetlinkError {
    let operation = operation.to_owned();
    move |source| NetlinkError::Request { operation, source }
}
