//! Our side of authentication: AUTH and its certificates.

use crate::cert::{Credentials, Hashes, Own, Schemes, Shown};
use crate::config::{AuthMethod, Connection, Identity, LocalAuth, RemoteAuth, SendCert, SharedSecret};
use crate::exchange::auth::form::{Allowed, Form};
use crate::exchange::auth::shown;
use crate::exchange::session::Session;
use crate::exchange::{certificate_request, key_request};
use crate::message::{AuthPayload, CertEncoding, CertPayload, IdPayload, Nonce, Payload, Payloads};
use crate::output::Reason;
use crate::sa::Extensions;
use crate::suite::{IkeKeys, Role, SignedOctets};
use std::sync::Arc;

/// Bound on the CAs that we name to a peer in IKE_AUTH.
const MAX_NAMED_CAS: usize = 50;

/// Everything that our proof depends on, except the keys.
pub(super) struct Prover {
    /// The method and its credentials.
    pub(super) own: LocalAuth,
    pub(super) send_cert: SendCert,
    pub(super) credentials: Arc<Credentials>,
    pub(super) role: Role,
    /// Hash algorithms of the peer, for our signatures.
    pub(super) hashes: Hashes,
    /// True if RSA with SHA-1 is allowed when the peer supports nothing better.
    pub(super) sha1: bool,
    /// Our IKE_SA_INIT message.
    pub(super) message: Vec<u8>,
    pub(super) peer_nonce: Nonce,
    /// The part of IKE_INTERMEDIATE that both AUTH cover (RFC 9242 §3.3.2).
    pub(super) int_auth: Vec<u8>,
    /// Our identity.
    pub(super) local: Identity,
    /// The peer's identity, or the expected one, as far as it is known: for the log.
    pub(super) remote: Option<Identity>,
    /// The key shared with the peer, if it is used and loaded.
    pub(super) secret: Option<SharedSecret>,
    pub(super) asked: Asked,
}

/// What AUTH covers beside our identity.
pub(super) struct Covered {
    /// Our IKE_SA_INIT message.
    pub(super) message: Vec<u8>,
    pub(super) peer_nonce: Nonce,
    /// See [`Prover::int_auth`].
    pub(super) int_auth: Vec<u8>,
}

/// The credentials that the peer requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) certificate: bool,
    /// A public key without a certificate.
    pub(super) key: bool,
}

impl Asked {
    /// As requested in its IKE_SA_INIT message.
    pub(super) fn in_init(extensions: &Extensions) -> Self {
        Self { certificate: extensions.asked_for_certificate, key: extensions.asked_for_key }
    }

    pub(super) fn by(payloads: &Payloads) -> Self {
        Self {
            certificate: payloads.asks_for_certificates(CertEncoding::X509Signature),
            key: payloads.asks_for_certificates(CertEncoding::RawPublicKey),
        }
    }
}

/// The proof of our identity.
pub(super) struct Proof {
    pub(super) local: Identity,
    pub(super) id: IdPayload,
    pub(super) certificates: Vec<Payload>,
    pub(super) auth: AuthPayload,
    /// For the log.
    pub(super) line: String,
}

impl Prover {
    /// A prover of one of our rounds: with the loaded key of both sides, and with the credentials
    /// that the peer requested in IKE_SA_INIT.
    pub(super) fn new(
        session: &Session<'_>,
        connection: &Connection,
        own: &LocalAuth,
        covered: Covered,
        local: Identity,
        remote: Option<Identity>,
    ) -> Self {
        let Covered { message, peer_nonce, int_auth } = covered;
        let (loaded, extensions) = (&session.env.loaded, &session.sa.extensions);
        Self {
            own: own.clone(),
            send_cert: connection.send_cert,
            credentials: Arc::clone(&loaded.credentials),
            role: session.sa.role,
            hashes: extensions.hashes,
            sha1: session.env.config.legacy_signatures,
            message,
            peer_nonce,
            int_auth,
            secret: loaded.secrets.find(Some(&local), remote.as_ref()).cloned(),
            local,
            remote,
            asked: Asked::in_init(extensions),
        }
    }

