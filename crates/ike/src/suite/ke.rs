//! Key exchange: X25519 (RFC 8031), ECP groups (RFC 5903), MODP groups (RFC 3526) and ML-KEM (FIPS
//! 203).

use super::entropy::Entropy;
use super::error::SuiteError;
use super::secret::Secret;
use super::{mlkem, modp};
use crate::config::KeyExchange;
use crate::message::{KeMethod, KePayload};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Our half of a pending key exchange that we began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KePrivate {
    method: KeyExchange,
    private: Secret,
    public: Vec<u8>,
}

/// Bound on the draws for an ECP group. One fails with probability 2^-32 at most; a source that
/// fails this often is broken.
const DRAWS: usize = 16;
/// Precedes an uncompressed point in SEC 1, but not in RFC 5903 §7.
const UNCOMPRESSED: u8 = 4;

impl KePrivate {
    /// Makes a new private key.
    pub fn generate(method: KeyExchange, entropy: &mut dyn Entropy) -> Result<Self, SuiteError> {
        let mut keys = (0..DRAWS).map(|_| Self::of(method, draw_private(method, entropy)));
        // For ECP, zero and values not below the order are no keys. Drawing again keeps the rest
        // uniform.
        keys.find_map(Result::ok).ok_or(SuiteError::Entropy(method))
    }

    /// The private key with these octets.
    fn of(method: KeyExchange, private: Secret) -> Result<Self, SuiteError> {
        Ok(Self { method, public: public_value(method, &private)?, private })
    }

    /// The method.
    pub fn method(&self) -> KeyExchange {
        self.method
    }

    /// The KE payload to send.
    pub fn payload(&self) -> KePayload {
        KePayload { method: self.method.into(), data: self.public.clone() }
    }

    /// The shared secret from the responder's answer. Refuses invalid values, and the all-zero
    /// secret.
    pub fn agree(&self, answer: &KePayload) -> Result<Secret, SuiteError> {
        check(self.method, answer, answer_length(self.method))?;
        if is_kem(self.method) {
            return mlkem::decapsulate(self.method, &self.private, &answer.data);
        }
        self.diffie_hellman(&answer.data)
    }

    /// g^ir; `peer` has the right length.
    fn diffie_hellman(&self, peer: &[u8]) -> Result<Secret, SuiteError> {
        let Some((algorithm, prefix)) = curve(self.method) else {
            return modp::agree(self.method, &self.private, peer);
        };
        let public = [prefix, peer].concat();
        let key = load(self.method, algorithm, &self.private)?;
        let invalid = SuiteError::KePublic(self.method.into());
        // The library checks that the point is on the curve and not at infinity, and that X25519
        // does not give zero.
        agreement::agree(&key, UnparsedPublicKey::new(algorithm, public), invalid, |shared| {
            Ok(Secret::new(shared.to_vec()))
        })
    }
}

/// All random input of a responder's part of a key exchange. The rest is a computation that depends
/// on nothing else, so that any thread can do it.
#[derive(Debug)]
pub struct KeDraw {
    method: KeyExchange,
    /// A private key, or the message that a KEM encapsulates.
    octets: Secret,
    /// For P-256 one draw in 2^32 is no key.
    spare: Option<Secret>,
}

impl KeDraw {
    /// Draws the octets.
    pub fn new(method: KeyExchange, entropy: &mut dyn Entropy) -> Self {
        if is_kem(method) {
            return Self { method, octets: draw(mlkem::MESSAGE, u8::MAX, entropy), spare: None };
        }
        let octets = draw_private(method, entropy);
        let spare = (method == KeyExchange::Ecp256).then(|| draw_private(method, entropy));
        Self { method, octets, spare }
    }

    /// The responder's whole part: the KE payload that answers `request`, and the shared secret.
    /// For a KEM the answer depends on the request.
    pub fn respond(self, request: &KePayload) -> Result<(KePayload, Secret), SuiteError> {
        let Self { method, octets, spare } = self;
        check(method, request, public_length(method))?;
        if is_kem(method) {
            let (data, shared) = mlkem::encapsulate(method, &request.data, &octets)?;
            return Ok((KePayload { method: method.into(), data }, shared));
        }
        let drawn = std::iter::once(octets).chain(spare);
        let ours = drawn.map(|octets| KePrivate::of(method, octets)).find_map(Result::ok);
        let ours = ours.ok_or(SuiteError::Entropy(method))?;
        let shared = ours.diffie_hellman(&request.data)?;
        Ok((ours.payload(), shared))
    }
}

/// Draws and computes a responder's part at once.
pub fn respond(
    method: KeyExchange,
    request: &KePayload,
    entropy: &mut dyn Entropy,
) -> Result<(KePayload, Secret), SuiteError> {
    KeDraw::new(method, entropy).respond(request)
}

