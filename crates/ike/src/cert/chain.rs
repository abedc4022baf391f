//! From a certificate to a CA that is trusted (RFC 5280 §6), as far as IKE needs it.

use super::certificate::Certificate;
use super::crl::{self, Crl, Status};
use super::scheme::{Hash, Hashes};
use crate::config::{Eku, Identity, Revocation};
use crate::output::UnixTime;
use std::cell::Cell;

/// Certificates of the longest chain that is followed, the trusted CA's included.
const MAX_LENGTH: usize = 10;
/// Signatures that are checked for one message: CAs that have signed each other lead to many ways,
/// and a peer sends the certificates that lead there.
const MAX_SIGNATURES: usize = 32;

/// How many signatures have been checked for a message.
#[derive(Debug, Default)]
pub struct Spent(Cell<usize>);

impl Spent {
    /// Spends one more, if one is left.
    pub(crate) fn spend(&self) -> Result<(), String> {
        if self.0.get() >= MAX_SIGNATURES {
            return Err(format!("more than {MAX_SIGNATURES} signatures on the way"));
        }
        self.0.set(self.0.get().saturating_add(1));
        Ok(())
    }
}

/// What a chain is judged by.
#[derive(Clone, Debug)]
pub struct Trust<'a> {
    /// The time by which certificates are valid.
    pub now: UnixTime,
    /// CAs that are trusted.
    pub anchors: Vec<&'a Certificate>,
    /// Certificates of peers that are trusted as they are, if they have signed themselves.
    pub pinned: Vec<&'a Certificate>,
    /// Certificates that may stand in between.
    pub intermediates: Vec<&'a Certificate>,
    /// The identity that a CA of the chain has, by its subject or a subjectAltName.
    pub ca: Option<&'a Identity>,
    /// The lists of revoked certificates.
    pub crls: &'a [Crl],
    /// What happens where they say nothing.
    pub revocation: Revocation,
    /// What an extended key usage of the end must allow.
    pub eku: Eku,
    /// Hash algorithms that may stand in the chain's signatures.
    pub hashes: Hashes,
}

struct Search<'a, 'b> {
    trust: &'b Trust<'a>,
    spent: &'b Spent,
    /// Why the way that led furthest did not lead to the end.
    failure: Option<(usize, String)>,
}

impl Trust<'_> {
    /// The trusted CA that the certificate leads to, or why there is none.
    pub fn verify(&self, end: &Certificate) -> Result<Certificate, String> {
        self.verify_within(end, &Spent::default())
    }

    /// The same, with signatures that others have left.
    pub fn verify_within(&self, end: &Certificate, spent: &Spent) -> Result<Certificate, String> {
        if let Some(usage) = end.extensions().usage
            && !usage.signs
        {
            // RFC 4945 §5.1.3.2.
            return Err(format!("key usage of '{}' does not allow signatures", end.subject()));
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
            None => Err(search.failure.map_or_else(|| "no chain was found".to_owned(), |(_, why)| why)),
        }
    }
}

