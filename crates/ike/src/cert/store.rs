//! Loaded credentials: CAs, certificates, CRLs, and private keys.

use super::certificate::Certificate;
use super::crl::Crl;
use super::error::CertError;
use super::private::PrivateKey;
use super::public::PublicKey;
use super::raw::RawKey;
use crate::config::{Identity, LocalAuth};
use std::collections::BTreeMap;

/// Bound on the certificates that we send with our own.
const MAX_OWN_CHAIN: usize = 8;

/// All credentials of an endpoint except its shared keys.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    cas: Vec<Certificate>,
    /// `authorities.<name>`.
    authorities: BTreeMap<String, Certificate>,
    certificates: Vec<Certificate>,
    crls: Vec<Crl>,
    keys: Vec<PrivateKey>,
    /// Public keys without a certificate: they can be listed, and are trusted where a connection
    /// names them.
    public_keys: Vec<RawKey>,
}

/// The means to sign.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) shown: Shown,
    pub(crate) key: PrivateKey,
}

/// What shows a peer the owner of our key.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Our certificate, with those that lead to a root.
    Chain(Vec<Certificate>),
    /// The public key itself.
    Key(RawKey),
}

/// A certificate or key of ours whose private key may be loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Candidate<'a> {
    Certificate(&'a Certificate),
    Key(&'a RawKey),
}

impl Candidate<'_> {
    fn public(&self) -> &PublicKey {
        match self {
            Self::Certificate(certificate) => certificate.key(),
            Self::Key(raw) => raw.key(),
        }
    }
}

impl Credentials {
    /// Loads a certificate. A CA's certificate becomes a trusted CA, whatever its source, as with
    /// charon; with `ca` it must be a CA's.
    pub fn load_certificate(&mut self, certificate: Certificate, ca: bool) -> Result<(), CertError> {
        if ca && !certificate.is_ca() {
            return Err(CertError::NoCa(certificate.subject().to_string()));
        }
        let list = if certificate.is_ca() { &mut self.cas } else { &mut self.certificates };
        if !list.contains(&certificate) {
            list.push(certificate);
        }
        Ok(())
    }

    /// Loads a CRL in place of older ones. Returns false if a newer one is loaded.
    pub fn load_crl(&mut self, crl: Crl) -> bool {
        // A CRL remembers the key by which it was found to be signed, and its replacement depends
        // on that.
        for list in self.crls.iter().chain([&crl]) {
            let _ = self.cas().find(|ca| list.is_of(ca));
        }
        // Of two of the same second the later loaded one counts.
        if self.crls.iter().any(|other| crl.is_older_than(other) && crl.is_replaced_by(other)) {
            return false;
        }
        self.crls.retain(|other| !other.is_replaced_by(&crl));
        self.crls.push(crl);
        true
    }

    /// Loads a private key.
    pub fn load_key(&mut self, key: PrivateKey) {
        self.unload_key(&key.key_id());
        self.keys.push(key);
    }

    /// Unloads a private key. Returns false if there is none with this number.
    pub fn unload_key(&mut self, id: &[u8]) -> bool {
        let before = self.keys.len();
        self.keys.retain(|key| key.key_id() != id);
        self.keys.len() != before
    }

    /// The private keys.
    pub fn keys(&self) -> impl Iterator<Item = &PrivateKey> {
        self.keys.iter()
    }

    /// Unloads a certificate.
    pub fn unload_certificate(&mut self, certificate: &Certificate) {
        self.certificates.retain(|other| other != certificate);
        self.cas.retain(|other| other != certificate);
    }

    /// Unloads a CRL.
    pub fn unload_crl(&mut self, crl: &Crl) {
        self.crls.retain(|other| other.to_der() != crl.to_der());
    }

    /// Loads a named CA, in place of one of the same name.
    pub fn load_authority(&mut self, name: &str, certificate: Certificate) -> Result<(), CertError> {
        if !certificate.is_ca() {
            return Err(CertError::NoCa(certificate.subject().to_string()));
        }
        self.authorities.insert(name.to_owned(), certificate);
        Ok(())
    }

