//! Our side of authentication: AUTH, and the certificates that go with it.

use super::shown;
use crate::cert::Own;
use crate::config::{AuthMethod, Connection, Identity, SendCert, SharedSecret};
use crate::endpoint::Endpoint;
use crate::exchange::certificate_request;
use crate::message::{AuthPayload, CertPayload, IdPayload, Nonce, Payload};
use crate::output::Reason;
use crate::sa::IkeSa;
use crate::suite::{IkeKeys, SignedOctets};

/// CAs that we name to a peer in IKE_AUTH.
const MAX_NAMED_CAS: usize = 50;

/// What a proof is about.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    /// The keys that bind our identity to AUTH.
    pub(super) keys: &'a IkeKeys,
    /// Our IKE_SA_INIT message.
    pub(super) message: &'a [u8],
    pub(super) peer_nonce: &'a Nonce,
    /// What both AUTH cover of IKE_INTERMEDIATE (RFC 9242 §3.3.2).
    pub(super) int_auth: &'a [u8],
    /// Who we are.
    pub(super) local: &'a Identity,
    /// The key that we share with the peer, if there is one.
    pub(super) secret: Option<&'a SharedSecret>,
    /// The peer wants our certificate.
    pub(super) asked: bool,
}

/// The proof of who we are.
pub(super) struct Proof {
    pub(super) local: Identity,
    pub(super) id: IdPayload,
    pub(super) certificates: Vec<Payload>,
    pub(super) auth: AuthPayload,
    /// For the log.
    pub(super) line: String,
}

impl Endpoint {
    /// Proves who we are, in the way that the connection says.
    pub(super) fn prove(
        &self,
        sa: &IkeSa,
        connection: &Connection,
        subject: Subject<'_>,
    ) -> Result<Proof, Reason> {
        match connection.local.method {
            AuthMethod::Psk => self.prove_by_key(sa, connection, subject),
            AuthMethod::Pubkey { .. } => self.prove_by_signature(sa, connection, subject),
        }
    }

    fn prove_by_key(
        &self,
        sa: &IkeSa,
        connection: &Connection,
        subject: Subject<'_>,
    ) -> Result<Proof, Reason> {
        let Subject { keys, message, peer_nonce, int_auth, local, secret, .. } = subject;
        let secret = secret.ok_or_else(|| {
            let remote = shown(sa.remote_id.as_ref().or(connection.remote.id.as_ref()));
            Reason::Refused(format!("no shared key is loaded for {local} and {remote}"))
        })?;
        let id = IdPayload::from(local);
        let octets = SignedOctets { message, peer_nonce, id: &id, int_auth };
        let auth = keys.psk_auth(sa.role, &secret.secret, &octets)?;
        let line = format!("authentication of '{local}' (myself) with pre-shared key");
        Ok(Proof { local: local.clone(), id, certificates: Vec::new(), auth, line })
    }

    fn prove_by_signature(
        &self,
        sa: &IkeSa,
        connection: &Connection,
        subject: Subject<'_>,
    ) -> Result<Proof, Reason> {
        let Subject { keys, message, peer_nonce, int_auth, local, asked, .. } = subject;
        let AuthMethod::Pubkey { schemes, .. } = connection.local.method else {
            return Err(Reason::Refused("no signature is configured".into()));
        };
        let Own { chain, key } = self.credentials.own(&connection.local, local).ok_or_else(|| {
            Reason::Refused(format!("no certificate with its private key is loaded for '{local}'"))
        })?;
        let scheme = key.choose(schemes, sa.extensions.hashes).ok_or_else(|| {
            let why = if sa.extensions.hashes.is_empty() {
                "the peer knows no digital signatures (RFC 7427), and SHA-1 is not used"
            } else {
                "no hash algorithm that is allowed here is also the peer's"
            };
            Reason::Refused(format!("cannot sign with the {} key of '{local}': {why}", key.kind()))
        })?;
        // Peers compare names octet by octet now and then: what the certificate says is right in any case.
        let subject = chain.first().map(|certificate| certificate.subject());
        let local = match (local, subject) {
            (Identity::Dn(name), Some(subject)) if name == subject => Identity::Dn(subject.clone()),
            _ => local.clone(),
        };
        let id = IdPayload::from(&local);
        let octets = keys.signed_octets(sa.role, &SignedOctets { message, peer_nonce, id: &id, int_auth })?;
        let refused = |error: crate::cert::CertError| Reason::Refused(error.to_string());
        let signature = key.sign(scheme, &octets).map_err(refused)?;
        let algorithm = scheme.algorithm_identifier().map_err(refused)?;
        let auth = AuthPayload::signature(&algorithm, &signature)
            .ok_or_else(|| Reason::Refused(format!("the name of {scheme} is too long")))?;
        let sends = match connection.send_cert {
            SendCert::Always => true,
            SendCert::IfAsked => asked,
            SendCert::Never => false,
        };
        let certificates = if sends { chain.as_slice() } else { &[] };
        let certificates = certificates
            .iter()
            .map(|certificate| Payload::Certificate(CertPayload::x509(certificate.to_der().to_vec())))
            .collect();
        let line = format!("authentication of '{local}' (myself) with {scheme}");
        Ok(Proof { local, id, certificates, auth, line })
    }

    /// What an initiator asks for, if the connection wants certificates.
    pub(super) fn certificates_of(&self, connection: &Connection) -> Option<Payload> {
        let wants = connection.send_certreq && connection.remote.method.is_pubkey();
        wants.then(|| certificate_request(self.anchors(connection), MAX_NAMED_CAS)).flatten()
    }
}
