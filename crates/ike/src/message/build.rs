//! Writing of messages.

use super::error::EncodeError;
use super::header::Header;
use super::number::PayloadType;
use super::parse::GENERIC_HEADER;
use super::payload::Payload;
use super::writer::{narrow_u16, with_length};

/// Collects payloads and writes the message around them. The critical bit is never set (RFC 7296 §3.2).
#[derive(Clone, Debug)]
pub struct MessageBuilder {
    header: Header,
    payloads: Vec<Payload>,
}

/// A message whose Encrypted payload is still to be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The message up to and with the generic header of the Encrypted payload, with all lengths as they will
    /// be.
    pub aad: Vec<u8>,
    /// The payloads to encrypt, without padding.
    pub plaintext: Vec<u8>,
}

impl MessageBuilder {
    /// A message without payloads.
    pub fn new(header: Header) -> Self {
        Self { header, payloads: Vec::new() }
    }

    /// Adds a payload behind the others.
    pub fn push(&mut self, payload: Payload) -> &mut Self {
        self.payloads.push(payload);
        self
    }

    /// Adds a payload behind the others.
    #[must_use]
    pub fn with(mut self, payload: Payload) -> Self {
        self.payloads.push(payload);
        self
    }

    /// The message in clear: for IKE_SA_INIT, and for answers where there is no IKE SA.
    pub fn finish(&self) -> Result<Vec<u8>, EncodeError> {
        let mut message = self.header.to_bytes(self.first(), 0).to_vec();
        self.write_chain(&mut message)?;
        let length = u32::from(narrow_u16("length of the message", message.len())?);
        if let Some(header) = message.first_chunk_mut() {
            *header = self.header.to_bytes(self.first(), length);
        }
        Ok(message)
    }

    /// The message with all its payloads in an Encrypted payload. `overhead`: what sealing adds to them, that
    /// is IV, padding with its length, and integrity check value.
    pub fn draft(&self, overhead: usize) -> Result<Draft, EncodeError> {
        self.draft_sized(|plaintext| plaintext.saturating_add(overhead))
    }

    /// The same, where what sealing adds depends on the length of the payloads: `sealed` gives the octets of the
    /// Encrypted payload's body for that length.
    pub fn draft_sized(&self, sealed: impl FnOnce(usize) -> usize) -> Result<Draft, EncodeError> {
        let mut plaintext = Vec::new();
        self.write_chain(&mut plaintext)?;
        let sk_length = sealed(plaintext.len()).saturating_add(GENERIC_HEADER);
        let length = narrow_u16("length of the message", sk_length.saturating_add(Header::LENGTH))?;
        let sk_length = narrow_u16("length of a payload", sk_length)?;
        let mut aad = self.header.to_bytes(PayloadType::Encrypted, u32::from(length)).to_vec();
        aad.extend_from_slice(&[u8::from(self.first()), 0]);
        aad.extend_from_slice(&sk_length.to_be_bytes());
        Ok(Draft { aad, plaintext })
    }

    fn first(&self) -> PayloadType {
        self.payloads.first().map_or(PayloadType::None, Payload::kind)
    }

    fn write_chain(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let following = self.payloads.iter().skip(1).map(Payload::kind).chain([PayloadType::None]);
        for (payload, next) in self.payloads.iter().zip(following) {
            with_length(out, [u8::from(next), 0], "length of a payload", |out| payload.write(out))?;
        }
        Ok(())
    }
}
