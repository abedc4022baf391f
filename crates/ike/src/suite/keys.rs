//! SKEYSEED, the keys of an IKE SA and those of its Child SAs (RFC 7296 §2.14, §2.17, §2.18).

use super::algorithm::{IkeSuite, Role};
use super::error::SuiteError;
use super::secret::Secret;
use super::sk::{SkOpener, SkSealer};
use crate::config::Prf;
use crate::message::{IkeSpi, Nonce};
use serde::{Deserialize, Serialize};
use testudo_base::spi::SenderId;
use testudo_ipsec::sa::{EspAlgorithm, KeyMaterial};
use zeroize::Zeroizing;

/// The nonces of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonces {
    /// Ni.
    pub initiator: Nonce,
    /// Nr.
    pub responder: Nonce,
}

/// The SPIs of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IkeSpis {
    /// SPIi.
    pub initiator: IkeSpi,
    /// SPIr.
    pub responder: IkeSpi,
}

/// The keys of an IKE SA. With an AEAD SK_ai and SK_ar are empty (RFC 5282 §7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IkeKeys {
    suite: IkeSuite,
    d: Secret,
    /// SK_ai, SK_ar, SK_ei, SK_er, SK_pi and SK_pr, concatenated; empty once they are forgotten. In
    /// one allocation, because a gateway has tens of thousands of IKE SAs, most of which do not
    /// need these any more.
    others: Secret,
}

/// The keys of a Child SA, as taken from KEYMAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildKeys {
    /// For packets from the initiator of the exchange to its responder.
    pub from_initiator: KeyMaterial,
    /// For packets from the responder of the exchange to its initiator.
    pub from_responder: KeyMaterial,
}

impl IkeKeys {
    /// The keys of an IKE SA that IKE_SA_INIT sets up. `shared` is g^ir.
    pub fn derive(
        suite: IkeSuite,
        shared: &Secret,
        nonces: &Nonces,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        let (initiator, responder) = (nonces.initiator.as_ref(), nonces.responder.as_ref());
        // A PRF with a fixed key length takes half of it from each nonce (RFC 7296 §2.14).
        let half = |nonce: &'_ [u8]| match suite.prf {
            Prf::AesXcbc => nonce.get(..suite.prf.length() / 2).unwrap_or(nonce).to_vec(),
            Prf::HmacSha1 | Prf::HmacSha256 | Prf::HmacSha384 | Prf::HmacSha512 => nonce.to_vec(),
        };
        let key = [half(initiator), half(responder)].concat();
        let skeyseed = suite.prf.compute(&key, &[shared.expose()])?;
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// The keys of the IKE SA that replaces this one (RFC 7296 §2.18). SKEYSEED comes from the old
    /// PRF, the rest from the new. `shared`: the results of its key exchanges, in their order (RFC
    /// 9370 §2.2.4).
    pub fn derive_rekeyed(
        &self,
        suite: IkeSuite,
        shared: &[Secret],
        nonces: &Nonces,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        if shared.is_empty() {
            return Err(SuiteError::NoKeyExchange);
        }
        let skeyseed = self.suite.prf.compute(self.d.expose(), &fresh(shared, nonces))?;
        Self::expand(suite, &skeyseed, nonces, spis)
    }

    /// The keys after an additional key exchange, of the same IKE SA (RFC 9370 §2.2.2). `nonces`
    /// and `spis` are those of IKE_SA_INIT.
    pub fn derive_additional(
        &self,
        shared: &Secret,
        nonces: &Nonces,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        self.derive_rekeyed(self.suite, std::slice::from_ref(shared), nonces, spis)
    }

    /// The keys with a post-quantum pre-shared key mixed in (RFC 8784 §3). The protection of
    /// messages does not change.
    pub fn with_ppk(&self, ppk: &[u8]) -> Result<Self, SuiteError> {
        let mix = |key: &[u8]| self.suite.prf.plus(ppk, &[key], key.len());
        let [pi, pr] = [Role::Initiator, Role::Responder].map(|role| self.identity_key(role).and_then(mix));
        let (pi, pr) = (pi?, pr?);
        let kept = self.others.len().saturating_sub(pi.len() + pr.len());
        let message_keys = self.others.expose().get(..kept).unwrap_or_default();
        let others = Zeroizing::new([message_keys, pi.expose(), pr.expose()].concat());
        Ok(Self { suite: self.suite, d: mix(self.d.expose())?, others: Secret::from(&others) })
    }

    /// A key for digests of secrets that stay with the IKE SA. Nothing else is derived this way: the
    /// seeds of other keys begin with a key exchange or a nonce.
    pub(crate) fn key_of_marks(&self) -> Result<Secret, SuiteError> {
        self.suite.prf.compute(self.d.expose(), &[b"marks of shared secrets"])
    }

