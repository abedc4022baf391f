//! Messages, proposals and selectors as text, for logs. Keys, nonces and proofs of identity are not
//! shown.

use crate::config::{AuthMethod, EspProposal, IkeProposal};
use crate::message::{
    Attribute, Configuration, Delete, IdPayload, KeMethod, NotifyType, Payload, SaPayload, Transform,
    TransformType, TsPayload,
};
use crate::suite::offer;
use std::fmt::Write;
use testudo_base::spi::Spi;
use testudo_ipsec::selector::TrafficSelector;

/// A stranger's offer is cut after this many words.
const MAX_WORDS: usize = 48;

/// Bound on the payloads and selectors of a message that are shown.
const MAX_SHOWN: usize = 32;

/// The contents of a message, such as `SA(ESP:AES_GCM_16_128/NO_EXT_SEQ) TSi(10.1.0.0/16)
/// TSr(10.2.0.0/16)`.
pub(crate) fn payloads(list: &[Payload]) -> String {
    let cut = if list.len() > MAX_SHOWN { &[" ..."][..] } else { &[] };
    let shown: Vec<String> = list.iter().take(MAX_SHOWN).map(payload).collect();
    format!("{}{}", shown.join(" "), cut.concat())
}

fn payload(payload: &Payload) -> String {
    let kind = payload.kind();
    match payload {
        Payload::Sa(offer) => format!("{kind}({})", sa(offer)),
        Payload::Ke(ke) => format!("{kind}({})", ke.method),
        Payload::IdInitiator(id) | Payload::IdResponder(id) => format!("{kind}({})", identity(id)),
        Payload::Auth(auth) => format!("{kind}({})", auth.method),
        Payload::Notify(notify) => format!("{kind}({})", notify.kind),
        Payload::Delete(delete) => format!("{kind}({})", deleted(delete)),
        Payload::TsInitiator(ts) | Payload::TsResponder(ts) => format!("{kind}({})", some_selectors(ts)),
        Payload::Configuration(configuration) => format!("{kind}({})", attributes(configuration)),
        Payload::Certificate(_)
        | Payload::CertificateRequest(_)
        | Payload::Nonce(_)
        | Payload::VendorId(_)
        | Payload::Unknown(_) => kind.to_string(),
    }
}

fn identity(id: &IdPayload) -> String {
    id.identity().map_or_else(|| id.kind().to_string(), |identity| identity.to_string())
}

fn deleted(delete: &Delete) -> String {
    match delete {
        Delete::IkeSa => "IKE".to_owned(),
        Delete::Esp(spis) => format!("{} of ESP", spis.len()),
        Delete::Ah(spis) => format!("{} of AH", spis.len()),
    }
}

fn some_selectors(ts: &TsPayload) -> String {
    let cut = if ts.selectors.len() > MAX_SHOWN { " ..." } else { "" };
    let shown = ts.selectors.get(..MAX_SHOWN).unwrap_or(&ts.selectors);
    format!("{}{cut}", selectors(shown))
}

/// The attributes without their values, which may be anything.
fn attributes(configuration: &Configuration) -> String {
    let kinds =
        configuration.attributes.iter().take(MAX_SHOWN).map(|attribute| format!(" {}", attribute.kind));
    format!("{}{}", configuration.kind, kinds.collect::<String>())
}

/// An offer or answer in charon's notation, such as
/// `IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519`.
pub(crate) fn sa(payload: &SaPayload) -> String {
    let mut text = String::new();
    let mut words = 0;
    for proposal in &payload.proposals {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}{}:", proposal.protocol);
        for (index, transform) in proposal.transforms.iter().enumerate() {
            words += 1;
            if words > MAX_WORDS {
                text.push_str("...");
                return text;
            }
            let separator = if index == 0 { "" } else { "/" };
            let _ = write!(text, "{separator}{}", name(transform));
        }
    }
    text
}

/// The configured proposals of an IKE SA.
pub(crate) fn ike_proposals(proposals: &[IkeProposal]) -> String {
    sa(&offer::ike(proposals, None))
}

/// The configured proposals of a Child SA.
pub(crate) fn esp_proposals(proposals: &[EspProposal], exchange: offer::ChildExchange) -> String {
    sa(&offer::esp(proposals, Spi(0), exchange))
}

