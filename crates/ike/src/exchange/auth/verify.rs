//! The peer's side of authentication: verifying AUTH, and the trust in its key.

use crate::cert::{
    Certificate, Credentials, Hash, Hashes, PublicKey, RawKey, Schemes, SignatureScheme, Spent, Trust,
};
use crate::config::{AuthMethod, Connection, Identity, RemoteAuth, SharedSecret};
use crate::exchange::auth::error::{AuthError, SignatureError};
use crate::exchange::auth::form::Form;
use crate::exchange::session::Session;
use crate::message::{AuthMethodId, AuthPayload, CertEncoding, Nonce, Payloads};
use crate::output::UnixTime;
use crate::sa::{Anchor, IkeSa};
use crate::suite::{IkeKeys, Role, SignedOctets};
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

/// Bound on the certificates that are read from one message.
pub(super) const MAX_CERTIFICATES: usize = 8;

/// The claim of a peer.
#[derive(Clone, Copy)]
pub(super) struct AuthClaim<'a> {
    /// The keys that bind the peer's identity to AUTH.
    pub(super) keys: &'a IkeKeys,
    /// The peer's IKE_SA_INIT message.
    pub(super) message: &'a [u8],
    /// Our nonce.
    pub(super) nonce: &'a Nonce,
    /// The part of IKE_INTERMEDIATE that both AUTH cover (RFC 9242 §3.3.2).
    pub(super) int_auth: &'a [u8],
    pub(super) id: &'a crate::message::IdPayload,
    pub(super) identity: &'a Identity,
    pub(super) auth: &'a AuthPayload,
    /// Our identity to the peer.
    pub(super) local: &'a Identity,
}

/// A true claim.
pub(super) struct Proven {
    /// For the log.
    pub(super) line: String,
    /// The trust anchor, if the peer has a certificate.
    pub(super) anchor: Option<Anchor>,
    /// The shared key, if the peer has proved itself by one, and our identity for which it was found.
    pub(super) secret: Option<(Identity, SharedSecret)>,
}

impl Session<'_> {
    /// Remembers what a peer has proved itself by: the shared key, or the CA that has vouched for it.
    pub(super) fn note_proof(&mut self, identity: &Identity, proven: &Proven) {
        let found = proven.secret.as_ref().map(|(local, secret)| (local, secret));
        self.sa.note_shared_key(found);
        if let Some(anchor) = proven.anchor {
            self.env.effects.note_voucher(self.sa.id, identity, anchor, &proven.line);
        }
    }
}

/// How a claim is decided.
pub(super) enum Check {
    /// Decided at once.
    Known(Result<Proven, AuthError>),
    /// There is a signature to verify.
    Signature(Box<SignedClaim>),
}

/// A signature of a peer, and the requirements for it.
pub(super) struct SignedClaim {
    connection: Arc<Connection>,
    /// Number of the peer's round.
    round: usize,
    identity: Identity,
    auth: AuthPayload,
    /// The signed octets.
    octets: Vec<u8>,
    /// The allowed schemes, and hashes of certificates.
    schemes: Schemes,
    chain: Hashes,
    /// RSA with SHA-1 is allowed (RFC 7296 §3.8).
    sha1: bool,
    /// The CAs trusted by the connection.
    anchors: Vec<Certificate>,
}

/// The material for verifying signatures: their message, and what was loaded then.
pub(super) struct Judge {
    now: UnixTime,
    payloads: Arc<Payloads>,
    credentials: Arc<Credentials>,
}

/// The evidence for a claim that all connections share: worked out and bounded once for a message.
/// Otherwise a peer could have it done as often as there are connections.
#[derive(Default)]
pub(super) struct Evidence {
    certificates: OnceCell<Result<Vec<Certificate>, SignatureError>>,
    /// The public key that the peer has sent without a certificate.
    raw_key: OnceCell<Result<Option<RawKey>, SignatureError>>,
    verified: RefCell<Vec<Verified>>,
    spent: Spent,
}

/// Whether AUTH was made with a key. A connection with a PPK has other octets to sign than one
/// without, and may have another AUTH (RFC 8784 §3).
struct Verified {
    key: PublicKey,
    octets: Vec<u8>,
    auth: AuthPayload,
    is_right: bool,
}

impl Evidence {
    fn known(&self, key: &PublicKey, signed: &SignedClaim) -> Option<bool> {
        let is_it = |known: &&Verified| {
            known.key == *key && known.octets == signed.octets && known.auth == signed.auth
        };
        self.verified.borrow().iter().find(is_it).map(|known| known.is_right)
    }

