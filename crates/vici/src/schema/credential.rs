//! `load-cert`, `load-key`, `load-authority`: certificates and private keys, in the encodings of
//! their files.

use super::connection::check_name;
use super::fields::Fields;
use super::refusal::{Refusal, Why, because, expected};
use crate::message::{Element, Message};
use testudo_ike::cert::{CertError, Certificate, Crl, DistinguishedName, PrivateKey, RawKey};

/// The item of a `load-cert`.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// A certificate; true: it must be that of a CA.
    Certificate(Certificate, bool),
    /// A list of revoked certificates.
    Crl(Crl),
    /// A public key without a certificate.
    PublicKey(RawKey),
}

/// Decodes a certificate.
pub(super) fn certificate(data: &[u8]) -> Result<Certificate, Why> {
    Certificate::parse(data).map_err(|error| because(format!("but this {error}")))
}

/// Decodes a public key without a certificate.
pub(super) fn public_key(data: &[u8]) -> Result<RawKey, Why> {
    RawKey::parse(data).map_err(|error| because(format!("but this {error}")))
}

/// Decodes a certificate that must be that of a CA.
pub(super) fn ca(data: &[u8]) -> Result<Certificate, Why> {
    let certificate = certificate(data)?;
    if certificate.is_ca() {
        return Ok(certificate);
    }
    Err(because(format!("but certificate '{}' lacks the CA basic constraint", certificate.subject())))
}

/// Decodes the argument of `load-cert`.
pub fn load_cert(message: &Message) -> Result<Loaded, Refusal> {
    let mut section = Fields::new("load-cert", message)?;
    let kind = section.required("type", "X509, X509_CRL or PUBKEY")?.to_ascii_uppercase();
    let flag = section.text("flag")?.unwrap_or("NONE").to_ascii_uppercase();
    let data = data(&mut section, "the certificate")?;
    let (kind_path, flag_path, data_path) =
        (section.path("type"), section.path("flag"), section.path("data"));
    section.finish()?;
    let bad = |path: &str, found: &str, Why(why)| Refusal::Bad {
        path: path.to_owned(),
        found: format!("{found:?}"),
        why,
    };
    let found = format!("a file of {} octets", data.len());
    let malformed = |why: String| Refusal::Bad { path: data_path, found, why };
    match (kind.as_str(), flag.as_str()) {
        ("X509", "NONE" | "CA") => {
            let parsed = Certificate::parse(data).map_err(|error| malformed(format!("but this {error}")))?;
            Ok(Loaded::Certificate(parsed, flag == "CA"))
        }
        ("X509", _) => Err(bad(&flag_path, &flag, expected("NONE or CA"))),
        ("X509_CRL", _) => {
            Crl::parse(data).map(Loaded::Crl).map_err(|error| malformed(format!("but this {error}")))
        }
        ("PUBKEY", _) => public_key(data).map(Loaded::PublicKey).map_err(|Why(why)| malformed(why)),
        (_, _) => Err(bad(
            &kind_path,
            &kind,
            because("but this type is not supported; expected X509, X509_CRL or PUBKEY".into()),
        )),
    }
}

/// Decodes the argument of `load-key`.
pub fn load_key(message: &Message) -> Result<PrivateKey, Refusal> {
    let mut section = Fields::new("load-key", message)?;
    section.parsed("type", |kind| match kind.to_ascii_lowercase().as_str() {
        // The key itself tells its type.
        "any" | "rsa" | "ecdsa" | "ed25519" | "pkcs8" | "private" => Ok(()),
        _ => Err(because(
            "but keys of this type are not supported; expected any, rsa, ecdsa or ed25519".into(),
        )),
    })?;
    let data = data(&mut section, "the key")?;
    let path = section.path("data");
    section.finish()?;
    PrivateKey::parse(data).map_err(|error| Refusal::Bad {
        path,
        found: format!("a file of {} octets", data.len()),
        why: format!("but this is {error}"),
    })
}

fn data<'a>(section: &mut Fields<'a>, expected: &'static str) -> Result<&'a [u8], Refusal> {
    let missing = Refusal::Missing { path: section.path("data"), expected };
    let data = section.blob("data")?.map(|blob| blob.bytes()).filter(|data| !data.is_empty());
    data.ok_or(missing)
}

/// Keys of an authority that say where something could be fetched, and what is not fetched.
const URIS: [(&str, &str); 3] = [
    ("crl_uris", "no list of revoked certificates is fetched: put them into x509crl/"),
    ("ocsp_uris", "no OCSP server is asked"),
    ("cert_uri_base", "no certificate is fetched by its hash"),
];

/// Decodes the argument of `load-authority`: one section, named like the authority.
pub fn load_authority(message: &Message) -> Result<(String, Certificate), Refusal> {
    let [Element::Section(name, content)] = message.elements() else {
        return Err(Refusal::Missing { path: "authorities".to_owned(), expected: "exactly one authority" });
    };
    check_name(name, "authorities")?;
    let mut section = Fields::new(&format!("authorities.{name}"), content)?;
    section.list("crl_uris", Ok)?;
    section.list("ocsp_uris", Ok)?;
    section.text("cert_uri_base")?;
    for (key, what) in [
        ("file", "a certificate that the daemon itself reads (name it in cacert instead)"),
        ("handle", "tokens"),
        ("slot", "tokens"),
        ("module", "tokens"),
    ] {
        if let Some(value) = section.text(key)?.filter(|value| !value.is_empty()) {
            return Err(unsupported(&section, key, value, what));
        }
    }
    let path = section.path("cacert");
    let data = section.blob("cacert")?;
    section.finish()?;
    // Last: a check without the files has no certificates, and finds what else is wrong.
    let missing = || Refusal::Missing { path: path.clone(), expected: "the certificate of the CA" };
    let data = data.ok_or_else(missing)?.bytes();
    let found = format!("a file of {} octets", data.len());
    ca(data).map(|ca| (name.clone(), ca)).map_err(|Why(why)| Refusal::Bad { path, found, why })
}

/// Keys of an accepted authority that have no effect, for the log: each line begins with the path of
/// a key.
pub fn not_fetched(message: &Message) -> Vec<String> {
    let authorities = message.sections();
    let lines = authorities.flat_map(|(name, content)| {
        URIS.iter().filter_map(move |(key, what)| {
            let uri = content.texts(key).next().or_else(|| content.text(key));
            let uri = uri.filter(|uri| !uri.is_empty())?;
            Some(format!("authorities.{name}.{key}: {uri} has no effect: {what}"))
        })
    });
    lines.collect()
}

fn unsupported(section: &Fields<'_>, key: &str, found: &str, what: &'static str) -> Refusal {
    let found = super::refusal::quote(found.as_bytes());
    Refusal::Unsupported { path: section.path(key), found, what, expected: "" }
}

/// Parses a distinguished name in the form of `swanctl --list-certs --subject`.
pub(crate) fn distinguished_name(text: &str) -> Result<DistinguishedName, Why> {
    text.parse().map_err(|error: CertError| because(format!("but this {error}")))
}

/// Parses a key identifier in hexadecimal digits.
pub(crate) fn key_id(text: &str) -> Result<Vec<u8>, Why> {
    let digit = |octet: u8| char::from(octet).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let octets: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    octets
        .filter(|octets| rest.is_empty() && !octets.is_empty())
        .ok_or_else(|| expected("the identifier of a key, in hexadecimal digits"))
}