fn name(transform: &Transform) -> String {
    let number = transform.id.0;
    let known = match (transform.kind, number) {
        (TransformType::Encryption, 3) => "3DES_CBC",
        (TransformType::Encryption, 11) => "NULL",
        (TransformType::Encryption, 12) => "AES_CBC",
        (TransformType::Encryption, 13) => "AES_CTR",
        (TransformType::Encryption, 16) => "AES_CCM_16",
        (TransformType::Encryption, 18) => "AES_GCM_8",
        (TransformType::Encryption, 19) => "AES_GCM_12",
        (TransformType::Encryption, 20) => "AES_GCM_16",
        (TransformType::Encryption, 21) => "NULL_AES_GMAC",
        (TransformType::Encryption, 28) => "CHACHA20_POLY1305",
        (TransformType::Prf, 2) => "PRF_HMAC_SHA1",
        (TransformType::Prf, 4) => "PRF_AES128_XCBC",
        (TransformType::Prf, 5) => "PRF_HMAC_SHA2_256",
        (TransformType::Prf, 6) => "PRF_HMAC_SHA2_384",
        (TransformType::Prf, 7) => "PRF_HMAC_SHA2_512",
        (TransformType::Integrity, 2) => "HMAC_SHA1_96",
        (TransformType::Integrity, 5) => "AES_XCBC_96",
        (TransformType::Integrity, 12) => "HMAC_SHA2_256_128",
        (TransformType::Integrity, 13) => "HMAC_SHA2_384_192",
        (TransformType::Integrity, 14) => "HMAC_SHA2_512_256",
        (TransformType::Esn, 0) => "NO_EXT_SEQ",
        (TransformType::Esn, 1) => "EXT_SEQ",
        _ => "",
    };
    let mut text = match transform.kind {
        TransformType::KeyExchange => KeMethod::from(number).to_string(),
        kind if TransformType::ADDITIONAL_KE.contains(&kind) => {
            format!("{kind}_{}", KeMethod::from(number))
        }
        kind if known.is_empty() => format!("{kind}({number})"),
        _ => known.to_owned(),
    };
    for attribute in &transform.attributes {
        if let Attribute::KeyLength(bits) = attribute {
            let _ = write!(text, "_{bits}");
        }
    }
    text
}

/// Selectors in charon's notation, such as `10.1.0.0/16[tcp/80]`.
pub(crate) fn selectors(list: &[TrafficSelector]) -> String {
    list.iter().map(selector).collect::<Vec<_>>().join(" ")
}

fn selector(ts: &TrafficSelector) -> String {
    let mut text = addrs(ts);
    let ports = match (ts.port_start, ts.port_end) {
        (0, u16::MAX) => None,
        (start, end) if start > end => Some("OPAQUE".to_owned()),
        (start, end) if start == end => Some(start.to_string()),
        (start, end) => Some(format!("{start}-{end}")),
    };
    let protocol = match ts.protocol {
        0 => None,
        1 => Some("icmp".to_owned()),
        6 => Some("tcp".to_owned()),
        17 => Some("udp".to_owned()),
        58 => Some("ipv6-icmp".to_owned()),
        other => Some(other.to_string()),
    };
    let _ = match (protocol, ports) {
        (None, None) => Ok(()),
        (Some(protocol), None) => write!(text, "[{protocol}]"),
        (protocol, Some(ports)) => write!(text, "[{}/{ports}]", protocol.as_deref().unwrap_or("0")),
    };
    text
}

