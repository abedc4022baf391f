//! The walk along the chain of payloads (RFC 7296 §3.2).

use super::error::ParseError;
use super::header::Header;
use super::number::PayloadType;
use super::payload::{Payload, Payloads};
use super::reader::{Reader, bad_value};

/// Bound on the payloads of a message. Honest ones have a dozen or two; the bound limits what a
/// datagram of empty payloads can make us allocate.
pub const MAX_PAYLOADS: usize = 128;

/// Octets of the generic payload header.
pub(super) const GENERIC_HEADER: usize = 4;
const CRITICAL: u8 = 0x80;

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The payloads in clear. Outside IKE_SA_INIT an honest message has none, and they are not
    /// authenticated.
    pub payloads: Payloads,
    /// The Encrypted payload that ends the message.
    pub encrypted: Option<Encrypted<'a>>,
}

/// An Encrypted payload, not yet opened (RFC 7296 §3.14), or an Encrypted Fragment payload (RFC
/// 7383 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// Type of the first payload inside.
    pub first: PayloadType,
    /// The authenticated but not encrypted part: the message up to and including the generic header
    /// (RFC 5282 §5.1).
    pub aad: &'a [u8],
    /// Initialisation vector, ciphertext, integrity check value.
    pub body: &'a [u8],
    /// The fragment's place; `None` for a whole message.
    pub fragment: Option<Fragment>,
}

/// The place of a fragment (RFC 7383 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// From 1 to `total`.
    pub number: u16,
    /// Number of fragments.
    pub total: u16,
}

impl Fragment {
    /// True for the fragment by which a repeated message is recognised (RFC 7383 §2.6.1).
    pub fn is_first(self) -> bool {
        self.number == 1
    }
}

impl<'a> Message<'a> {
    /// Reads a datagram (behind the non-ESP marker, if any).
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(datagram, 0, PayloadType::None);
        let (header, first) = Header::read(&mut reader)?;
        let (payloads, last) = walk(first, &mut reader, true)?;
        let encrypted = last.map(|Last { first, body, fragment }| {
            let aad = datagram.len().checked_sub(body.len()).and_then(|length| datagram.get(..length));
            Encrypted { first, aad: aad.unwrap_or_default(), body, fragment }
        });
        Ok(Self { header, payloads, encrypted })
    }
}

impl Payloads {
    /// Reads the content of an Encrypted payload, after decryption and without padding.
    pub fn parse(first: PayloadType, content: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(content, 0, PayloadType::None);
        let (payloads, _) = walk(first, &mut reader, false)?;
        Ok(payloads)
    }
}

/// The last payload of a protected message.
struct Last<'a> {
    first: PayloadType,
    body: &'a [u8],
    fragment: Option<Fragment>,
}

/// The payloads before the Encrypted payload, and the Encrypted payload.
type Walked<'a> = (Payloads, Option<Last<'a>>);

/// Reads payloads until the chain ends. The Encrypted payload always ends it; without `outer` it is
/// not allowed.
fn walk<'a>(mut kind: PayloadType, reader: &mut Reader<'a>, outer: bool) -> Result<Walked<'a>, ParseError> {
    let mut payloads = Vec::new();
    while kind != PayloadType::None {
        if payloads.len() >= MAX_PAYLOADS {
            return Err(ParseError::TooManyPayloads { limit: MAX_PAYLOADS });
        }
        let Generic { next, critical, mut body } = Generic::read(kind, reader)?;
        if matches!(kind, PayloadType::Encrypted | PayloadType::EncryptedFragment) {
            if !outer {
                return Err(bad_value(
                    body.place(),
                    "payload type",
                    u8::from(kind),
                    "any but SK and SKF within SK",
                ));
            }
            reader.end("the Encrypted payload")?;
            let fragment = match kind {
                PayloadType::EncryptedFragment => Some(read_fragment(&mut body)?),
                _ => None,
            };
            return Ok((Payloads(payloads), Some(Last { first: next, body: body.rest(), fragment })));
        }
        if stands_once(kind) && payloads.iter().any(|earlier: &Payload| earlier.kind() == kind) {
            return Err(ParseError::Duplicate(kind));
        }
        let payload = Payload::read(kind, body)?;
        if critical && !kind.is_base() && matches!(payload, Payload::Unknown(_)) {
            return Err(ParseError::Critical(kind));
        }
        payloads.push(payload);
        kind = next;
    }
    reader.end("the last payload")?;
    Ok((Payloads(payloads), None))
}

/// The fields of a fragment before its IV, which must give a valid place (RFC 7383 §2.6).
fn read_fragment(body: &mut Reader<'_>) -> Result<Fragment, ParseError> {
    let place = body.place();
    let number = body.u16("Fragment Number")?;
    let total = body.u16("Total Fragments")?;
    if number == 0 || number > total {
        return Err(bad_value(place, "Fragment Number", number, "1 to Total Fragments"));
    }
    Ok(Fragment { number, total })
}

/// A payload by its generic header.
struct Generic<'a> {
    next: PayloadType,
    critical: bool,
    body: Reader<'a>,
}

impl<'a> Generic<'a> {
    /// Reads a payload of type `kind`, generic header and body, off `reader`.
    fn read(kind: PayloadType, reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let mut payload = reader.on_behalf_of(kind);
        let place = payload.place();
        let next = PayloadType::from(payload.u8("next payload")?);
        let critical = payload.u8("critical bit")? & CRITICAL != 0;
        let stated = payload.u16("payload length")?;
        let Some(length) = usize::from(stated).checked_sub(GENERIC_HEADER) else {
            return Err(bad_value(place, "payload length", stated, "at least 4"));
        };
        let body = payload.sub(length, "body of the payload")?;
        *reader = payload.on_behalf_of(PayloadType::None);
        Ok(Self { next, critical, body })
    }
}

/// True for payloads that would be ambiguous if there were two.
fn stands_once(kind: PayloadType) -> bool {
    matches!(
        kind,
        PayloadType::SecurityAssociation
            | PayloadType::KeyExchange
            | PayloadType::IdInitiator
            | PayloadType::IdResponder
            | PayloadType::Authentication
            | PayloadType::Nonce
            | PayloadType::TsInitiator
            | PayloadType::TsResponder
            | PayloadType::Configuration
    )
}
