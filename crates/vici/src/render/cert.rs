//! Certificates and authorities: `list-cert` and `list-authority`.

use super::text;
use crate::message::Message;
use crate::view::ListedCert;
use testudo_ike::cert::Certificate;

/// The event for a certificate or CRL; `swanctl` decodes its DER itself.
pub fn list_cert(listed: &ListedCert) -> Message {
    match listed {
        ListedCert::Certificate { certificate, has_private_key } => {
            let flag = if certificate.is_ca() { "CA" } else { "NONE" };
            let head = Message::new().with("type", "X509").with("flag", flag);
            with_key(head, *has_private_key).with("data", certificate.to_der())
        }
        ListedCert::PublicKey { key, has_private_key } => {
            with_key(Message::new().with("type", "PUBKEY"), *has_private_key).with("data", key.to_der())
        }
        ListedCert::Crl(der) => Message::new().with("type", "X509_CRL").with("data", der.as_slice()),
    }
}

fn with_key(head: Message, has_private_key: bool) -> Message {
    if has_private_key { head.with("has_privkey", "yes") } else { head }
}

/// The event for an authority.
pub fn list_authority(name: &str, ca: &Certificate) -> Message {
    let body = Message::new()
        .with("cacert", text::distinguished_name(ca.subject()))
        .with_list("crl_uris", [] as [&str; 0])
        .with_list("ocsp_uris", [] as [&str; 0]);
    Message::new().with_section(name, body)
}
