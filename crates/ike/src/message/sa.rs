//! Security Association payload (RFC 7296 §3.3): proposals, transforms, attributes.
//!
//! Nothing is validated here. Unknown protocols, transforms and attributes are kept: the RFC
//! requires that the proposal or transform with them is skipped, and the rest of the payload
//! processed as usual (§3.3.6).

use super::error::{EncodeError, ParseError};
use super::number::{KeMethod, Protocol, TransformType};
use super::reader::{Reader, bad_value};
use super::spi::SaSpi;
use super::writer::{narrow_u8, narrow_u16, with_length};
use serde::{Deserialize, Serialize};

/// Proposals in the sender's order of preference; in a response, the chosen one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaPayload {
    /// At least one.
    pub proposals: Vec<Proposal>,
}

/// One proposal: for each transform type, one of the transforms listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// From 1; a response repeats that of the chosen proposal.
    pub number: u8,
    /// Protocol of the SA.
    pub protocol: Protocol,
    /// The sender's SPI.
    pub spi: SaSpi,
    /// The transforms that may be combined.
    pub transforms: Vec<Transform>,
}

/// An algorithm with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transform {
    /// The type of algorithm.
    pub kind: TransformType,
    /// The algorithm.
    pub id: TransformId,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// A transform ID; its meaning depends on the [`TransformType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransformId(pub u16);

impl TransformId {
    /// Type ENCR: no encryption (RFC 2410).
    pub const ENCR_NULL: Self = Self(11);
    /// Type ENCR: AES-GCM with a 16-octet ICV (RFC 4106, RFC 5282).
    pub const ENCR_AES_GCM_16: Self = Self(20);
    /// Type ENCR: AES-CBC (RFC 3602).
    pub const ENCR_AES_CBC: Self = Self(12);
    /// Type ENCR: AES-CCM with an 8-octet ICV (RFC 4309).
    pub const ENCR_AES_CCM_8: Self = Self(14);
    /// Type ENCR: AES-CCM with a 12-octet ICV (RFC 4309).
    pub const ENCR_AES_CCM_12: Self = Self(15);
    /// Type ENCR: AES-CCM with a 16-octet ICV (RFC 4309, RFC 5282).
    pub const ENCR_AES_CCM_16: Self = Self(16);
    /// Type ENCR: AES-GMAC, without encryption (RFC 4543).
    pub const ENCR_NULL_AUTH_AES_GMAC: Self = Self(21);
    /// Type ENCR: ChaCha20-Poly1305 (RFC 7634).
    pub const ENCR_CHACHA20_POLY1305: Self = Self(28);
    /// Type PRF: HMAC-SHA1 (RFC 2104).
    pub const PRF_HMAC_SHA1: Self = Self(2);
    /// Type INTEG: HMAC-SHA1-96 (RFC 2404).
    pub const AUTH_HMAC_SHA1_96: Self = Self(2);
    /// Type ENCR: 3DES-CBC (RFC 2451).
    pub const ENCR_3DES: Self = Self(3);
    /// Type INTEG: HMAC-MD5-96 (RFC 2403).
    pub const AUTH_HMAC_MD5_96: Self = Self(1);
    /// Type INTEG: AES-XCBC-96 (RFC 3566).
    pub const AUTH_AES_XCBC_96: Self = Self(5);
    /// Type INTEG: AES-CMAC-96 (RFC 4494).
    pub const AUTH_AES_CMAC_96: Self = Self(8);
    /// Type PRF: AES-XCBC (RFC 4434).
    pub const PRF_AES128_XCBC: Self = Self(4);
    /// Type PRF: HMAC-SHA2-512 (RFC 4868).
    pub const PRF_HMAC_SHA2_512: Self = Self(7);
    /// Type INTEG: HMAC-SHA2-256-128 (RFC 4868).
    pub const AUTH_HMAC_SHA2_256_128: Self = Self(12);
    /// Type INTEG: HMAC-SHA2-384-192 (RFC 4868).
    pub const AUTH_HMAC_SHA2_384_192: Self = Self(13);
    /// Type INTEG: HMAC-SHA2-512-256 (RFC 4868).
    pub const AUTH_HMAC_SHA2_512_256: Self = Self(14);
    /// Type PRF: HMAC-SHA2-256 (RFC 4868).
    pub const PRF_HMAC_SHA2_256: Self = Self(5);
    /// Type PRF: HMAC-SHA2-384 (RFC 4868).
    pub const PRF_HMAC_SHA2_384: Self = Self(6);
    /// Types INTEG and KE: none.
    pub const NONE: Self = Self(0);
    /// Type ESN: 32-bit sequence numbers.
    pub const NO_ESN: Self = Self(0);
    /// Type ESN: 64-bit sequence numbers.
    pub const ESN: Self = Self(1);
}

impl From<KeMethod> for TransformId {
    fn from(method: KeMethod) -> Self {
        Self(method.into())
    }
}

/// A transform attribute (RFC 7296 §3.3.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attribute {
    /// Key length in bits.
    KeyLength(u16),
    /// An unknown attribute of two octets.
    Short {
        /// Attribute type, 15 bits.
        kind: u16,
        /// Its value.
        value: u16,
    },
    /// An unknown attribute with a length of its own.
    Long {
        /// Attribute type, 15 bits.
        kind: u16,
        /// Its value.
        value: Vec<u8>,
    },
}

const ATTRIBUTE_KEY_LENGTH: u16 = 14;
const ATTRIBUTE_FORMAT_TV: u16 = 0x8000;
/// Bound on the proposals: their numbers go no further.
const MAX_PROPOSALS: usize = 255;
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

