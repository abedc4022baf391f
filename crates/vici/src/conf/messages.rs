//! The messages that swanctl sends for the sections: one for each connection, secret, pool and
//! authority.

use super::tree::{self, Tree, Value};
use super::{At, Files};
use crate::message::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// Keys whose values are lists.
const LISTS: [&str; 11] = [
    "local_addrs",
    "remote_addrs",
    "proposals",
    "esp_proposals",
    "ah_proposals",
    "local_ts",
    "remote_ts",
    "vips",
    "pools",
    "groups",
    "cert_policy",
];

/// Keys whose values name files, and the directories of these files.
const FILES: [(&str, &str); 3] = [("certs", "x509"), ("cacerts", "x509ca"), ("pubkeys", "pubkey")];

/// Prefixes of the names of secrets that swanctl sends as they are. The prefix tells swanctl the
/// type.
const SECRETS: [&str; 5] = ["eap", "xauth", "ntlm", "ike", "ppk"];
/// Prefixes of the names of secrets that swanctl does not send, but decrypts keys with, and the
/// directories of these keys.
const KEYS: [&str; 4] = ["private", "rsa", "ecdsa", "pkcs8"];
/// Prefixes of the names of other secrets that it does not send as they are.
const CONTAINERS: [&str; 2] = ["pkcs12", "token"];

/// What is wrong with a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyFault {
    /// A file that it names cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A secret has no such key.
    #[error("unknown key")]
    Unknown,
    /// A name or text that the gateway refuses.
    #[error("found octet 0x{0:02X}, expected UTF-8")]
    Encoding(u8),
    /// swanctl knows the type of the secret, and the gateway does not support it.
    #[error("secrets of type {0} are not supported")]
    SecretType(&'static str),
    /// The name does not begin with a type of secrets.
    #[error("swanctl knows no secret of this name; expected one that begins with ike, ppk or private")]
    SecretName,
}

/// Makes messages, and notes the place of each key.
pub(super) struct Maker<'a> {
    pub(super) tree: &'a Tree,
    pub(super) files: &'a dyn Files,
    /// The directory of swanctl.conf.
    pub(super) directory: PathBuf,
    /// False: the content of files is left out.
    pub(super) reads_files: bool,
    /// The place of each key or section, by its path.
    pub(super) places: BTreeMap<String, At>,
    /// Keys that are left out because their files are not read.
    pub(super) left_out: BTreeSet<String>,
    /// Faults of keys, with the path of each key.
    pub(super) faults: Vec<(String, KeyFault)>,
    /// Keys that swanctl passes over, with the path of each, and why it does.
    pub(super) passed_over: Vec<(String, String)>,
    /// Names of the files with keys for which there is a passphrase.
    pub(super) decrypted: BTreeSet<String>,
}

