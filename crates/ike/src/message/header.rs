//! The IKE header (RFC 7296 §3.1).

use super::error::ParseError;
use super::number::{ExchangeType, PayloadType};
use super::reader::Reader;
use serde::{Deserialize, Serialize};
use std::fmt;
use testudo_base::spi::Shard;

/// An IKE SA's Security Parameters Index. Zero stands for no SPI: that of the responder before it
/// has answered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IkeSpi(pub u64);

impl IkeSpi {
    /// No SPI.
    pub const ZERO: Self = Self(0);

    /// True for no SPI.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The home shard of the IKE SA, if this SPI is ours: its layout is shard:8 | random:56.
    pub fn shard(self) -> Shard {
        Shard((self.0 >> 56) as u8)
    }

    /// The octets on the wire.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for IkeSpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for IkeSpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of a request and its response (RFC 7296 §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MessageId(pub u32);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The header without the fields that follow from the message: version, next payload and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Chosen by the initiator of the IKE SA.
    pub initiator_spi: IkeSpi,
    /// Chosen by the responder of the IKE SA; zero in the first request.
    pub responder_spi: IkeSpi,
    /// Exchange type.
    pub exchange: ExchangeType,
    /// I flag: the sender is the original initiator of the IKE SA.
    pub from_initiator: bool,
    /// R flag: a response, to the request of the same Message ID.
    pub response: bool,
    /// Message ID.
    pub message_id: MessageId,
}

const MAJOR_VERSION: u8 = 2;
const FLAG_INITIATOR: u8 = 0x08;
const FLAG_RESPONSE: u8 = 0x20;

impl Header {
    /// Octets of the header.
    pub const LENGTH: usize = 28;

    /// Reads the header of a whole message and checks version and length. The minor version, the V
    /// flag and the reserved flags are ignored, as they must be.
    pub fn parse(message: &[u8]) -> Result<Self, ParseError> {
        Self::read(&mut Reader::new(message, 0, PayloadType::None)).map(|(header, _)| header)
    }

    /// Reads the header and the type of the first payload; `reader` holds the whole message.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Self, PayloadType), ParseError> {
        let found = reader.left();
        let initiator_spi = IkeSpi(reader.u64("initiator's SPI")?);
        let responder_spi = IkeSpi(reader.u64("responder's SPI")?);
        let first = PayloadType::from(reader.u8("next payload")?);
        let version = reader.u8("version")?;
        let exchange = ExchangeType::from(reader.u8("exchange type")?);
        let flags = reader.u8("flags")?;
        let message_id = MessageId(reader.u32("Message ID")?);
        let stated = reader.u32("length")?;
        let header = Self {
            initiator_spi,
            responder_spi,
            exchange,
            from_initiator: flags & FLAG_INITIATOR != 0,
            response: flags & FLAG_RESPONSE != 0,
            message_id,
        };
        if version >> 4 != MAJOR_VERSION {
            return Err(ParseError::MajorVersion { found: version >> 4, header });
        }
        if usize::try_from(stated) != Ok(found) {
            return Err(ParseError::MessageLength { stated, found });
        }
        Ok((header, first))
    }

    /// The header of a message of `length` octets that begins with a payload of type `first`.
    pub(super) fn to_bytes(self, first: PayloadType, length: u32) -> [u8; Self::LENGTH] {
        let flags = if self.from_initiator { FLAG_INITIATOR } else { 0 }
            | if self.response { FLAG_RESPONSE } else { 0 };
        let mut bytes = [0; Self::LENGTH];
        let fields: [&[u8]; 5] = [
            &self.initiator_spi.to_bytes(),
            &self.responder_spi.to_bytes(),
            &[u8::from(first), MAJOR_VERSION << 4, u8::from(self.exchange), flags],
            &self.message_id.0.to_be_bytes(),
            &length.to_be_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }
}