    fn is_signed_by(&self, key: &PublicKey, signed: &SignedClaim, signature: &Signature<'_>) -> bool {
        self.known(key, signed).unwrap_or_else(|| {
            let is_right = signature.is_by(key, &signed.octets);
            let (key, octets, auth) = (key.clone(), signed.octets.clone(), signed.auth.clone());
            self.verified.borrow_mut().push(Verified { key, octets, auth, is_right });
            is_right
        })
    }

    /// The same for one of many keys, which are tried until the message's bound on signatures is
    /// used up.
    fn is_signed_by_one_of_many(
        &self,
        key: &PublicKey,
        signed: &SignedClaim,
        signature: &Signature<'_>,
    ) -> Result<bool, SignatureError> {
        if !signature.may_be_by(key) {
            return Ok(false);
        }
        if self.known(key, signed).is_none() {
            self.spent.spend()?;
        }
        Ok(self.is_signed_by(key, signed, signature))
    }
}

/// Prepares the check of the peer's claim, as the connection demands it in that round.
pub(super) fn check(
    session: &Session<'_>,
    connection: &Arc<Connection>,
    round: usize,
    claim: AuthClaim<'_>,
) -> Check {
    let AuthClaim { identity, auth, .. } = claim;
    let Some(remote) = connection.remote_round(round) else {
        return Check::Known(Err(AuthError::NothingDemanded(identity.clone())));
    };
    match remote.method {
        AuthMethod::Psk if auth.method == AuthMethodId::SharedKeyMic => {
            let line = || format!("authentication of '{identity}' with pre-shared key successful");
            let proven =
                |secret| Proven { line: line(), anchor: None, secret: Some((claim.local.clone(), secret)) };
            Check::Known(verify_key(session, claim).map(proven))
        }
        AuthMethod::Psk => {
            let identity = identity.clone();
            Check::Known(Err(AuthError::NotByPsk { identity, method: auth.method }))
        }
        AuthMethod::Pubkey { schemes, chain } => {
            let AuthClaim { keys, message, nonce, int_auth, id, .. } = claim;
            let octets = SignedOctets { message, peer_nonce: nonce, id, int_auth };
            match keys.signed_octets(peer_of(session.sa), &octets) {
                Ok(octets) => Check::Signature(Box::new(SignedClaim {
                    connection: Arc::clone(connection),
                    round,
                    identity: identity.clone(),
                    auth: auth.clone(),
                    octets,
                    schemes,
                    chain,
                    sha1: session.env.config.legacy_signatures && schemes.is_rsa_with_any_hash(),
                    anchors: session.env.loaded.anchors(remote).into_iter().cloned().collect(),
                })),
                Err(error) => Check::Known(Err(error.into())),
            }
        }
    }
}

/// The shared key by which the peer has proved itself.
fn verify_key(session: &Session<'_>, claim: AuthClaim<'_>) -> Result<SharedSecret, AuthError> {
    let AuthClaim { keys, message, nonce, int_auth, id, identity, auth, local } = claim;
    let secret = session
        .env
        .loaded
        .secrets
        .find(Some(local), Some(identity))
        .ok_or_else(|| AuthError::NoSharedKey { local: local.clone(), remote: identity.clone() })?;
    let octets = SignedOctets { message, peer_nonce: nonce, id, int_auth };
    let holds_it = keys.psk_verify(peer_of(session.sa), &secret.secret, &octets, auth)?;
    if holds_it { Ok(secret.clone()) } else { Err(AuthError::OtherSharedKey(identity.clone())) }
}

/// The material for verifying the signatures of a message.
pub(super) fn judge(session: &Session<'_>, payloads: &Arc<Payloads>) -> Judge {
    Judge {
        now: session.env.loaded.unix_time(session.now),
        payloads: Arc::clone(payloads),
        credentials: Arc::clone(&session.env.loaded.credentials),
    }
}

impl Check {
    /// True if it takes long.
    pub(super) fn is_signature(&self) -> bool {
        matches!(self, Self::Signature(_))
    }

    /// Decides the claim.
    pub(super) fn decide(self, judge: &Judge, evidence: &Evidence) -> Result<Proven, AuthError> {
        match self {
            Self::Known(verdict) => verdict,
            Self::Signature(signed) => Ok(judge.verify(&signed, evidence)?),
        }
    }
}