/// A prefix if the range is one, else the range.
fn addrs(ts: &TrafficSelector) -> String {
    let (start, end) = (ts.addrs.start(), ts.addrs.end());
    let (bits, first, last) = match (start, end) {
        (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => {
            (32, u128::from(a.to_bits()), u128::from(b.to_bits()))
        }
        (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => (128, a.to_bits(), b.to_bits()),
        _ => return format!("{start}..{end}"),
    };
    let differing = 128 - (first ^ last).leading_zeros();
    let host = if differing == 128 { u128::MAX } else { (1 << differing) - 1 };
    if first & host == 0 && last & host == host {
        format!("{start}/{}", bits - differing)
    } else {
        format!("{start}..{end}")
    }
}

/// An error notify with its most frequent cause.
pub(crate) fn hint(kind: NotifyType, method: AuthMethod) -> String {
    let hint = match (kind, method) {
        (NotifyType::AuthenticationFailed, AuthMethod::Psk) => {
            " (is the shared key the same, and does the peer know our identity?)"
        }
        (NotifyType::AuthenticationFailed, AuthMethod::Pubkey { .. }) => {
            " (does the peer trust our CA, and does it know our identity?)"
        }
        (NotifyType::TsUnacceptable, _) => " (do local_ts and remote_ts agree with the peer's?)",
        (NotifyType::InternalAddressFailure, _) => " (has the peer a pool for us, and is there room in it?)",
        (NotifyType::FailedCpRequired, _) => " (the peer wants us to ask for a virtual address: set vips)",
        (NotifyType::NoProposalChosen, _) => " (do esp_proposals agree with the peer's?)",
        _ => "",
    };
    format!("{kind}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Identity, IkeEncryption, KeyExchange, Prf};
    use crate::message::{
        AuthMethodId, AuthPayload, KePayload, Nonce, Notify, Proposal, Protocol, SaSpi, TransformId,
    };
    use testudo_ipsec::selector::AddrRange;

    #[test]
    fn proposals_read_as_charon_writes_them() {
        let ours = IkeProposal {
            encryption: vec![IkeEncryption::Aes256Gcm16],
            prf: vec![Prf::HmacSha384],
            ke: vec![KeyExchange::X25519, KeyExchange::Ecp256],
            ..IkeProposal::default()
        };
        assert_eq!(ike_proposals(&[ours]), "IKE:AES_GCM_16_256/PRF_HMAC_SHA2_384/CURVE_25519/ECP_256");
    }

    #[test]
    fn a_message_is_shown_without_what_is_secret_or_proves_an_identity() {
        let addr = "10.1.0.1".parse().unwrap();
        let ts = TrafficSelector::all(AddrRange::new(addr, addr).unwrap());
        let list = [
            Payload::Sa(offer::ike(
                &[IkeProposal { prf: vec![Prf::HmacSha256], ..IkeProposal::default() }],
                None,
            )),
            Payload::Ke(KePayload { method: KeMethod::from(31), data: b"a key".to_vec() }),
            Payload::Nonce(Nonce::new(vec![0x61; 32]).unwrap()),
            Payload::IdInitiator(IdPayload::from(&Identity::Fqdn("moon".into()))),
            Payload::Auth(AuthPayload { method: AuthMethodId::SharedKeyMic, data: b"a proof".to_vec() }),
            Payload::Notify(Notify::new(NotifyType::Cookie, b"a cookie".to_vec())),
            Payload::Delete(Delete::Esp(vec![Spi(7), Spi(8)])),
            Payload::TsInitiator(TsPayload::new(vec![ts])),
        ];
        assert_eq!(
            payloads(&list),
            "SA(IKE:PRF_HMAC_SHA2_256) KE(CURVE_25519) Nonce IDi(moon) AUTH(Shared Key Message Integrity Code) \
             N(COOKIE) D(2 of ESP) TSi(10.1.0.1/32)"
        );
        let text = payloads(&vec![Payload::Delete(Delete::IkeSa); 100]);
        assert!(text.ends_with("D(IKE) ...") && text.len() < 300, "{text}");
    }

    #[test]
    fn a_long_offer_is_cut() {
        let transforms = vec![Transform::new(TransformType::Prf, TransformId(77)); 300];
        let proposal = Proposal { number: 1, protocol: Protocol::Ike, spi: SaSpi::None, transforms };
        let text = sa(&SaPayload { proposals: vec![proposal] });
        assert!(text.starts_with("IKE:PRF(77)/PRF(77)") && text.ends_with("..."), "{text}");
        assert!(text.len() < 600, "{}", text.len());
    }

    #[test]
    fn selectors_read_as_prefixes_where_they_are() {
        let ts = |start: &str, end: &str, protocol, port_start, port_end| TrafficSelector {
            addrs: AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap(),
            protocol,
            port_start,
            port_end,
        };
        let list = [
            ts("10.1.0.0", "10.1.255.255", 0, 0, u16::MAX),
            ts("0.0.0.0", "255.255.255.255", 6, 80, 80),
            ts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0, 0, u16::MAX),
            ts("2001:db8::1", "2001:db8::1", 17, 0, u16::MAX),
            ts("10.0.0.1", "10.0.0.4", 0, u16::MAX, 0),
        ];
        assert_eq!(
            selectors(&list),
            "10.1.0.0/16 0.0.0.0/0[tcp/80] ::/0 2001:db8::1/128[udp] 10.0.0.1..10.0.0.4[0/OPAQUE]"
        );
    }
}
