//! Delete payload (RFC 7296 §3.11).

use super::error::{EncodeError, ParseError};
use super::number::Protocol;
use super::reader::{Reader, bad_value};
use super::writer::narrow_u16;
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;

/// SAs that the sender has deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delete {
    /// The IKE SA of the message, and all its Child SAs.
    IkeSa,
    /// ESP SAs, by the SPIs on which the sender receives.
    Esp(Vec<Spi>),
    /// AH SAs, by the SPIs on which the sender receives.
    Ah(Vec<Spi>),
}

impl Delete {
    /// True if it names no SA, and so need not be sent.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Esp(spis) | Self::Ah(spis) if spis.is_empty())
    }

    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let place = reader.place();
        let protocol = reader.u8("protocol of a delete")?;
        let size = reader.u8("SPI size of a delete")?;
        let count = reader.u16("number of SPIs")?;
        let (expected, wanted) = match Protocol::from(protocol) {
            Protocol::Ike => (0, "0 for IKE"),
            Protocol::Ah | Protocol::Esp => (4, "4 for AH and ESP"),
            Protocol::Unknown(_) => {
                return Err(bad_value(place, "protocol of a delete", protocol, "1 (IKE), 2 (AH) or 3 (ESP)"));
            }
        };
        if size != expected {
            return Err(bad_value(place, "SPI size of a delete", size, wanted));
        }
        let mut spis = Vec::new();
        while !reader.is_empty() {
            spis.push(Spi(reader.u32("SPI of a delete")?));
        }
        if spis.len() != usize::from(count) {
            return Err(bad_value(place, "number of SPIs", count, "as many as follow"));
        }
        Ok(match Protocol::from(protocol) {
            Protocol::Ah => Self::Ah(spis),
            Protocol::Esp => Self::Esp(spis),
            _ => Self::IkeSa,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (protocol, size, spis) = match self {
            Self::IkeSa => (Protocol::Ike, 0, &[][..]),
            Self::Esp(spis) => (Protocol::Esp, 4, spis.as_slice()),
            Self::Ah(spis) => (Protocol::Ah, 4, spis.as_slice()),
        };
        out.extend_from_slice(&[u8::from(protocol), size]);
        out.extend_from_slice(&narrow_u16("number of SPIs", spis.len())?.to_be_bytes());
        for spi in spis {
            out.extend_from_slice(&spi.0.to_be_bytes());
        }
        Ok(())
    }
}