impl SignedClaim {
    fn remote(&self) -> &RemoteAuth {
        self.connection.remote_round(self.round).unwrap_or(&self.connection.remote)
    }
}

impl Judge {
    fn verify(&self, signed: &SignedClaim, evidence: &Evidence) -> Result<Proven, SignatureError> {
        let SignedClaim { identity, auth, schemes, chain, sha1, anchors, .. } = signed;
        let remote = signed.remote();
        let signature = Signature::read(identity, auth)?;
        let form = signature.form;
        match form {
            Form::Digital(scheme) | Form::Fixed(scheme) if !schemes.contains(scheme) => {
                return Err(SignatureError::SchemeNotAllowed { identity: identity.clone(), scheme });
            }
            Form::RsaSha1 if !sha1 => return Err(SignatureError::Sha1(identity.clone())),
            _ => {}
        }
        if remote.takes_public_keys() {
            let by_key = self.verify_by_key(signed, &signature, evidence);
            if by_key.is_ok() || !remote.takes_certificates() {
                return by_key;
            }
        }
        let sent = evidence.certificates.get_or_init(|| certificates(&self.payloads));
        let sent = sent.as_ref().map_err(Clone::clone)?;
        let end = self.end_certificate(remote, identity, sent, |certificate| {
            evidence.is_signed_by(certificate.key(), signed, &signature)
        })?;
        if !end.confirms(identity) {
            let subject = end.subject().clone();
            return Err(SignatureError::OtherOwner { subject, identity: identity.clone() });
        }
        let trust = Trust {
            now: self.now,
            anchors: anchors.iter().collect(),
            pinned: self.pinned(remote, &end),
            intermediates: sent.iter().skip(1).chain(self.credentials.cas()).chain(&remote.certs).collect(),
            ca: remote.ca_id.as_ref(),
            crls: self.credentials.crls(),
            revocation: remote.revocation,
            eku: remote.eku,
            hashes: chain.with(Hash::Identity),
        };
        // Checked before the chain: otherwise connections for single peers of a CA would use up the
        // bound on signatures.
        if !remote.certs.is_empty() && !remote.certs.contains(&end) {
            return Err(SignatureError::CertificateNotAllowed(end.subject().clone()));
        }
        let anchor = trust.verify_within(&end, &evidence.spent)?;
        let line = format!(
            "authentication of '{identity}' with {form} successful, by certificate '{}' of CA '{}'",
            end.subject(),
            anchor.subject()
        );
        Ok(Proven { line, anchor: Some(Anchor::of(&anchor)), secret: None })
    }

    /// Whether one of the public keys that the connection names has signed. The configuration
    /// vouches for the key, so certificates that the peer sends do not matter.
    fn verify_by_key(
        &self,
        signed: &SignedClaim,
        signature: &Signature<'_>,
        evidence: &Evidence,
    ) -> Result<Proven, SignatureError> {
        let (identity, remote) = (&signed.identity, signed.remote());
        let sent = evidence.raw_key.get_or_init(|| raw_key(&self.payloads));
        let sent = sent.as_ref().map_err(Clone::clone)?.as_ref();
        let is_sent = |key: &&RawKey| sent.is_none_or(|sent| sent.key().is_key_of(key.key()));
        let mut allowed = remote.pubkeys.iter().filter(is_sent).peekable();
        if let (Some(sent), None) = (sent, allowed.peek()) {
            return Err(SignatureError::KeyNotAllowed { identity: identity.clone(), key: sent.clone() });
        }
        // Without `remote.id` only the key identifies the peer.
        let mut named = allowed.filter(|key| remote.id.is_some() || key.confirms(identity)).peekable();
        if named.peek().is_none() {
            return Err(SignatureError::NoKeyOfName(identity.clone()));
        }
        for key in named {
            if evidence.is_signed_by_one_of_many(key.key(), signed, signature)? {
                let form = signature.form;
                let line =
                    format!("authentication of '{identity}' with {form} successful, by public key {key}");
                return Ok(Proven { line, anchor: None, secret: None });
            }
        }
        Err(SignatureError::NotByKey(identity.clone()))
    }