    /// Unloads a named CA. Returns false if there is none of this name.
    pub fn unload_authority(&mut self, name: &str) -> bool {
        self.authorities.remove(name).is_some()
    }

    /// The named CAs.
    pub fn authorities(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        self.authorities.iter().map(|(name, certificate)| (name.as_str(), certificate))
    }

    /// Unloads everything except the named CAs.
    pub fn clear(&mut self) {
        self.cas.clear();
        self.certificates.clear();
        self.crls.clear();
        self.keys.clear();
        self.public_keys.clear();
    }

    /// Loads a public key without a certificate.
    pub fn load_public_key(&mut self, key: RawKey) {
        if !self.public_keys.contains(&key) {
            self.public_keys.push(key);
        }
    }

    /// Unloads a public key.
    pub fn unload_public_key(&mut self, key: &RawKey) {
        self.public_keys.retain(|other| other != key);
    }

    /// The public keys without a certificate.
    pub fn public_keys(&self) -> impl Iterator<Item = &RawKey> {
        self.public_keys.iter()
    }

    /// All trusted CAs.
    pub fn cas(&self) -> impl Iterator<Item = &Certificate> {
        let named = self.authorities.values().filter(|ca| !self.cas.contains(ca));
        self.cas.iter().chain(named)
    }

    /// All certificates that are not a CA's.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter()
    }

    /// The CRLs.
    pub fn crls(&self) -> &[Crl] {
        &self.crls
    }

    /// True if the private key of this public key is loaded.
    pub fn has_private_key(&self, public: &PublicKey) -> bool {
        self.private_key(public).is_some()
    }

    fn private_key(&self, public: &PublicKey) -> Option<&PrivateKey> {
        self.keys.iter().find(|key| key.belongs_to(public))
    }

    /// The credentials with which we sign on a connection: the first of its certificates and public
    /// keys whose private key is loaded. If it names none: the first loaded certificate that
    /// confirms our identity.
    pub(crate) fn own(&self, local: &LocalAuth, id: &Identity) -> Option<Own> {
        let (candidate, key) = self.own_key(local, id)?;
        let shown = match candidate {
            Candidate::Certificate(certificate) => Shown::Chain(self.chain_of(certificate, local)),
            Candidate::Key(raw) => Shown::Key(raw.clone()),
        };
        Some(Own { shown, key: key.clone() })
    }

    /// [`Self::own`] without the certificates above it, which needs no signature to be verified.
    pub(crate) fn own_key<'a>(
        &'a self,
        local: &'a LocalAuth,
        id: &Identity,
    ) -> Option<(Candidate<'a>, &'a PrivateKey)> {
        let named = !local.certs.is_empty() || !local.pubkeys.is_empty();
        let candidates: Vec<Candidate<'_>> = if named {
            let certificates = local.certs.iter().map(Candidate::Certificate);
            certificates.chain(local.pubkeys.iter().map(Candidate::Key)).collect()
        } else {
            let loaded = self.certificates.iter().chain(self.cas());
            loaded.filter(|certificate| certificate.confirms(id)).map(Candidate::Certificate).collect()
        };
        candidates.into_iter().find_map(|candidate| Some((candidate, self.private_key(candidate.public())?)))
    }

    /// The certificate and those above it, except the root, which a peer that trusts it has.
    fn chain_of(&self, certificate: &Certificate, local: &LocalAuth) -> Vec<Certificate> {
        let mut chain = vec![certificate.clone()];
        while let Some(last) = chain.last().filter(|last| !last.is_self_issued()) {
            let issuers = self.cas().chain(&local.certs).chain(&self.certificates);
            let issuer = issuers
                .filter(|issuer| issuer.is_ca() && !issuer.is_self_issued() && !chain.contains(issuer))
                .find(|issuer| issuer.subject() == last.issuer() && last.is_signed_by(issuer.key()));
            match issuer {
                Some(issuer) if chain.len() < MAX_OWN_CHAIN => chain.push(issuer.clone()),
                _ => break,
            }
        }
        chain
    }
}
