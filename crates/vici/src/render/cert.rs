//! Certificates and authorities: `list-cert` and `list-authority`.

use super::text;
use crate::message::Message;
use crate::view::ListedCert;
use testudo_ike::cert::Certificate;

/// The event for a certificate or a list of revoked ones; `swanctl` takes its DER apart by itself.
pub fn list_cert(listed: &ListedCert) -> Message {
    match listed {
        ListedCert::Certificate { certificate, has_private_key } => {
            let flag = if certificate.is_ca() { "CA" } else { "NONE" };
            let mut message = Message::new().with("type", "X509").with("flag", flag);
            if *has_private_key {
                message.add("has_privkey", "yes");
            }
            message.with("data", certificate.to_der())
        }
        ListedCert::PublicKey { key, has_private_key } => {
            let mut message = Message::new().with("type", "PUBKEY");
            if *has_private_key {
                message.add("has_privkey", "yes");
            }
            message.with("data", key.to_der())
        }
        ListedCert::Crl(der) => Message::new().with("type", "X509_CRL").with("data", der.as_slice()),
    }
}

/// The event for an authority.
pub fn list_authority(name: &str, ca: &Certificate) -> Message {
    let body = Message::new()
        .with("cacert", text::distinguished_name(ca.subject()))
        .with_list("crl_uris", [] as [&str; 0])
        .with_list("ocsp_uris", [] as [&str; 0]);
    Message::new().with_section(name, body)
}
