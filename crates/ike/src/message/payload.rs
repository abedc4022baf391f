//! The payloads of a message, by type.

use super::auth::AuthPayload;
use super::cert::CertPayload;
use super::cp::Configuration;
use super::delete::Delete;
use super::error::{EncodeError, ParseError};
use super::id::IdPayload;
use super::ke::KePayload;
use super::nonce::Nonce;
use super::notify::Notify;
use super::number::{CertEncoding, NotifyType, PayloadType};
use super::opaque::{UnknownPayload, VendorId};
use super::reader::Reader;
use super::sa::SaPayload;
use super::ts::TsPayload;
use serde::{Deserialize, Serialize};

/// A payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// SA.
    Sa(SaPayload),
    /// KE.
    Ke(KePayload),
    /// IDi.
    IdInitiator(IdPayload),
    /// IDr.
    IdResponder(IdPayload),
    /// CERT.
    Certificate(CertPayload),
    /// CERTREQ.
    CertificateRequest(CertPayload),
    /// AUTH.
    Auth(AuthPayload),
    /// Nonce.
    Nonce(Nonce),
    /// N.
    Notify(Notify),
    /// D.
    Delete(Delete),
    /// V.
    VendorId(VendorId),
    /// TSi.
    TsInitiator(TsPayload),
    /// TSr.
    TsResponder(TsPayload),
    /// CP.
    Configuration(Configuration),
    /// Any other.
    Unknown(UnknownPayload),
}

impl Payload {
    /// Its type on the wire.
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SecurityAssociation,
            Self::Ke(_) => PayloadType::KeyExchange,
            Self::IdInitiator(_) => PayloadType::IdInitiator,
            Self::IdResponder(_) => PayloadType::IdResponder,
            Self::Certificate(_) => PayloadType::Certificate,
            Self::CertificateRequest(_) => PayloadType::CertificateRequest,
            Self::Auth(_) => PayloadType::Authentication,
            Self::Nonce(_) => PayloadType::Nonce,
            Self::Notify(_) => PayloadType::Notify,
            Self::Delete(_) => PayloadType::Delete,
            Self::VendorId(_) => PayloadType::VendorId,
            Self::TsInitiator(_) => PayloadType::TsInitiator,
            Self::TsResponder(_) => PayloadType::TsResponder,
            Self::Configuration(_) => PayloadType::Configuration,
            Self::Unknown(payload) => payload.kind,
        }
    }

    /// Reads what follows the generic header of a payload of type `kind`.
    pub(super) fn read(kind: PayloadType, mut body: Reader<'_>) -> Result<Self, ParseError> {
        Ok(match kind {
            PayloadType::SecurityAssociation => Self::Sa(SaPayload::read(body)?),
            PayloadType::KeyExchange => Self::Ke(KePayload::read(body)?),
            PayloadType::IdInitiator => Self::IdInitiator(IdPayload::read(body)?),
            PayloadType::IdResponder => Self::IdResponder(IdPayload::read(body)?),
            PayloadType::Certificate => Self::Certificate(CertPayload::read(body)?),
            PayloadType::CertificateRequest => Self::CertificateRequest(CertPayload::read(body)?),
            PayloadType::Authentication => Self::Auth(AuthPayload::read(body)?),
            PayloadType::Nonce => Self::Nonce(Nonce::read(body)?),
            PayloadType::Notify => Self::Notify(Notify::read(body)?),
            PayloadType::Delete => Self::Delete(Delete::read(body)?),
            PayloadType::VendorId => Self::VendorId(VendorId(body.rest().to_vec())),
            PayloadType::TsInitiator => Self::TsInitiator(TsPayload::read(body)?),
            PayloadType::TsResponder => Self::TsResponder(TsPayload::read(body)?),
            PayloadType::Configuration => Self::Configuration(Configuration::read(body)?),
            kind => Self::Unknown(UnknownPayload { kind, body: body.rest().to_vec() }),
        })
    }

    /// Writes what follows the generic header.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Sa(payload) => payload.write(out)?,
            Self::Ke(payload) => payload.write(out),
            Self::IdInitiator(payload) | Self::IdResponder(payload) => payload.write(out),
            Self::Certificate(payload) | Self::CertificateRequest(payload) => payload.write(out),
            Self::Auth(payload) => payload.write(out),
            Self::Nonce(nonce) => out.extend_from_slice(nonce.as_ref()),
            Self::Notify(payload) => payload.write(out)?,
            Self::Delete(payload) => payload.write(out)?,
            Self::VendorId(VendorId(id)) => out.extend_from_slice(id),
            Self::TsInitiator(payload) | Self::TsResponder(payload) => payload.write(out)?,
            Self::Configuration(payload) => payload.write(out)?,
            Self::Unknown(payload) => out.extend_from_slice(&payload.body),
        }
        Ok(())
    }
}

