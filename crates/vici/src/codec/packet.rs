//! Packets: a type, and depending on it a name and a message.

use super::element::{self, put_name};
use super::reader::Reader;
use super::{MAX_PACKET, encoded_len};
use crate::Error;
use crate::message::Message;

/// A packet of either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A client's request.
    CmdRequest(String, Message),
    /// The answer.
    CmdResponse(Message),
    /// There is no such command.
    CmdUnknown,
    /// A client registers for the events of a name.
    EventRegister(String),
    /// A client cancels the registration.
    EventUnregister(String),
    /// The registration or its cancellation is done.
    EventConfirm,
    /// There is no such event, or it was not registered.
    EventUnknown,
    /// An event, or a part of a streamed answer.
    Event(String, Message),
}

impl Packet {
    /// Appends the packet with its length field. On error `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let (kind, name, message) = match self {
            Self::CmdRequest(name, message) => (0, Some(name), Some(message)),
            Self::CmdResponse(message) => (1, None, Some(message)),
            Self::CmdUnknown => (2, None, None),
            Self::EventRegister(name) => (3, Some(name), None),
            Self::EventUnregister(name) => (4, Some(name), None),
            Self::EventConfirm => (5, None, None),
            Self::EventUnknown => (6, None, None),
            Self::Event(name, message) => (7, Some(name), Some(message)),
        };
        let len = 1 + name.map_or(0, |name| 1 + name.len()) + message.map_or(0, encoded_len);
        let too_long = || Error::TooLong { what: "packet", found: len, most: MAX_PACKET };
        let field = u32::try_from(len).ok().filter(|_| len <= MAX_PACKET).ok_or_else(too_long)?;
        let start = out.len();
        let mut body = Vec::with_capacity(len + 4);
        body.extend_from_slice(&field.to_be_bytes());
        body.push(kind);
        if let Some(name) = name {
            put_name(name, &mut body)?;
        }
        if let Some(message) = message {
            element::encode(message, &mut body)?;
        }
        debug_assert_eq!(body.len(), len + 4);
        out.append(&mut body);
        debug_assert_eq!(out.len(), start + len + 4);
        Ok(())
    }

    /// Parses a packet without its length field.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8().ok_or(Error::Truncated { field: "the packet type" })?;
        let name = match kind {
            0 | 3 | 4 | 7 => reader.name("the name of a packet")?.to_owned(),
            _ => String::new(),
        };
        let rest = reader.rest();
        let packet = match kind {
            0 => return Ok(Self::CmdRequest(name, element::parse(rest)?)),
            1 => return Ok(Self::CmdResponse(element::parse(rest)?)),
            7 => return Ok(Self::Event(name, element::parse(rest)?)),
            2 => Self::CmdUnknown,
            3 => Self::EventRegister(name),
            4 => Self::EventUnregister(name),
            5 => Self::EventConfirm,
            6 => Self::EventUnknown,
            found => return Err(Error::PacketType { found, expected: "0 to 7" }),
        };
        if rest.is_empty() { Ok(packet) } else { Err(Error::TrailingOctets { found: rest.len() }) }
    }

    /// The name of the request that this packet is, if it is one.
    pub(crate) fn command_of(bytes: &[u8]) -> Option<&str> {
        let mut reader = Reader::new(bytes);
        let is_request = reader.u8() == Some(0);
        is_request.then(|| reader.name("the name of a packet").ok()).flatten()
    }

    /// The octet of the type.
    pub fn kind(&self) -> u8 {
        match self {
            Self::CmdRequest(..) => 0,
            Self::CmdResponse(_) => 1,
            Self::CmdUnknown => 2,
            Self::EventRegister(_) => 3,
            Self::EventUnregister(_) => 4,
            Self::EventConfirm => 5,
            Self::EventUnknown => 6,
            Self::Event(..) => 7,
        }
    }
}
