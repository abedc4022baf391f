//! Certificates, keys and CRLs: the files of the tests of `testudo-ike`.

use super::Seed;
use testudo_ike::cert::{Certificate, Crl, SignatureScheme};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../../crates/ike/tests/fixtures/pki/", $name, ".pem")).as_slice()
    };
}

/// One of each kind.
pub(super) fn all() -> Vec<Seed> {
    let certificates = [
        ("rsa", file!("sun-rsa")),
        ("p521", file!("sun-P-521")),
        ("ed25519", file!("sun-ed25519")),
        ("root", file!("root")),
        ("path-length", file!("inter")),
        ("name-constraints", file!("narrow")),
        ("crl-uri", file!("sun-uri")),
        ("critical", file!("sun-critical")),
    ];
    let mut seeds = Vec::new();
    for (name, pem) in certificates {
        let certificate = Certificate::parse(pem).expect("a certificate");
        seeds.push(seed(0, name, certificate.to_der()));
    }
    for (name, pem) in [("crl", file!("revoked.crl")), ("crl-empty", file!("empty.crl"))] {
        seeds.push(seed(1, name, Crl::parse(pem).expect("a list").to_der()));
    }
    seeds.push(seed(2, "key-ed25519", file!("sun-ed25519.key")));
    seeds.push(seed(2, "key-sec1", file!("moon-P-256.sec1")));
    seeds.push(seed(3, "name", b"C=CH, O=A\\, Inc., CN=*"));
    seeds.push(seed(3, "name-slashes", "/DC=org/E=me@example.org/CN=Z\u{fc}rich".as_bytes()));
    for scheme in SignatureScheme::ALL {
        let der = scheme.algorithm_identifier().expect("an identifier");
        seeds.push(seed(4, &format!("scheme-{scheme}"), &der));
    }
    seeds.push(seed(5, "pem", file!("root")));
    seeds
}

fn seed(kind: u8, name: &str, octets: &[u8]) -> Seed {
    (name.to_owned(), [&[kind], octets].concat())
}
