//! The commands about certificates and private keys.

use super::Answer;
use super::commands::{done, failed, fields};
use super::stream::{Source, Stream};
use crate::control::Control;
use crate::error::CommandError;
use crate::message::Message;
use crate::schema::{self, Loaded, Refusal};
use crate::session::Request;
use crate::view::ListedCert;
use std::collections::BTreeSet;
use testudo_ike::cert::{DistinguishedName, PrivateKey, RawKey};
use testudo_ike::config::Connection;

/// The answer to `get-keys`.
pub(super) fn keys(control: &dyn Control) -> Message {
    Message::new().with_list("keys", control.credentials().keys().map(|key| hex(&key.key_id())))
}

/// The answer to `get-authorities`.
pub(super) fn authorities(control: &dyn Control) -> Message {
    Message::new().with_list("authorities", control.credentials().authorities().map(|(name, _)| name))
}

pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub(super) fn load_cert(loaded: Loaded, control: &mut dyn Control) -> Answer {
    let credentials = control.credentials_mut();
    let result = match loaded {
        Loaded::Certificate(certificate, ca) => credentials.load_certificate(certificate, ca),
        Loaded::Crl(crl) => {
            // An older list than the loaded one changes nothing, as in charon.
            credentials.load_crl(crl);
            Ok(())
        }
        Loaded::PublicKey(key) => {
            credentials.load_public_key(key);
            Ok(())
        }
    };
    Answer::Now(done(result.map_err(CommandError::from)))
}

pub(super) fn load_key(key: PrivateKey, control: &mut dyn Control) -> Answer {
    let id = hex(&key.key_id());
    control.credentials_mut().load_key(key);
    Answer::Now(done(Ok(())).with("id", id))
}

pub(super) fn unload_key(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let missing = Refusal::Missing { path: fields.path("id"), expected: "the identifier of a key" };
    let id = fields.parsed("id", schema::key_id)?.ok_or(missing)?;
    fields.finish()?;
    let found = control.credentials_mut().unload_key(&id);
    Ok(Answer::Now(if found { done(Ok(())) } else { failed("key not found".to_owned()) }))
}

pub(super) fn load_authority(arguments: &Message, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let (name, ca) = schema::load_authority(arguments)?;
    let result = control.credentials_mut().load_authority(&name, ca);
    if result.is_ok() {
        for line in schema::not_fetched(arguments) {
            control.warn(None, line);
        }
    }
    Ok(Answer::Now(done(result.map_err(CommandError::from))))
}

pub(super) fn unload_authority(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let name = fields.required("name", "the name of an authority")?;
    fields.finish()?;
    let found = control.credentials_mut().unload_authority(name);
    let missing = || failed(format!("unload: authority '{name}' not found"));
    Ok(Answer::Now(if found { done(Ok(())) } else { missing() }))
}

pub(super) fn list_authorities(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let wanted = fields.text("name")?;
    fields.finish()?;
    let authorities = control.credentials().authorities();
    let shown = authorities.filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    let shown = shown.map(|(name, ca)| (name.to_owned(), ca.clone())).collect();
    Ok(Answer::Stream(Stream::new(Source::Authorities(shown))))
}

/// The certificates that `list-certs` shows.
struct Filter {
    kind: String,
    flag: String,
    subject: Option<DistinguishedName>,
}

pub(super) fn list_certs(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let filter = Filter {
        kind: fields.text("type")?.unwrap_or("ANY").to_ascii_uppercase(),
        flag: fields.text("flag")?.unwrap_or("ANY").to_ascii_uppercase(),
        subject: fields.parsed("subject", schema::distinguished_name)?,
    };
    fields.finish()?;
    let credentials = control.credentials();
    // As in charon, also the certificates that connections name: they are loaded with them.
    let named = connections(control).flat_map(|connection| {
        let ours = connection.local_rounds().map(|local| &local.certs);
        let theirs = connection.remote_rounds().flat_map(|remote| [&remote.certs, &remote.cacerts]);
        ours.chain(theirs)
    });
    let mut seen = BTreeSet::new();
    let all = credentials.certificates().chain(credentials.cas()).chain(named.flatten());
    let certificates = all.filter(|certificate| {
        filter.shows("X509", certificate.subject()) && seen.insert(certificate.to_der())
    });
    // CA certificates come last.
    let (cas, others): (Vec<_>, Vec<_>) = certificates.partition(|certificate| certificate.is_ca());
    let of_flag = |flag: &str| filter.flag == "ANY" || filter.flag == flag;
    let others = others.into_iter().filter(|_| of_flag("NONE"));
    let x509 = others.chain(cas.into_iter().filter(|_| of_flag("CA")));
    let x509 = x509.map(|certificate| ListedCert::Certificate {
        certificate: certificate.clone(),
        has_private_key: credentials.has_private_key(certificate.key()),
    });
    let crls = credentials.crls().iter().filter(|crl| filter.shows("X509_CRL", crl.issuer()));
    let keys = filter.shows_public_keys().then(|| public_keys(control)).into_iter().flatten();
    let listed = keys.chain(x509).chain(crls.map(|crl| ListedCert::Crl(crl.to_der().to_vec()))).collect();
    Ok(Answer::Stream(Stream::new(Source::Certs(listed))))
}

fn connections(control: &dyn Control) -> impl Iterator<Item = &Connection> {
    control.connection_names().into_iter().filter_map(move |name| control.connection(&name))
}

/// The public keys, as in charon also those that connections name.
fn public_keys(control: &dyn Control) -> Vec<ListedCert> {
    let credentials = control.credentials();
    let named = connections(control).flat_map(|connection| {
        let ours = connection.local_rounds().map(|local| &local.pubkeys);
        ours.chain(connection.remote_rounds().map(|remote| &remote.pubkeys))
    });
    let mut seen = BTreeSet::new();
    let all = credentials.public_keys().chain(named.flatten()).filter(|key| seen.insert(key.to_der()));
    let listed = |key: &RawKey| ListedCert::PublicKey {
        key: key.clone(),
        has_private_key: credentials.has_private_key(key.key()),
    };
    all.map(listed).collect()
}

impl Filter {
    /// False with a filter on subjects, which public keys do not have.
    fn shows_public_keys(&self) -> bool {
        ["ANY", "PUBKEY"].contains(&&*self.kind) && self.subject.is_none()
    }

    fn shows(&self, kind: &str, subject: &DistinguishedName) -> bool {
        let is_kind = self.kind == "ANY" || self.kind == kind;
        is_kind && self.subject.as_ref().is_none_or(|wanted| wanted.covers(subject))
    }
}