    fn expand(
        suite: IkeSuite,
        skeyseed: &Secret,
        nonces: &Nonces,
        spis: IkeSpis,
    ) -> Result<Self, SuiteError> {
        let (prf, others) = (suite.prf.length(), lengths(suite).iter().sum::<usize>());
        let seed: [&[u8]; 4] = [
            nonces.initiator.as_ref(),
            nonces.responder.as_ref(),
            &spis.initiator.to_bytes(),
            &spis.responder.to_bytes(),
        ];
        let stream = suite.prf.plus(skeyseed.expose(), &seed, prf.saturating_add(others))?;
        let mut rest = stream.expose();
        let mut next = |length| take(&mut rest, length).map(Secret::from);
        Ok(Self { suite, d: next(prf)?, others: next(others)? })
    }

    /// The algorithms of the keys.
    pub fn suite(&self) -> IkeSuite {
        self.suite
    }

    /// SK_pi or SK_pr: the key that binds the identity of `role` into AUTH.
    pub(super) fn identity_key(&self, role: Role) -> Result<&[u8], SuiteError> {
        let [.., pi, pr] = self.others()?;
        Ok(match role {
            Role::Initiator => pi,
            Role::Responder => pr,
        })
    }

    /// SK_e and SK_a of `role`.
    fn message_keys(&self, role: Role) -> (Secret, Secret) {
        // Once they are forgotten, nothing can be sealed or opened with the rest: it does not have
        // the right length.
        let [ai, ar, ei, er, ..] = self.others().unwrap_or_default();
        let (encryption, integrity) = match role {
            Role::Initiator => (ei, ai),
            Role::Responder => (er, ar),
        };
        (Secret::from(encryption), Secret::from(integrity))
    }

    /// All keys except SK_d, in their order. Fails once they are forgotten.
    fn others(&self) -> Result<[&[u8]; 6], SuiteError> {
        let mut rest = self.others.expose();
        let mut keys = [[].as_slice(); 6];
        for (key, length) in keys.iter_mut().zip(lengths(self.suite)) {
            *key = take(&mut rest, length)?;
        }
        Ok(keys)
    }

    /// The sealer of `role`'s messages. To be made once: a second one would use the same IVs.
    pub fn sealer(&self, role: Role, sender: SenderId) -> SkSealer {
        let (encryption, integrity) = self.message_keys(role);
        SkSealer::new(self.suite, encryption, integrity, sender)
    }

    /// The opener of `role`'s messages.
    pub fn opener(&self, role: Role) -> SkOpener {
        let (encryption, integrity) = self.message_keys(role);
        SkOpener::new(self.suite, encryption, integrity)
    }

    /// Wipes the keys that are not needed once there are sealer and opener and both sides are
    /// authenticated: all but SK_d.
    pub fn forget_all_but_root(&mut self) {
        self.others = Secret::new(Vec::new());
    }

    /// The keys of a Child SA. `shared`: the results of its own key exchanges, in their order, if
    /// CREATE_CHILD_SA had any (RFC 9370 §2.2.4).
    pub fn child(
        &self,
        algorithm: EspAlgorithm,
        shared: &[Secret],
        nonces: &Nonces,
    ) -> Result<ChildKeys, SuiteError> {
        let length = algorithm.key_len();
        let seed = fresh(shared, nonces);
        let stream = self.suite.prf.plus(self.d.expose(), &seed, length.saturating_mul(2))?;
        let mut rest = stream.expose();
        Ok(ChildKeys {
            from_initiator: KeyMaterial(take(&mut rest, length)?.to_vec()),
            from_responder: KeyMaterial(take(&mut rest, length)?.to_vec()),
        })
    }
}

/// Octets of SK_ai, SK_ar, SK_ei, SK_er, SK_pi and SK_pr.
fn lengths(suite: IkeSuite) -> [usize; 6] {
    let (integrity, cipher, prf) = (suite.integrity_key(), suite.encryption.material(), suite.prf.length());
    [integrity, integrity, cipher, cipher, prf, prf]
}

/// The new material of CREATE_CHILD_SA's keys: SK(0) | Ni | Nr | SK(1) | ... | SK(n).
fn fresh<'a>(shared: &'a [Secret], nonces: &'a Nonces) -> Vec<&'a [u8]> {
    let (first, additional) = shared.split_at(shared.len().min(1));
    let nonces = [nonces.initiator.as_ref(), nonces.responder.as_ref()];
    let secrets = |secrets: &'a [Secret]| secrets.iter().map(Secret::expose);
    secrets(first).chain(nonces).chain(secrets(additional)).collect()
}

/// Takes the next key off the stream.
fn take<'a>(stream: &mut &'a [u8], length: usize) -> Result<&'a [u8], SuiteError> {
    let short = SuiteError::KeyLength { found: stream.len(), expected: length };
    stream.split_off(..length).ok_or(short)
}