impl Maker<'_> {
    /// The argument of `load-conn`.
    pub(super) fn connection(&mut self, name: &str) -> Message {
        self.enter(&["connections", name]);
        Message::new().with_section(name, self.section(&["connections", name]))
    }

    /// Notes the place of a section.
    fn enter(&mut self, path: &[&str]) {
        let views = self.tree.views(path);
        let first = views.first().and_then(|section| section.places.first().copied());
        self.places.insert(path.join("."), first.unwrap_or_default());
        if let Some(octet) = views.first().and_then(|section| section.stray) {
            self.faults.push((path.join("."), KeyFault::Encoding(octet)));
        }
    }

    fn section(&mut self, path: &[&str]) -> Message {
        let tree = self.tree;
        let views = tree.views(path);
        let mut message = Message::new();
        for (value, text) in tree::values(&views) {
            self.note(path, value);
            let file = FILES.iter().find(|(key, _)| value.name.eq_ignore_ascii_case(key));
            if LISTS.iter().any(|key| value.name.eq_ignore_ascii_case(key)) {
                message.add_list(&value.name, list(text));
            } else if let Some((_, directory)) = file {
                self.add_files(&mut message, &full(path, &value.name), directory, text);
            } else {
                message.add(&value.name, text);
            }
        }
        for section in tree::sections(&views) {
            let inner: Vec<&str> = path.iter().copied().chain([section.name.as_str()]).collect();
            self.enter(&inner);
            let content = self.section(&inner);
            message.add_section(&section.name, content);
        }
        message
    }

    fn note(&mut self, path: &[&str], value: &Value) {
        let key = full(path, &value.name);
        self.places.insert(key.clone(), value.at);
        if let Some(octet) = value.stray {
            self.faults.push((key, KeyFault::Encoding(octet)));
        }
    }

    fn add_files(&mut self, message: &mut Message, key: &str, directory: &str, text: &str) {
        let name = key.rsplit('.').next().unwrap_or(key);
        let mut contents = Vec::new();
        for item in list(text) {
            match self.file(directory, item) {
                Some(Ok(content)) => contents.push(content),
                Some(Err(fault)) => self.faults.push((key.to_owned(), fault)),
                None => {
                    self.left_out.insert(key.to_owned());
                }
            }
        }
        if !contents.is_empty() {
            message.add_list(name, contents);
        }
    }

    /// `None` if the file is not to be read, or its path cannot be derived from the text.
    fn file(&self, directory: &str, name: &str) -> Option<Result<Vec<u8>, KeyFault>> {
        if !self.reads_files || name.starts_with("0x") || name.starts_with("0s") {
            return None;
        }
        let path = self.directory.join(directory).join(name);
        Some(self.files.read(&path).map_err(|source| KeyFault::Unreadable { path, source }))
    }

    /// The argument of `load-pool`.
    pub(super) fn pool(&mut self, name: &str) -> Message {
        let tree = self.tree;
        let path = ["pools", name];
        self.enter(&path);
        let mut message = Message::new();
        for (value, text) in tree::values(&tree.views(&path)) {
            self.note(&path, value);
            match value.name.as_str() {
                "addrs" => message.add("addrs", text),
                name => message.add_list(name, list(text)),
            }
        }
        Message::new().with_section(name, message)
    }

    /// The argument of `load-authority`.
    pub(super) fn authority(&mut self, name: &str) -> Message {
        let tree = self.tree;
        let path = ["authorities", name];
        self.enter(&path);
        let mut message = Message::new();
        for (value, text) in tree::values(&tree.views(&path)) {
            self.note(&path, value);
            let key = full(&path, &value.name);
            match value.name.as_str() {
                "cacert" => match self.file("x509ca", text) {
                    Some(Ok(content)) => message.add("cacert", content),
                    Some(Err(fault)) => {
                        self.left_out.insert(key.clone());
                        self.faults.push((key, fault));
                    }
                    None => {
                        self.left_out.insert(key);
                    }
                },
                name @ ("crl_uris" | "ocsp_uris") => message.add_list(name, list(text)),
                name => message.add(name, text),
            }
        }
        Message::new().with_section(name, message)
    }

    /// The argument of `load-shared`. `None` for a key in a file, and for a secret that swanctl
    /// does not know.
    pub(super) fn secret(&mut self, name: &str) -> Option<Message> {
        let tree = self.tree;
        let path = ["secrets", name];
        self.enter(&path);
        let Some(kind) = SECRETS.iter().find(|kind| name.starts_with(**kind)) else {
            self.other_secret(name);
            return None;
        };
        let mut message = Message::new().with("id", name).with("type", *kind);
        let mut owners = Vec::new();
        for (value, text) in tree::values(&tree.views(&path)) {
            match value.name.as_str() {
                "secret" => {
                    self.places.insert(full(&path, "data"), value.at);
                    message.add("data", text);
                }
                id if id.starts_with("id") => {
                    self.note(&path, value);
                    self.places.insert(full(&path, "owners"), value.at);
                    owners.push(text);
                }
                other => {
                    self.note(&path, value);
                    self.faults.push((full(&path, other), KeyFault::Unknown));
                }
            }
        }
        message.add_list("owners", owners);
        Some(message)
    }

    fn other_secret(&mut self, name: &str) {
        if let Some(directory) = KEYS.iter().find(|kind| name.starts_with(**kind)) {
            return self.key_secret(name, directory);
        }
        let fault = match CONTAINERS.iter().find(|kind| name.starts_with(**kind)) {
            Some(kind) => KeyFault::SecretType(kind),
            None => KeyFault::SecretName,
        };
        self.faults.push((full(&["secrets"], name), fault));
    }

    /// The passphrase of a key in a file.
    fn key_secret(&mut self, name: &str, directory: &str) {
        let path = ["secrets", name];
        let mut file = None;
        for (value, text) in tree::values(&self.tree.views(&path)) {
            match value.name.as_str() {
                "secret" => {}
                "file" => file = Some(text),
                _ => self.faults.push((full(&path, &value.name), KeyFault::Unknown)),
            }
            self.places.insert(full(&path, &value.name), value.at);
        }
        let Some(file) = file else {
            let why = "names no file, so swanctl decrypts nothing with it".to_owned();
            return self.passed_over.push((path.join("."), why));
        };
        self.decrypted.insert(file.to_owned());
        if let Some(Err(why)) = self.file(directory, file) {
            self.passed_over.push((full(&path, "file"), format!("{why}, so swanctl decrypts nothing")));
        }
    }
}

fn full(path: &[&str], name: &str) -> String {
    path.iter().copied().chain([name]).collect::<Vec<_>>().join(".")
}

/// Splits a list at commas and trims the items.
fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}
