//! What is loaded: CAs, certificates, lists of revoked ones, and private keys.

use super::certificate::Certificate;
use super::crl::Crl;
use super::error::CertError;
use super::private::PrivateKey;
use super::public::PublicKey;
use super::raw::RawKey;
use crate::config::{Identity, LocalAuth};
use std::collections::BTreeMap;

/// Most certificates that we send behind our own.
const MAX_OWN_CHAIN: usize = 8;

/// All of an endpoint but its shared keys.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    cas: Vec<Certificate>,
    /// `authorities.<name>`.
    authorities: BTreeMap<String, Certificate>,
    certificates: Vec<Certificate>,
    crls: Vec<Crl>,
    keys: Vec<PrivateKey>,
    /// Those that have no certificate: they can be listed, and are trusted where a connection names
    /// them.
    public_keys: Vec<RawKey>,
}

/// What we sign with.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) shown: Shown,
    pub(crate) key: PrivateKey,
}

/// What tells a peer whose key ours is.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Our certificate with those that lead to a root.
    Chain(Vec<Certificate>),
    /// The public key itself.
    Key(RawKey),
}

/// One of ours whose private key may be here.
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
    /// Takes a certificate. One of a CA becomes a trusted CA, wherever it comes from, as with
    /// charon; `ca`: it must be one.
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

    /// Takes a list of revoked certificates in the place of older ones. False if a newer one is
    /// here already.
    pub fn load_crl(&mut self, crl: Crl) -> bool {
        // A list remembers whose key it was found to be signed with, and what replaces what hangs
        // on that.
        for list in self.crls.iter().chain([&crl]) {
            let _ = self.cas().find(|ca| list.is_of(ca));
        }
        // Of two from the same second the one that comes later counts.
        if self.crls.iter().any(|other| crl.is_older_than(other) && crl.is_replaced_by(other)) {
            return false;
        }
        self.crls.retain(|other| !other.is_replaced_by(&crl));
        self.crls.push(crl);
        true
    }

    /// Takes a private key.
    pub fn load_key(&mut self, key: PrivateKey) {
        self.unload_key(&key.key_id());
        self.keys.push(key);
    }

    /// Forgets a private key; false if there is none of that number.
    pub fn unload_key(&mut self, id: &[u8]) -> bool {
        let before = self.keys.len();
        self.keys.retain(|key| key.key_id() != id);
        self.keys.len() != before
    }

    /// The private keys.
    pub fn keys(&self) -> impl Iterator<Item = &PrivateKey> {
        self.keys.iter()
    }

    /// Forgets a certificate.
    pub fn unload_certificate(&mut self, certificate: &Certificate) {
        self.certificates.retain(|other| other != certificate);
        self.cas.retain(|other| other != certificate);
    }

    /// Forgets a list of revoked certificates.
    pub fn unload_crl(&mut self, crl: &Crl) {
        self.crls.retain(|other| other.to_der() != crl.to_der());
    }

    /// Takes a CA by name, in the place of one of the same name.
    pub fn load_authority(&mut self, name: &str, certificate: Certificate) -> Result<(), CertError> {
        if !certificate.is_ca() {
            return Err(CertError::NoCa(certificate.subject().to_string()));
        }
        self.authorities.insert(name.to_owned(), certificate);
        Ok(())
    }

    /// Forgets a CA by name; false if there is none of that name.
    pub fn unload_authority(&mut self, name: &str) -> bool {
        self.authorities.remove(name).is_some()
    }

    /// The CAs that have names.
    pub fn authorities(&self) -> impl Iterator<Item = (&str, &Certificate)> {
        self.authorities.iter().map(|(name, certificate)| (name.as_str(), certificate))
    }

    /// Forgets all but the CAs that have names.
    pub fn clear(&mut self) {
        self.cas.clear();
        self.certificates.clear();
        self.crls.clear();
        self.keys.clear();
        self.public_keys.clear();
    }

    /// Takes a public key that has no certificate.
    pub fn load_public_key(&mut self, key: RawKey) {
        if !self.public_keys.contains(&key) {
            self.public_keys.push(key);
        }
    }

    /// Forgets a public key.
    pub fn unload_public_key(&mut self, key: &RawKey) {
        self.public_keys.retain(|other| other != key);
    }

    /// The public keys that have no certificate.
    pub fn public_keys(&self) -> impl Iterator<Item = &RawKey> {
        self.public_keys.iter()
    }

    /// All trusted CAs.
    pub fn cas(&self) -> impl Iterator<Item = &Certificate> {
        let named = self.authorities.values().filter(|ca| !self.cas.contains(ca));
        self.cas.iter().chain(named)
    }

    /// All certificates that are no CA's.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.iter()
    }

    /// The lists of revoked certificates.
    pub fn crls(&self) -> &[Crl] {
        &self.crls
    }

    /// True if the private key of that public key is here.
    pub fn has_private_key(&self, public: &PublicKey) -> bool {
        self.private_key(public).is_some()
    }

    fn private_key(&self, public: &PublicKey) -> Option<&PrivateKey> {
        self.keys.iter().find(|key| key.belongs_to(public))
    }

    /// What we sign with on a connection: the first of its certificates and public keys whose
    /// private key is here, or, where it names none, the first loaded certificate that confirms who
    /// we are.
    pub(crate) fn own(&self, local: &LocalAuth, id: &Identity) -> Option<Own> {
        let (candidate, key) = self.own_key(local, id)?;
        let shown = match candidate {
            Candidate::Certificate(certificate) => Shown::Chain(self.chain_of(certificate, local)),
            Candidate::Key(raw) => Shown::Key(raw.clone()),
        };
        Some(Own { shown, key: key.clone() })
    }

    /// The same without the certificates above it, which takes no signatures to be checked.
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

    /// The certificate and those above it, but for the root: who trusts this has it.
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