    /// The certificate whose key has signed: the one that the peer sent or, if it sent none, a
    /// loaded one of the peer.
    fn end_certificate(
        &self,
        remote: &RemoteAuth,
        identity: &Identity,
        sent: &[Certificate],
        signed_by: impl Fn(&Certificate) -> bool,
    ) -> Result<Certificate, SignatureError> {
        if let Some(first) = sent.first() {
            if signed_by(first) {
                return Ok(first.clone());
            }
            let (identity, subject) = (identity.clone(), first.subject().clone());
            return Err(SignatureError::NotByCertificate { identity, subject });
        }
        let loaded = remote.certs.iter().chain(self.credentials.certificates());
        let mut loaded = loaded.filter(|certificate| certificate.confirms(identity)).peekable();
        if loaded.peek().is_none() {
            return Err(SignatureError::NoCertificate(identity.clone()));
        }
        let found = loaded.find(|certificate| signed_by(certificate));
        found.cloned().ok_or_else(|| SignatureError::NotByLoadedCertificate(identity.clone()))
    }

    /// Loaded certificates that need no CA. If a connection names CAs, they do not count.
    fn pinned<'a>(&'a self, remote: &'a RemoteAuth, end: &Certificate) -> Vec<&'a Certificate> {
        if !end.is_self_issued() || !remote.cacerts.is_empty() || remote.ca_id.is_some() {
            return Vec::new();
        }
        self.credentials.certificates().chain(&remote.certs).collect()
    }
}

/// AUTH as a signature.
struct Signature<'a> {
    form: Form,
    octets: &'a [u8],
}

impl<'a> Signature<'a> {
    fn read(identity: &Identity, auth: &'a AuthPayload) -> Result<Self, SignatureError> {
        let identity = || identity.clone();
        let bare = |form| Ok(Self { form, octets: &auth.data });
        match auth.method {
            AuthMethodId::DigitalSignature => {
                let (algorithm, octets) =
                    auth.signature_parts().ok_or_else(|| SignatureError::TooShort(identity()))?;
                let scheme = SignatureScheme::from_der(algorithm)
                    .map_err(|source| SignatureError::Scheme { identity: identity(), source })?;
                Ok(Self { form: Form::Digital(scheme), octets })
            }
            AuthMethodId::EcdsaSha256 => bare(Form::Fixed(SignatureScheme::EcdsaSha256)),
            AuthMethodId::EcdsaSha384 => bare(Form::Fixed(SignatureScheme::EcdsaSha384)),
            AuthMethodId::EcdsaSha512 => bare(Form::Fixed(SignatureScheme::EcdsaSha512)),
            AuthMethodId::RsaSignature => bare(Form::RsaSha1),
            method => Err(SignatureError::OtherMethod { identity: identity(), method }),
        }
    }

    fn is_by(&self, key: &PublicKey, octets: &[u8]) -> bool {
        match self.form {
            Form::Digital(scheme) => key.verify(scheme, octets, self.octets),
            Form::Fixed(scheme) => key.verify_fixed(scheme, octets, self.octets),
            Form::RsaSha1 => key.verify_sha1(octets, self.octets),
        }
    }

    /// False if no key of this kind can make such a signature.
    fn may_be_by(&self, key: &PublicKey) -> bool {
        match self.form {
            Form::Digital(scheme) | Form::Fixed(scheme) => key.may_sign_by(scheme),
            Form::RsaSha1 => key.kind().is_rsa(),
        }
    }
}

/// The certificates that a peer has sent; the first is its own (RFC 7296 §3.6).
fn certificates(payloads: &Payloads) -> Result<Vec<Certificate>, SignatureError> {
    let count = payloads.certificates().count();
    if count > MAX_CERTIFICATES {
        return Err(SignatureError::TooManyCertificates(count));
    }
    let mut found = Vec::with_capacity(count);
    for payload in payloads.certificates() {
        if payload.encoding != CertEncoding::X509Signature {
            return Err(SignatureError::CertificateEncoding(payload.encoding));
        }
        let number = found.len() + 1;
        let certificate = Certificate::from_der(&payload.data)
            .map_err(|source| SignatureError::Certificate { number, source })?;
        found.push(certificate);
    }
    Ok(found)
}

/// The public key that a peer has sent without a certificate, if it has (RFC 7670).
fn raw_key(payloads: &Payloads) -> Result<Option<RawKey>, SignatureError> {
    let mut sent = payloads.certificates().filter(|sent| sent.encoding == CertEncoding::RawPublicKey);
    let Some(first) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        return Err(SignatureError::SeveralKeys);
    }
    RawKey::from_der(&first.data).map(Some).map_err(SignatureError::PublicKey)
}

/// The peer's role, which determines whose AUTH it is.
fn peer_of(sa: &IkeSa) -> Role {
    match sa.role {
        Role::Initiator => Role::Responder,
        Role::Responder => Role::Initiator,
    }
}
