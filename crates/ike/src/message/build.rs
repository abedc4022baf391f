//! Writing of messages.

use super::error::EncodeError;
use super::header::Header;
use super::number::PayloadType;
use super::parse::{Fragment, GENERIC_HEADER};
use super::payload::Payload;
use super::writer::{narrow_u16, with_length};

/// Collects payloads and writes the message around them. The critical bit is never set (RFC 7296
/// §3.2).
#[derive(Clone, Debug)]
pub struct MessageBuilder {
    header: Header,
    payloads: Vec<Payload>,
}

/// A message whose Encrypted payload is still to be sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The message up to and including the generic header of the Encrypted payload, with its final
    /// lengths.
    pub aad: Vec<u8>,
    /// The payloads to encrypt, without padding.
    pub plaintext: Vec<u8>,
}

impl MessageBuilder {
    /// A message without payloads.
    pub fn new(header: Header) -> Self {
        Self { header, payloads: Vec::new() }
    }

    /// Appends a payload.
    pub fn push(&mut self, payload: Payload) -> &mut Self {
        self.payloads.push(payload);
        self
    }

    /// Appends a payload.
    #[must_use]
    pub fn with(mut self, payload: Payload) -> Self {
        self.payloads.push(payload);
        self
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The payloads so far.
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// The message in clear: for IKE_SA_INIT, and for answers without an IKE SA.
    pub fn finish(&self) -> Result<Vec<u8>, EncodeError> {
        let mut message = self.header.to_bytes(self.first(), 0).to_vec();
        self.write_chain(&mut message)?;
        let length = u32::from(narrow_u16("length of the message", message.len())?);
        if let Some(header) = message.first_chunk_mut() {
            *header = self.header.to_bytes(self.first(), length);
        }
        Ok(message)
    }

    /// The message with all its payloads in an Encrypted payload. `overhead`: the octets that
    /// sealing adds, namely IV, padding with its length, and integrity check value.
    pub fn draft(&self, overhead: usize) -> Result<Draft, EncodeError> {
        let plaintext = self.plaintext()?;
        let aad = self.aad(plaintext.len().saturating_add(overhead))?;
        Ok(Draft { aad, plaintext })
    }

    /// The payloads as they are encrypted.
    pub fn plaintext(&self) -> Result<Vec<u8>, EncodeError> {
        let mut plaintext = Vec::new();
        self.write_chain(&mut plaintext)?;
        Ok(plaintext)
    }

    /// The message up to and including the generic header of an Encrypted payload with a body of
    /// `body` octets.
    pub fn aad(&self, body: usize) -> Result<Vec<u8>, EncodeError> {
        self.protected(PayloadType::Encrypted, self.first(), body)
    }

    /// The message up to and including the fixed fields of an Encrypted Fragment payload, which
    /// `body` octets follow (RFC 7383 §2.5).
    pub fn fragment_aad(&self, fragment: Fragment, body: usize) -> Result<Vec<u8>, EncodeError> {
        let first = if fragment.is_first() { self.first() } else { PayloadType::None };
        let place = [fragment.number.to_be_bytes(), fragment.total.to_be_bytes()].concat();
        let mut aad =
            self.protected(PayloadType::EncryptedFragment, first, body.saturating_add(place.len()))?;
        aad.extend_from_slice(&place);
        Ok(aad)
    }

    fn protected(&self, kind: PayloadType, first: PayloadType, body: usize) -> Result<Vec<u8>, EncodeError> {
        let sk_length = body.saturating_add(GENERIC_HEADER);
        let length = narrow_u16("length of the message", sk_length.saturating_add(Header::LENGTH))?;
        let sk_length = narrow_u16("length of a payload", sk_length)?;
        let mut aad = self.header.to_bytes(kind, u32::from(length)).to_vec();
        aad.extend_from_slice(&[u8::from(first), 0]);
        aad.extend_from_slice(&sk_length.to_be_bytes());
        Ok(aad)
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
