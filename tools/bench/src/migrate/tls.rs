//! QEMU's own TLS: what it authenticates with, and which cipher suite it agrees on.

use super::channel::PORT;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::pki::{KeyKind, Pki};
use testudo_lab::topology::{Family, OUTER, Side};
use testudo_lab::{Error, Lab, Namespace, Result};

/// GnuTLS's priorities: with the cipher of the other ways. Without them GnuTLS takes AES-256-GCM,
/// and ChaCha20-Poly1305 if a shared key takes the place of certificates.
const PRIORITY: &str = "NORMAL:-CIPHER-ALL:+AES-128-GCM";
const LIMIT: Duration = Duration::from_secs(60);

/// A directory with the certificates of both hosts, in QEMU's layout.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    dir: PathBuf,
}

impl Tls {
    /// Makes a CA, and what it signs for a server and a client at either host.
    pub(super) fn new(lab: &Lab) -> Result<Self> {
        let (pki, dir, kind) = (Pki::new(lab)?, lab.subdir("tls")?, KeyKind::Ecdsa("P-256"));
        pki.ca("ca", kind, "/CN=CA of the hosts", None)?;
        pki.copy("ca.pem", &dir.join("ca-cert.pem"))?;
        let [one, two] = [Side::One, Side::Two].map(|side| side.outer(Family::V4));
        for name in ["server", "client"] {
            // The client compares the address that it has connected to.
            pki.end(name, kind, &format!("/CN={name}"), "ca", &format!("IP:{one},IP:{two}"))?;
            pki.copy(&format!("{name}.pem"), &dir.join(format!("{name}-cert.pem")))?;
            pki.copy(&format!("{name}.key"), &dir.join(format!("{name}-key.pem")))?;
        }
        Ok(Self { dir })
    }

    /// QEMU's object of that name for a `server` or a `client`. Each asks for the other's certificate.
    pub(super) fn object(&self, id: &str, endpoint: &str) -> Value {
        json!({
            "qom-type": "tls-creds-x509",
            "id": id,
            "endpoint": endpoint,
            "dir": self.dir,
            "verify-peer": true,
            "priority": PRIORITY,
        })
    }
}

/// Waits for the ServerHello of a migration that is about to begin, at its source.
#[derive(Debug)]
pub(super) struct Listener(Capture);

impl Listener {
    pub(super) fn start(source: &Namespace) -> Result<Self> {
        // From the migration port; the payload begins as a record of a handshake.
        let filter = format!("tcp src port {PORT} and tcp[(tcp[12] & 0xf0) >> 2] = 22");
        Capture::first(source, OUTER, "hello", &filter, 1).map(Self)
    }

    /// The cipher suite that the server has chosen.
    pub(super) fn suite(self) -> Result<&'static str> {
        self.0.await_packets(1, LIMIT)?;
        let frames = self.0.stop()?.frames()?;
        let found = frames.first().and_then(|frame| chosen(frame));
        found.ok_or_else(|| Error::unexpected("a ServerHello", "a cipher suite", format!("{frames:02x?}")))
    }
}

/// The cipher suite of a ServerHello (RFC 8446 §4.1.3) in TCP over IPv4, with its Ethernet header.
fn chosen(frame: &[u8]) -> Option<&'static str> {
    let ip = frame.get(14..)?;
    let tcp = ip.get(usize::from(ip.first()? & 0x0f) * 4..)?;
    let record = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    // Behind the headers of the record and of the message: version, random, session ID.
    let (kind, hello) = (record.get(5)?, record.get(9..)?);
    let session = usize::from(*hello.get(34)?);
    match (kind, hello.get(35 + session..37 + session)?) {
        (2, [0x13, 0x01]) => Some("TLS_AES_128_GCM_SHA256"),
        (2, [0x13, 0x02]) => Some("TLS_AES_256_GCM_SHA384"),
        (2, [0x13, 0x03]) => Some("TLS_CHACHA20_POLY1305_SHA256"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ServerHello with an empty session ID, behind 20 octets of options of TCP.
    fn hello(kind: u8, suite: [u8; 2]) -> Vec<u8> {
        let ethernet = [0; 14];
        let ip = [&[0x45][..], &[0; 19]].concat();
        let tcp = [&[0; 12][..], &[0xa0], &[0; 27]].concat();
        let headers = [22, 3, 3, 0, 44, kind, 0, 0, 40];
        let body = [&[3, 3][..], &[7; 32], &[0], &suite, &[0]].concat();
        [&ethernet[..], &ip, &tcp, &headers, &body].concat()
    }

    #[test]
    fn the_suite_of_a_server_hello_is_read() {
        assert_eq!(chosen(&hello(2, [0x13, 0x01])), Some("TLS_AES_128_GCM_SHA256"));
        assert_eq!(chosen(&hello(2, [0x13, 0x03])), Some("TLS_CHACHA20_POLY1305_SHA256"));
        assert_eq!(chosen(&hello(1, [0x13, 0x01])), None, "a ClientHello");
        assert_eq!(chosen(&hello(2, [0x13, 0x07])), None, "unknown");
        let whole = hello(2, [0x13, 0x01]);
        assert!((0..whole.len() - 1).all(|len| chosen(&whole[..len]).is_none()));
    }
}