impl SaPayload {
    pub(super) fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let mut proposals = Vec::new();
        loop {
            let place = reader.place();
            if proposals.len() >= MAX_PROPOSALS {
                return Err(bad_value(place, "number of proposals", 256_u32, "at most 255"));
            }
            let (mut body, more) =
                substructure(&mut reader, "proposal", MORE_PROPOSALS, "0 (last) or 2 (more proposals)")?;
            proposals.push(Proposal::read(&mut body)?);
            if !more {
                reader.end("the last proposal")?;
                return Ok(Self { proposals });
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut left = self.proposals.len();
        for proposal in &self.proposals {
            left = left.saturating_sub(1);
            proposal.write(if left == 0 { LAST } else { MORE_PROPOSALS }, out)?;
        }
        Ok(())
    }
}

/// Reads the four octets with which proposals and transforms begin. Returns a reader of the rest,
/// and whether another follows.
fn substructure<'a>(
    reader: &mut Reader<'a>,
    what: &'static str,
    more: u8,
    expected: &'static str,
) -> Result<(Reader<'a>, bool), ParseError> {
    let place = reader.place();
    let follows = reader.u8(what)?;
    if follows != LAST && follows != more {
        return Err(bad_value(place, "last substructure", follows, expected));
    }
    reader.u8(what)?;
    let length = reader.u16(what)?;
    let Some(body) = usize::from(length).checked_sub(4) else {
        return Err(bad_value(place, "length of the substructure", length, "at least 4"));
    };
    Ok((reader.sub(body, what)?, follows == more))
}

impl Proposal {
    /// Transforms of one type, in order.
    pub fn transforms_of(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |transform| transform.kind == kind)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let number = reader.u8("proposal number")?;
        let protocol = Protocol::from(reader.u8("protocol")?);
        let spi_size = reader.u8("SPI size")?;
        let place = reader.place();
        let stated = reader.u8("number of transforms")?;
        let spi = SaSpi::from_bytes(reader.take(usize::from(spi_size), "SPI")?);
        let miscounted = bad_value(place, "number of transforms", stated, "as many as follow");
        let mut transforms = Vec::new();
        let mut more = !reader.is_empty();
        while more {
            if transforms.len() >= usize::from(stated) {
                return Err(miscounted);
            }
            let body;
            (body, more) =
                substructure(reader, "transform", MORE_TRANSFORMS, "0 (last) or 3 (more transforms)")?;
            transforms.push(Transform::read(body)?);
        }
        reader.end("the last transform")?;
        if transforms.len() != usize::from(stated) {
            return Err(miscounted);
        }
        Ok(Self { number, protocol, spi, transforms })
    }

    fn write(&self, follows: u8, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let spi = self.spi.to_bytes();
        let spi_size = narrow_u8("length of an SPI", spi.len())?;
        let mut left = narrow_u8("number of transforms", self.transforms.len())?;
        with_length(out, [follows, 0], "length of a proposal", |out| {
            out.extend_from_slice(&[self.number, u8::from(self.protocol), spi_size, left]);
            out.extend_from_slice(&spi);
            for transform in &self.transforms {
                left = left.saturating_sub(1);
                transform.write(if left == 0 { LAST } else { MORE_TRANSFORMS }, out)?;
            }
            Ok(())
        })
    }
}

impl Transform {
    /// A transform without attributes.
    pub fn new(kind: TransformType, id: TransformId) -> Self {
        Self { kind, id, attributes: Vec::new() }
    }

    /// A cipher with a key of `bits`.
    pub fn cipher(id: TransformId, bits: u16) -> Self {
        Self { kind: TransformType::Encryption, id, attributes: vec![Attribute::KeyLength(bits)] }
    }

    fn read(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let kind = TransformType::from(reader.u8("transform type")?);
        reader.u8("reserved octet of a transform")?;
        let id = TransformId(reader.u16("transform ID")?);
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            attributes.push(Attribute::read(&mut reader)?);
        }
        Ok(Self { kind, id, attributes })
    }

    fn write(&self, follows: u8, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        with_length(out, [follows, 0], "length of a transform", |out| {
            out.extend_from_slice(&[u8::from(self.kind), 0]);
            out.extend_from_slice(&self.id.0.to_be_bytes());
            self.attributes.iter().try_for_each(|attribute| attribute.write(out))
        })
    }
}

impl Attribute {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let tag = reader.u16("attribute type")?;
        let value = reader.u16("attribute value or length")?;
        let kind = tag & !ATTRIBUTE_FORMAT_TV;
        if tag & ATTRIBUTE_FORMAT_TV == 0 {
            let value = reader.take(usize::from(value), "attribute value")?.to_vec();
            return Ok(Self::Long { kind, value });
        }
        Ok(match kind {
            ATTRIBUTE_KEY_LENGTH => Self::KeyLength(value),
            kind => Self::Short { kind, value },
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (tag, value) = match self {
            Self::KeyLength(bits) => (ATTRIBUTE_KEY_LENGTH | ATTRIBUTE_FORMAT_TV, *bits),
            Self::Short { kind, value } => (attribute_type(*kind)? | ATTRIBUTE_FORMAT_TV, *value),
            Self::Long { kind, value } => {
                (attribute_type(*kind)?, narrow_u16("length of an attribute", value.len())?)
            }
        };
        out.extend_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
        if let Self::Long { value, .. } = self {
            out.extend_from_slice(value);
        }
        Ok(())
    }
}

fn attribute_type(kind: u16) -> Result<u16, EncodeError> {
    let limit = !ATTRIBUTE_FORMAT_TV;
    if kind > limit {
        return Err(EncodeError {
            what: "attribute type",
            found: usize::from(kind),
            limit: usize::from(limit),
        });
    }
    Ok(kind)
}
