//! Notify payload (RFC 7296 §3.10).

use super::error::{EncodeError, ParseError};
use super::number::{KeMethod, NotifyType, PayloadType, Protocol};
use super::reader::Reader;
use super::spi::SaSpi;
use super::writer::narrow_u8;
use serde::{Deserialize, Serialize};

/// An error, or a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// The kind of notify.
    pub kind: NotifyType,
    /// The SA concerned, if it is not the IKE SA of the message. A protocol without an SPI is not
    /// kept: it must be ignored.
    pub sa: Option<NotifySa>,
    /// Data whose meaning depends on the kind.
    pub data: Vec<u8>,
}

/// The SA that a notify concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifySa {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its SPI, never [`SaSpi::None`].
    pub spi: SaSpi,
}

impl Notify {
    /// A notify about the IKE SA of the message, or about none.
    pub fn new(kind: NotifyType, data: Vec<u8>) -> Self {
        Self { kind, sa: None, data }
    }

    /// The refusal of an unknown payload (RFC 7296 §2.5).
    pub fn unsupported_critical(payload: PayloadType) -> Self {
        Self::new(NotifyType::UnsupportedCriticalPayload, vec![u8::from(payload)])
    }

    /// The refusal of a key exchange method, naming the one wanted (RFC 7296 §1.2).
    pub fn invalid_ke(wanted: KeMethod) -> Self {
        Self::new(NotifyType::InvalidKePayload, u16::from(wanted).to_be_bytes().to_vec())
    }

    /// The method that an INVALID_KE_PAYLOAD asks for; `None` if it is another notify, or
    /// malformed.
    pub fn wanted_ke(&self) -> Option<KeMethod> {
        if self.kind != NotifyType::InvalidKePayload {
            return None;
        }
        <[u8; 2]>::try_from(self.data.as_slice()).ok().map(|number| u16::from_be_bytes(number).into())
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let protocol = reader.u8("protocol of a notify")?;
        let spi_size = reader.u8("SPI size of a notify")?;
        let kind = NotifyType::from(reader.u16("notify message type")?);
        let spi = SaSpi::from_bytes(reader.take(usize::from(spi_size), "SPI of a notify")?);
        let sa = (spi != SaSpi::None).then(|| NotifySa { protocol: Protocol::from(protocol), spi });
        Ok(Self { kind, sa, data: reader.rest().to_vec() })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (protocol, spi) = match &self.sa {
            Some(sa) if sa.spi != SaSpi::None => (u8::from(sa.protocol), sa.spi.to_bytes()),
            _ => (0, Vec::new()),
        };
        out.extend_from_slice(&[protocol, narrow_u8("length of an SPI", spi.len())?]);
        out.extend_from_slice(&u16::from(self.kind).to_be_bytes());
        out.extend_from_slice(&spi);
        out.extend_from_slice(&self.data);
        Ok(())
    }
}