/// Draws a private key's length of octets.
fn draw_private(method: KeyExchange, entropy: &mut dyn Entropy) -> Secret {
    // The order of P-521 has 521 bits.
    let top = if method == KeyExchange::Ecp521 { 1 } else { u8::MAX };
    draw(private_length(method), top, entropy)
}

/// Random octets, the first of which has only the bits of `top`.
fn draw(length: usize, top: u8, entropy: &mut dyn Entropy) -> Secret {
    let mut octets = Zeroizing::new(vec![0; length]);
    entropy.fill(&mut octets);
    octets.first_mut().into_iter().for_each(|first| *first &= top);
    Secret::new(std::mem::take(&mut *octets))
}

/// Checks method and length of the peer's KE payload.
fn check(method: KeyExchange, peer: &KePayload, expected: usize) -> Result<(), SuiteError> {
    let method = KeMethod::from(method);
    if peer.method != method {
        return Err(SuiteError::KeMethod { found: peer.method, expected: method });
    }
    if peer.data.len() != expected {
        return Err(SuiteError::KeLength { method, found: peer.data.len(), expected });
    }
    Ok(())
}

/// True if the responder's value is made for the initiator's.
fn is_kem(method: KeyExchange) -> bool {
    matches!(method, KeyExchange::MlKem512 | KeyExchange::MlKem768 | KeyExchange::MlKem1024)
}

/// The curve, and the octets that the library needs before a public value. `None` if there is no
/// curve.
fn curve(method: KeyExchange) -> Option<(&'static agreement::Algorithm, &'static [u8])> {
    match method {
        KeyExchange::X25519 => Some((&agreement::X25519, &[])),
        KeyExchange::Ecp256 => Some((&agreement::ECDH_P256, &[UNCOMPRESSED])),
        KeyExchange::Ecp384 => Some((&agreement::ECDH_P384, &[UNCOMPRESSED])),
        KeyExchange::Ecp521 => Some((&agreement::ECDH_P521, &[UNCOMPRESSED])),
        KeyExchange::Modp1024
        | KeyExchange::Modp1536
        | KeyExchange::Modp2048
        | KeyExchange::Modp3072
        | KeyExchange::Modp4096 => None,
        KeyExchange::MlKem512 | KeyExchange::MlKem768 | KeyExchange::MlKem1024 => None,
    }
}

/// Octets of a private key.
fn private_length(method: KeyExchange) -> usize {
    match method {
        KeyExchange::X25519 | KeyExchange::Ecp256 => 32,
        KeyExchange::Ecp384 => 48,
        KeyExchange::Ecp521 => 66,
        KeyExchange::Modp1024
        | KeyExchange::Modp1536
        | KeyExchange::Modp2048
        | KeyExchange::Modp3072
        | KeyExchange::Modp4096 => modp::PRIVATE_LENGTH,
        KeyExchange::MlKem512 | KeyExchange::MlKem768 | KeyExchange::MlKem1024 => mlkem::SEED,
    }
}

/// Octets of an initiator's public value in the KE payload.
fn public_length(method: KeyExchange) -> usize {
    match method {
        KeyExchange::X25519 => 32,
        KeyExchange::Ecp256 => 64,
        KeyExchange::Ecp384 => 96,
        KeyExchange::Ecp521 => 132,
        KeyExchange::Modp1024 => 128,
        KeyExchange::Modp1536 => 192,
        KeyExchange::Modp2048 => 256,
        KeyExchange::Modp3072 => 384,
        KeyExchange::Modp4096 => 512,
        KeyExchange::MlKem512 => 800,
        KeyExchange::MlKem768 => 1184,
        KeyExchange::MlKem1024 => 1568,
    }
}

/// Octets of a responder's public value: never more than the initiator sent.
fn answer_length(method: KeyExchange) -> usize {
    match method {
        KeyExchange::MlKem512 => 768,
        KeyExchange::MlKem768 => 1088,
        KeyExchange::MlKem1024 => 1568,
        _ => public_length(method),
    }
}

fn load(
    method: KeyExchange,
    algorithm: &'static agreement::Algorithm,
    private: &Secret,
) -> Result<PrivateKey, SuiteError> {
    PrivateKey::from_private_key(algorithm, private.expose())
        .map_err(|_| SuiteError::KePrivate(method.into()))
}

fn public_value(method: KeyExchange, private: &Secret) -> Result<Vec<u8>, SuiteError> {
    if is_kem(method) {
        return mlkem::public_value(method, private);
    }
    let Some((algorithm, prefix)) = curve(method) else { return modp::public_value(method, private) };
    let invalid = SuiteError::KePrivate(method.into());
    let key = load(method, algorithm, private)?;
    let public = key.compute_public_key().map_err(|_| invalid.clone())?;
    Ok(public.as_ref().strip_prefix(prefix).ok_or(invalid)?.to_vec())
}
