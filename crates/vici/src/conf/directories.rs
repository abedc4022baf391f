//! The directories beside `swanctl.conf`: swanctl loads every file in them.

use super::Files;
use super::check::{Finding, Severity};
use crate::message::Message;
use crate::schema::{self, Loaded, Refusal};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Directories of certificates, with the type and flag that swanctl gives to `load-cert`.
const CERTIFICATES: [(&str, &str, &str); 7] = [
    ("x509", "X509", "NONE"),
    ("x509ca", "X509", "CA"),
    ("x509ocsp", "X509", "OCSP"),
    ("x509aa", "X509", "AA"),
    ("x509ac", "X509_AC", "NONE"),
    ("x509crl", "X509_CRL", "NONE"),
    ("pubkey", "PUBKEY", "NONE"),
];
/// Directories of private keys, with the type that swanctl gives to `load-key`.
const KEYS: [(&str, &str); 5] =
    [("private", "any"), ("rsa", "rsa"), ("ecdsa", "ecdsa"), ("bliss", "bliss"), ("pkcs8", "any")];

/// The files that the gateway would refuse. `decrypted`: the names of keys that swanctl decrypts.
pub(super) fn look(beside: &Path, decrypted: &BTreeSet<String>, files: &dyn Files) -> Vec<Finding> {
    let mut found = Vec::new();
    for (directory, kind, flag) in CERTIFICATES {
        for (path, octets) in read(&beside.join(directory), files) {
            let message = |octets: Vec<u8>| {
                let message = Message::new().with("type", kind);
                let message = if kind == "X509" { message.with("flag", flag) } else { message };
                message.with("data", octets)
            };
            found.extend(
                octets.map(message).map_or_else(unreadable, |message| certificate(&message)).map(at(path)),
            );
        }
    }
    for (directory, kind) in KEYS {
        for (path, octets) in read(&beside.join(directory), files) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if decrypted.contains(&*name) {
                continue;
            }
            let key = |octets: Vec<u8>| key(kind, octets);
            found.extend(octets.map_or_else(unreadable, key).map(at(path)));
        }
    }
    found
}

/// The regular files of a directory, sorted by name.
fn read(directory: &Path, files: &dyn Files) -> Vec<(PathBuf, io::Result<Vec<u8>>)> {
    let mut names = files.list(directory).unwrap_or_default();
    names.sort();
    let read = names.into_iter().map(|name| {
        let path = directory.join(name);
        let octets = files.read(&path);
        (path, octets)
    });
    // swanctl passes over directories, and links to nothing.
    let is_none = |error: &io::Error| matches!(error.kind(), ErrorKind::IsADirectory | ErrorKind::NotFound);
    read.filter(|(_, octets)| !octets.as_ref().is_err_and(is_none)).collect()
}

fn at(path: PathBuf) -> impl FnOnce(String) -> Finding {
    move |text| Finding { file: path, line: 0, severity: Severity::Fault, text }
}

fn unreadable(error: io::Error) -> Option<String> {
    Some(error.to_string())
}

fn certificate(message: &Message) -> Option<String> {
    match schema::load_cert(message) {
        Ok(Loaded::Certificate(certificate, true)) if !certificate.is_ca() => {
            Some(format!("certificate '{}' lacks the CA basic constraint", certificate.subject()))
        }
        Ok(_) => None,
        Err(refusal) => Some(without_path(&refusal)),
    }
}

fn key(kind: &str, octets: Vec<u8>) -> Option<String> {
    // swanctl asks for the passphrase.
    if octets.windows(9).any(|text| text == b"ENCRYPTED") {
        return None;
    }
    let message = Message::new().with("type", kind).with("data", octets);
    schema::load_key(&message).err().map(|refusal| without_path(&refusal))
}

/// The fault, without the key of a command that the operator has not written.
fn without_path(refusal: &Refusal) -> String {
    let text = refusal.to_string();
    let begin = format!("{}: ", refusal.path());
    text.strip_prefix(&begin).map(str::to_owned).unwrap_or(text)
}
