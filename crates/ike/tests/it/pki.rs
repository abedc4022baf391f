//! The files of `fixtures/pki`, which `make.sh` there has made.

use testudo_ike::cert::{Certificate, Crl, PrivateKey, RawKey};
use testudo_ike::output::UnixTime;

/// When the tests play: 2026-11-20.
pub(crate) const NOVEMBER_2026: UnixTime = UnixTime(1_795_132_800);

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/pki/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file by its name without `.pem`.
pub(crate) fn file(name: &str) -> Vec<u8> {
    read(&format!("{name}.pem"))
}

/// What the key of that curve has made of "a message" with that hash.
pub(crate) fn signature(curve: &str, hash: &str) -> Vec<u8> {
    read(&format!("moon-{curve}.{hash}.sig"))
}

pub(crate) fn cert(name: &str) -> Certificate {
    Certificate::parse(&file(name)).unwrap()
}

pub(crate) fn crl(name: &str) -> Crl {
    Crl::parse(&file(name)).unwrap()
}

pub(crate) fn key(name: &str) -> PrivateKey {
    PrivateKey::parse(&file(&format!("{name}.key"))).unwrap()
}

pub(crate) fn public_key(name: &str) -> RawKey {
    RawKey::parse(&file(&format!("{name}.pub"))).unwrap()
}
