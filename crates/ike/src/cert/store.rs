//! What is loaded: CAs, certificates, lists of revoked ones, and private keys.

use super::certificate::Certificate;
use super::crl::Crl;
use super::error::CertError;
use super::private::PrivateKey;
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
}

/// Our certificate with those that lead to a root, and its key.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) chain: Vec<Certificate>,
    pub(crate) key: PrivateKey,
}

impl Credentials {
    /// Takes a certificate. One of a CA becomes a trusted CA, wherever it comes from, as with charon; `ca`: it must be one.
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

    /// Takes a list of revoked certificates in the place of older ones. False if a newer one is here already.
    pub fn load_crl(&mut self, crl: Crl) -> bool {
        // A list remembers whose key it was found to be signed with, and what replaces what hangs on that.
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

    /// True if the private key of the certificate is here.
    pub fn has_key_of(&self, certificate: &Certificate) -> bool {
        self.key_of(certificate).is_some()
    }

    fn key_of(&self, certificate: &Certificate) -> Option<&PrivateKey> {
        self.keys.iter().find(|key| key.belongs_to(certificate.key()))
    }

    /// What we sign with on a connection: the first of its certificates whose key is here, or, where it names none, the
    /// first loaded one that confirms who we are.
    pub(crate) fn own(&self, local: &LocalAuth, id: &Identity) -> Option<Own> {
        let (certificate, key) = self.own_key(local, id)?;
        Some(Own { chain: self.chain_of(certificate, local), key: key.clone() })
    }

    /// The same without those above it, which takes no signatures to be checked.
    pub(crate) fn own_key<'a>(
        &'a self,
        local: &'a LocalAuth,
        id: &Identity,
    ) -> Option<(&'a Certificate, &'a PrivateKey)> {
        let named = !local.certs.is_empty();
        let candidates: Vec<&Certificate> = if named {
            local.certs.iter().collect()
        } else {
            self.certificates
                .iter()
                .chain(self.cas())
                .filter(|certificate| certificate.confirms(id))
                .collect()
        };
        candidates.into_iter().find_map(|certificate| Some((certificate, self.key_of(certificate)?)))
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
