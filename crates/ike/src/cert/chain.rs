//! Path validation: from a certificate to a trusted CA (RFC 5280 §6), as far as IKE needs it.

use super::certificate::Certificate;
use super::crl::{self, Crl, Status};
use super::error::ChainError;
use super::scheme::{Hash, Hashes};
use crate::config::{Eku, Identity, Revocation};
use crate::output::UnixTime;
use std::cell::Cell;

/// Bound on the certificates of a chain, including the trusted CA's.
pub(super) const MAX_LENGTH: usize = 10;
/// Bound on the signatures that are verified for one message: CAs that have signed each other lead
/// to many paths, and a peer sends the certificates for them.
pub(super) const MAX_SIGNATURES: usize = 32;

/// Counts the signatures that were verified for a message.
#[derive(Debug, Default)]
pub struct Spent(Cell<usize>);

impl Spent {
    /// Counts one more signature, if the bound allows it.
    pub(crate) fn spend(&self) -> Result<(), ChainError> {
        if self.0.get() >= MAX_SIGNATURES {
            return Err(ChainError::TooManySignatures);
        }
        self.0.set(self.0.get().saturating_add(1));
        Ok(())
    }
}

/// The trust anchors and rules for validating a chain.
#[derive(Clone, Debug)]
pub struct Trust<'a> {
    /// The time by which certificates are valid.
    pub now: UnixTime,
    /// CAs that are trusted.
    pub anchors: Vec<&'a Certificate>,
    /// Peers' certificates that are trusted themselves, if they are self-signed.
    pub pinned: Vec<&'a Certificate>,
    /// Certificates that may be intermediate.
    pub intermediates: Vec<&'a Certificate>,
    /// The identity that a CA of the chain must have, by its subject or a subjectAltName.
    pub ca: Option<&'a Identity>,
    /// The lists of revoked certificates.
    pub crls: &'a [Crl],
    /// The action if they have no answer.
    pub revocation: Revocation,
    /// What an extended key usage of the end certificate must allow.
    pub eku: Eku,
    /// Hash algorithms that the chain's signatures may use.
    pub hashes: Hashes,
}

struct Search<'a, 'b> {
    trust: &'b Trust<'a>,
    spent: &'b Spent,
    /// Why the longest path failed.
    failure: Option<(usize, ChainError)>,
}

impl Trust<'_> {
    /// The trusted CA to which the certificate leads, or why there is none.
    pub fn verify(&self, end: &Certificate) -> Result<Certificate, ChainError> {
        self.verify_within(end, &Spent::default())
    }

    /// [`Trust::verify`] with a shared count of signatures.
    pub fn verify_within(&self, end: &Certificate, spent: &Spent) -> Result<Certificate, ChainError> {
        if let Some(usage) = end.extensions().usage
            && !usage.signs
        {
            // RFC 4945 §5.1.3.2.
            return Err(ChainError::NotForSignatures(end.subject().clone()));
        }
        if self.eku == Eku::Ike {
            allows_ike(end)?;
        }
        if self.pinned.contains(&end) && end.is_self_issued() && end.is_signed_by(end.key()) {
            check(end, self.now)?;
            return Ok(end.clone());
        }
        let mut search = Search { trust: self, spent, failure: None };
        match search.extend(&mut vec![end]) {
            Some(anchor) => Ok(anchor),
            None => Err(search.failure.map_or(ChainError::NoChain, |(_, why)| why)),
        }
    }
}