    /// True if it takes long.
    pub(super) fn signs(&self) -> bool {
        self.own.method.is_pubkey()
    }

    /// Proves our identity by the round's method. `keys` bind it to AUTH.
    pub(super) fn prove(&self, keys: &IkeKeys) -> Result<Proof, Reason> {
        match self.own.method {
            AuthMethod::Psk => self.prove_by_key(keys),
            AuthMethod::Pubkey { schemes, .. } => self.prove_by_signature(keys, schemes),
        }
    }

    fn prove_by_key(&self, keys: &IkeKeys) -> Result<Proof, Reason> {
        let Self { role, message, peer_nonce, int_auth, local, remote, secret, .. } = self;
        let secret = secret.as_ref().ok_or_else(|| {
            let remote = shown(remote.as_ref());
            Reason::Refused(format!("no shared key is loaded for {local} and {remote}"))
        })?;
        let id = IdPayload::from(local);
        let octets = SignedOctets { message, peer_nonce, id: &id, int_auth };
        let auth = keys.psk_auth(*role, &secret.secret, &octets)?;
        let line = format!("authentication of '{local}' (myself) with pre-shared key");
        Ok(Proof { local: local.clone(), id, certificates: Vec::new(), auth, line })
    }

    fn prove_by_signature(&self, keys: &IkeKeys, schemes: Schemes) -> Result<Proof, Reason> {
        let Self { own, send_cert, role, message, peer_nonce, int_auth, local, asked, .. } = self;
        let Own { shown, key } = self.credentials.own(own, local).ok_or_else(|| {
            let what = if own.pubkeys.is_empty() { "certificate" } else { "public key" };
            Reason::Refused(format!("no {what} with its private key is loaded for '{local}'"))
        })?;
        let allowed = Allowed { schemes, hashes: self.hashes, sha1: self.sha1 };
        let form = Form::choose(&key, allowed).map_err(|why| {
            Reason::Refused(format!("cannot sign with the {} key of '{local}': {why}", key.kind()))
        })?;
        // Some peers compare names octet by octet: the certificate's own octets are right in any
        // case.
        let subject = match &shown {
            Shown::Chain(chain) => chain.first().map(|certificate| certificate.subject()),
            Shown::Key(_) => None,
        };
        let local = match (local, subject) {
            (Identity::Dn(name), Some(subject)) if name == subject => Identity::Dn(subject.clone()),
            _ => local.clone(),
        };
        let id = IdPayload::from(&local);
        let octets = keys.signed_octets(*role, &SignedOctets { message, peer_nonce, id: &id, int_auth })?;
        let auth = form.sign(&key, &octets).map_err(|error| Reason::Refused(error.to_string()))?;
        let sends = |asked| match send_cert {
            SendCert::Always => true,
            SendCert::IfAsked => asked,
            SendCert::Never => false,
        };
        let sent = match shown {
            Shown::Chain(chain) if sends(asked.certificate) => {
                chain.iter().map(|certificate| CertPayload::x509(certificate.to_der().to_vec())).collect()
            }
            Shown::Key(key) if sends(asked.key) => vec![CertPayload::raw_key(key.to_der().to_vec())],
            Shown::Chain(_) | Shown::Key(_) => Vec::new(),
        };
        let certificates = sent.into_iter().map(Payload::Certificate).collect();
        let line = format!("authentication of '{local}' (myself) with {form}");
        Ok(Proof { local, id, certificates, auth, line })
    }
}

/// The certificate requests of an initiator, if the connection wants certificates or public keys.
pub(super) fn certificates_of(session: &Session<'_>, connection: &Connection) -> Vec<Payload> {
    if !connection.send_certreq {
        return Vec::new();
    }
    // Of all rounds, because the request is sent once.
    let rounds = connection.remote_rounds();
    let with_cas = rounds.clone().filter(|remote| remote.takes_certificates());
    let cas =
        certificate_request(with_cas.flat_map(|remote| session.env.loaded.anchors(remote)), MAX_NAMED_CAS);
    let keys = rounds.into_iter().any(RemoteAuth::takes_public_keys);
    cas.into_iter().chain(keys.then(key_request)).collect()
}
