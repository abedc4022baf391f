//! AUTH: the holder of the key has seen the same IKE_SA_INIT (RFC 7296 §2.15).

use super::algorithm::Role;
use super::error::SuiteError;
use super::keys::IkeKeys;
use crate::message::{AuthMethodId, AuthPayload, IdPayload, Nonce};
use subtle::ConstantTimeEq;

const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// What one side signs, before SK_p binds its identity to it.
#[derive(Clone, Copy, Debug)]
pub struct SignedOctets<'a> {
    /// The signer's own IKE_SA_INIT message: the last one, if it was repeated with a cookie or
    /// another KE.
    pub message: &'a [u8],
    /// The other side's nonce.
    pub peer_nonce: &'a Nonce,
    /// The signer's identity.
    pub id: &'a IdPayload,
    /// [`super::IntAuth::octets`], equal for both signers.
    pub int_auth: &'a [u8],
}

impl IkeKeys {
    /// The octets that AUTH of `signer` covers, bound to its identity: the input of a digital
    /// signature.
    pub fn signed_octets(&self, signer: Role, octets: &SignedOctets<'_>) -> Result<Vec<u8>, SuiteError> {
        let prf = self.suite().prf;
        let maced_id = prf.compute(self.identity_key(signer)?, &[&octets.id.body()])?;
        Ok([octets.message, octets.peer_nonce.as_ref(), maced_id.expose(), octets.int_auth].concat())
    }

    /// The AUTH payload of `signer`, which holds the pre-shared key `psk`.
    pub fn psk_auth(
        &self,
        signer: Role,
        psk: &[u8],
        octets: &SignedOctets<'_>,
    ) -> Result<AuthPayload, SuiteError> {
        let prf = self.suite().prf;
        let key = prf.compute(psk, &[KEY_PAD])?;
        let data = prf.compute(key.expose(), &[&self.signed_octets(signer, octets)?])?.expose().to_vec();
        Ok(AuthPayload { method: AuthMethodId::SharedKeyMic, data })
    }

    /// True if `auth` proves that `signer` holds the pre-shared key `psk`.
    pub fn psk_verify(
        &self,
        signer: Role,
        psk: &[u8],
        octets: &SignedOctets<'_>,
        auth: &AuthPayload,
    ) -> Result<bool, SuiteError> {
        let expected = self.psk_auth(signer, psk, octets)?;
        Ok(auth.method == expected.method && bool::from(auth.data.ct_eq(&expected.data)))
    }
}