impl<'a> Search<'a, '_> {
    /// Extends the path from its last certificate to that one's issuers, trusted ones first.
    fn extend(&mut self, path: &mut Vec<&'a Certificate>) -> Option<Certificate> {
        let current = *path.last()?;
        if let Err(why) = check(current, self.trust.now) {
            return self.fail(path.len(), why);
        }
        let issuers = |from: &[&'a Certificate]| -> Vec<&'a Certificate> {
            from.iter().copied().filter(|issuer| may_have_signed(issuer, current)).collect()
        };
        let anchors = issuers(&self.trust.anchors);
        // A path ends at a trusted CA: nothing beyond it matters.
        let mut others = issuers(&self.trust.intermediates);
        others.retain(|issuer| !self.trust.anchors.contains(issuer));
        if anchors.is_empty() && others.is_empty() {
            let (certificate, issuer) = (current.subject().clone(), current.issuer().clone());
            return self.fail(path.len(), ChainError::NoIssuer { certificate, issuer });
        }
        for anchor in anchors {
            let judged = self
                .link(path, current, anchor)
                .and_then(|()| check(anchor, self.trust.now))
                .and_then(|()| self.has_named_ca(path, anchor))
                .and_then(|()| self.not_revoked(path, anchor));
            match judged {
                Ok(()) => return Some(anchor.clone()),
                Err(why) => self.note(path.len(), why),
            }
        }
        for issuer in others {
            if path.contains(&issuer) {
                let name = issuer.subject().clone();
                let why = if issuer == current {
                    ChainError::UntrustedRoot(name)
                } else {
                    ChainError::Circle(name)
                };
                self.note(path.len(), why);
                continue;
            }
            if path.len() + 1 >= MAX_LENGTH {
                return self.fail(path.len(), ChainError::TooLong);
            }
            if let Err(why) = self.link(path, current, issuer) {
                self.note(path.len(), why);
                continue;
            }
            path.push(issuer);
            let found = self.extend(path);
            path.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Checks that the issuer may have issued, and did issue, the last certificate of the path.
    fn link(
        &mut self,
        path: &[&Certificate],
        current: &Certificate,
        issuer: &Certificate,
    ) -> Result<(), ChainError> {
        let certificate = || current.subject().clone();
        let name = || issuer.subject().clone();
        let ca = issuer.extensions().ca.ok_or_else(|| ChainError::NotCa(name()))?;
        if issuer.extensions().usage.is_some_and(|usage| !usage.certificates) {
            return Err(ChainError::NotForCertificates(name()));
        }
        // Self-issued CA certificates do not count (RFC 5280 §4.2.1.9).
        let between = path.iter().skip(1).filter(|certificate| !certificate.is_self_issued()).count();
        if let Some(limit) = ca.path_length.filter(|limit| between > usize::from(*limit)) {
            return Err(ChainError::PathLength { ca: name(), found: between, limit });
        }
        let scheme =
            current.scheme().map_err(|source| ChainError::Scheme { certificate: certificate(), source })?;
        if scheme.hash() != Hash::Identity && !self.trust.hashes.contains(scheme.hash()) {
            return Err(ChainError::SchemeNotAllowed { certificate: certificate(), scheme });
        }
        self.spent.spend()?;
        if !current.is_signed_by(issuer.key()) {
            return Err(ChainError::WrongSignature { certificate: certificate(), issuer: name() });
        }
        Ok(())
    }

    /// Checks that the demanded CA is on the path.
    fn has_named_ca(&self, path: &[&Certificate], anchor: &Certificate) -> Result<(), ChainError> {
        let Some(wanted) = self.trust.ca else { return Ok(()) };
        let mut cas = path.iter().skip(1).copied().chain([anchor]);
        if cas.any(|ca| ca.confirms(wanted)) {
            return Ok(());
        }
        Err(ChainError::OtherCa { anchor: anchor.subject().clone(), expected: wanted.clone() })
    }

    /// Checks that nothing on a path that leads to a trusted CA is revoked. It starts there and
    /// goes down, so that no CRL is read for a CA that a peer has made up: a list may have
    /// megabytes to hash.
    fn not_revoked(&self, path: &[&Certificate], anchor: &Certificate) -> Result<(), ChainError> {
        let mut issuer = anchor;
        for certificate in path.iter().rev() {
            self.revoked(certificate, issuer)?;
            issuer = certificate;
        }
        Ok(())
    }

    fn revoked(&self, certificate: &Certificate, issuer: &Certificate) -> Result<(), ChainError> {
        let status = crl::status(self.trust.crls, certificate, issuer, self.trust.now);
        let demanded = match self.trust.revocation {
            Revocation::Strict => true,
            Revocation::IfUri => certificate.extensions().has_crl_uri,
            Revocation::Relaxed => false,
        };
        let (certificate, issuer) = (certificate.subject().clone(), issuer.subject().clone());
        match status {
            Status::Revoked(at) => Err(ChainError::Revoked { certificate, at }),
            Status::Stale(until) if demanded => Err(ChainError::StaleCrl { certificate, issuer, until }),
            Status::Unknown if demanded => Err(ChainError::NoCrl { certificate, issuer }),
            Status::Good | Status::Stale(_) | Status::Unknown => Ok(()),
        }
    }

    fn note(&mut self, length: usize, why: ChainError) {
        if self.failure.as_ref().is_none_or(|(known, _)| *known < length) {
            self.failure = Some((length, why));
        }
    }

    fn fail(&mut self, length: usize, why: ChainError) -> Option<Certificate> {
        self.note(length, why);
        None
    }
}

/// Checks a certificate by itself.
fn check(certificate: &Certificate, now: UnixTime) -> Result<(), ChainError> {
    let name = || certificate.subject().clone();
    if let Some(source) = certificate.out_of_date(now) {
        return Err(ChainError::OutOfDate { certificate: name(), source });
    }
    if let Some(extension) = &certificate.extensions().unknown_critical {
        return Err(ChainError::UnknownCritical { certificate: name(), extension: extension.clone() });
    }
    // A critical extended key usage binds every user of the key (RFC 5280 §4.2.1.12).
    if certificate.extensions().purposes.as_ref().is_some_and(|purposes| purposes.is_critical) {
        allows_ike(certificate)?;
    }
    Ok(())
}

/// RFC 4945 §5.1.3.12: without an extended key usage every purpose is allowed.
fn allows_ike(certificate: &Certificate) -> Result<(), ChainError> {
    match &certificate.extensions().purposes {
        Some(purposes) if !purposes.allow_ike => Err(ChainError::NotForIke {
            certificate: certificate.subject().clone(),
            found: purposes.named.clone(),
        }),
        _ => Ok(()),
    }
}

/// Compares names, and key identifiers if both have them: whether verifying the signature is
/// worthwhile.
fn may_have_signed(issuer: &Certificate, certificate: &Certificate) -> bool {
    let key_fits = match (&certificate.extensions().authority_key, &issuer.extensions().subject_key) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => true,
    };
    key_fits && issuer.subject() == certificate.issuer()
}
