//! The IKEv2 wire format (RFC 7296 §3): octets to typed payloads and back.
//!
//! All input comes from the wire. So this module must not panic and must not allocate more than a
//! small multiple of its input, and it knows no key and no state. Well-formed but unknown parts are
//! kept ([`Payload::Unknown`], unknown numbers, unknown transforms) so that the reader can skip
//! them as the RFC requires.
//!
//! - [`Message::parse`] reads a datagram. If it ends in an Encrypted payload, `suite::sk` opens
//!   [`Message::encrypted`], and [`Payloads::parse`] reads the payloads inside.
//! - [`MessageBuilder`] writes one, either in clear or as a [`Draft`] for `suite::sk` to seal.

mod auth;
mod build;
mod cert;
mod counter_sync;
mod cp;
mod delete;
mod error;
mod head;
mod header;
mod id;
mod ke;
mod nonce;
mod notify;
mod number;
mod opaque;
mod parse;
mod payload;
mod reader;
mod sa;
mod spi;
mod ts;
mod writer;

pub use auth::AuthPayload;
pub use build::{Draft, MessageBuilder};
pub use cert::CertPayload;
pub use counter_sync::{MessageIdSync, ReplayCounterSync};
pub use cp::{CfgAttribute, Configuration};
pub use delete::Delete;
pub use error::{EncodeError, ParseError, Place};
pub(crate) use head::adjusted;
pub use header::{Header, IkeSpi, MessageId};
pub use id::IdPayload;
pub use ke::KePayload;
pub use nonce::{Nonce, NonceError};
pub use notify::{Notify, NotifySa};
pub use number::{
    AuthMethodId, CertEncoding, CfgAttributeType, CfgType, ExchangeType, IdType, KeMethod, NotifyType,
    PayloadType, Protocol, TransformType,
};
pub use opaque::{UnknownPayload, VendorId};
pub use parse::{Encrypted, Fragment, MAX_PAYLOADS, Message};
pub use payload::{Payload, Payloads};
pub use sa::{Attribute, Proposal, SaPayload, Transform, TransformId};
pub use spi::SaSpi;
pub use ts::{TsPayload, UnknownSelector};