impl<'a> Search<'a, '_> {
    /// Goes on from the last certificate of the path to its issuers, trusted ones first.
    fn extend(&mut self, path: &mut Vec<&'a Certificate>) -> Option<Certificate> {
        let current = *path.last()?;
        if let Err(why) = check(current, self.trust.now) {
            return self.fail(path.len(), why);
        }
        let issuers = |from: &[&'a Certificate]| -> Vec<&'a Certificate> {
            from.iter().copied().filter(|issuer| may_have_signed(issuer, current)).collect()
        };
        let anchors = issuers(&self.trust.anchors);
        // A way ends at a CA that is trusted: what lies beyond it changes nothing.
        let mut others = issuers(&self.trust.intermediates);
        others.retain(|issuer| !self.trust.anchors.contains(issuer));
        if anchors.is_empty() && others.is_empty() {
            let (subject, issuer) = (current.subject(), current.issuer());
            return self.fail(
                path.len(),
                format!("no issuer certificate is loaded for '{subject}', issued by '{issuer}'"),
            );
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
                let name = issuer.subject();
                let why = if issuer == current {
                    format!("root CA '{name}' is not trusted here")
                } else {
                    format!("CA '{name}' leads in circles")
                };
                self.note(path.len(), why);
                continue;
            }
            if path.len() + 1 >= MAX_LENGTH {
                return self.fail(path.len(), format!("the chain is longer than {MAX_LENGTH} certificates"));
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

    /// Whether the issuer may have issued, and has, the last certificate of the path.
    fn link(
        &mut self,
        path: &[&Certificate],
        current: &Certificate,
        issuer: &Certificate,
    ) -> Result<(), String> {
        let (subject, name) = (current.subject(), issuer.subject());
        let ca = issuer.extensions().ca.ok_or_else(|| format!("issuer '{name}' is no CA"))?;
        if issuer.extensions().usage.is_some_and(|usage| !usage.certificates) {
            return Err(format!("key usage of CA '{name}' does not allow it to sign certificates"));
        }
        // Those that a CA issued to itself do not count (RFC 5280 §4.2.1.9).
        let between = path.iter().skip(1).filter(|certificate| !certificate.is_self_issued()).count();
        if ca.path_length.is_some_and(|most| between > usize::from(most)) {
            return Err(format!("path length of CA '{name}' is exceeded: {between} CAs below it"));
        }
        let scheme = current.scheme().map_err(|error| format!("certificate '{subject}': {error}"))?;
        if scheme.hash() != Hash::Identity && !self.trust.hashes.contains(scheme.hash()) {
            return Err(format!("certificate '{subject}' is signed by {scheme}, which is not allowed here"));
        }
        self.spent.spend()?;
        if !current.is_signed_by(issuer.key()) {
            return Err(format!("signature of certificate '{subject}' by '{name}' is wrong"));
        }
        Ok(())
    }

    /// Whether the CA that is demanded is among those of the way.
    fn has_named_ca(&self, path: &[&Certificate], anchor: &Certificate) -> Result<(), String> {
        let Some(wanted) = self.trust.ca else { return Ok(()) };
        let mut cas = path.iter().skip(1).copied().chain([anchor]);
        if cas.any(|ca| ca.confirms(wanted)) {
            return Ok(());
        }
        Err(format!("no CA up to '{}' has the identity {wanted}", anchor.subject()))
    }

    /// Whether nothing on a way that leads to a trusted CA is revoked: from there on down, so that
    /// no list is looked at for the sake of a CA that a peer has made up. A list may have megabytes
    /// to be hashed.
    fn not_revoked(&self, path: &[&Certificate], anchor: &Certificate) -> Result<(), String> {
        let mut issuer = anchor;
        for certificate in path.iter().rev() {
            self.revoked(certificate, issuer)?;
            issuer = certificate;
        }
        Ok(())
    }

    fn revoked(&self, certificate: &Certificate, issuer: &Certificate) -> Result<(), String> {
        let subject = certificate.subject();
        let missing = match crl::status(self.trust.crls, certificate, issuer, self.trust.now) {
            Status::Good => return Ok(()),
            Status::Revoked(when) => return Err(format!("certificate '{subject}' was revoked at {when}")),
            Status::Stale(until) => format!("the CRL of '{}' counts until {until} only", issuer.subject()),
            Status::Unknown => format!("no CRL of '{}' is loaded", issuer.subject()),
        };
        let demanded = match self.trust.revocation {
            Revocation::Strict => true,
            Revocation::IfUri => certificate.extensions().has_crl_uri,
            Revocation::Relaxed => false,
        };
        if demanded {
            return Err(format!("whether certificate '{subject}' is revoked is not known: {missing}"));
        }
        Ok(())
    }

    fn note(&mut self, length: usize, why: String) {
        if self.failure.as_ref().is_none_or(|(known, _)| *known < length) {
            self.failure = Some((length, why));
        }
    }

    fn fail(&mut self, length: usize, why: String) -> Option<Certificate> {
        self.note(length, why);
        None
    }
}

/// What a certificate must be by itself.
fn check(certificate: &Certificate, now: UnixTime) -> Result<(), String> {
    let subject = certificate.subject();
    if let Some(why) = certificate.expired(now) {
        return Err(format!("certificate '{subject}' is {why}"));
    }
    if let Some(what) = &certificate.extensions().unknown_critical {
        return Err(format!("certificate '{subject}' has {what}, which is not supported"));
    }
    // What is critical binds everybody who uses the key (RFC 5280 §4.2.1.12).
    if certificate.extensions().purposes.as_ref().is_some_and(|purposes| purposes.is_critical) {
        allows_ike(certificate)?;
    }
    Ok(())
}

/// RFC 4945 §5.1.3.12: without an extended key usage every purpose is allowed.
fn allows_ike(certificate: &Certificate) -> Result<(), String> {
    match &certificate.extensions().purposes {
        Some(purposes) if !purposes.allow_ike => Err(format!(
            "extended key usage of '{}' is {}, expected id-kp-ipsecIKE (1.3.6.1.5.5.7.3.17) or anyExtendedKeyUsage",
            certificate.subject(),
            purposes.named
        )),
        _ => Ok(()),
    }
}

/// By name, and by key identifiers where both have them: whether it is worth to check the
/// signature.
fn may_have_signed(issuer: &Certificate, certificate: &Certificate) -> bool {
    let key_fits = match (&certificate.extensions().authority_key, &issuer.extensions().subject_key) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => true,
    };
    key_fits && issuer.subject() == certificate.issuer()
}