/// The payloads of a message or of its Encrypted payload, in order. SA, KE, IDi, IDr, AUTH, Nonce,
/// TSi, TSr and CP occur at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payloads(pub(super) Vec<Payload>);

/// Declares the look-up of a payload that occurs at most once.
macro_rules! single {
    ($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty) => {
        $(#[$doc])*
        pub fn $name(&self) -> Option<&$type> {
            self.0.iter().find_map(|payload| match payload {
                Payload::$variant(payload) => Some(payload),
                _ => None,
            })
        }
    };
}

impl Payloads {
    single!(
        /// The SA payload.
        sa: Sa -> SaPayload
    );
    single!(
        /// The KE payload.
        ke: Ke -> KePayload
    );
    single!(
        /// The IDi payload.
        id_initiator: IdInitiator -> IdPayload
    );
    single!(
        /// The IDr payload.
        id_responder: IdResponder -> IdPayload
    );
    single!(
        /// The AUTH payload.
        auth: Auth -> AuthPayload
    );
    single!(
        /// The nonce.
        nonce: Nonce -> Nonce
    );
    single!(
        /// The TSi payload.
        ts_initiator: TsInitiator -> TsPayload
    );
    single!(
        /// The TSr payload.
        ts_responder: TsResponder -> TsPayload
    );
    single!(
        /// The CP payload.
        configuration: Configuration -> Configuration
    );

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Payload> {
        self.0.iter()
    }

    /// True for an empty INFORMATIONAL, for example.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All certificates, in order.
    pub fn certificates(&self) -> impl Iterator<Item = &CertPayload> {
        self.0.iter().filter_map(|payload| match payload {
            Payload::Certificate(certificate) => Some(certificate),
            _ => None,
        })
    }

    /// True if certificates of this encoding are requested.
    pub fn asks_for_certificates(&self, encoding: CertEncoding) -> bool {
        self.0.iter().any(|p| matches!(p, Payload::CertificateRequest(asked) if asked.encoding == encoding))
    }

    /// All notifies, in order.
    pub fn notifies(&self) -> impl Iterator<Item = &Notify> {
        self.0.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify),
            _ => None,
        })
    }

    /// The first notify of a kind.
    pub fn notify(&self, kind: NotifyType) -> Option<&Notify> {
        self.notifies().find(|notify| notify.kind == kind)
    }

    /// The first error notify, known or not.
    pub fn error(&self) -> Option<&Notify> {
        self.notifies().find(|notify| notify.kind.is_error())
    }

    /// All deletes, in order.
    pub fn deletes(&self) -> impl Iterator<Item = &Delete> {
        self.0.iter().filter_map(|payload| match payload {
            Payload::Delete(delete) => Some(delete),
            _ => None,
        })
    }
}

impl From<Payloads> for Vec<Payload> {
    fn from(payloads: Payloads) -> Self {
        payloads.0
    }
}

impl<'a> IntoIterator for &'a Payloads {
    type Item = &'a Payload;
    type IntoIter = std::slice::Iter<'a, Payload>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
