//! Identities and selectors in the form in which strongSwan prints them.

use crate::schema::protocol_name;
use std::fmt::Write;
use std::net::IpAddr;
use testudo_ike::cert::DistinguishedName;
use testudo_ike::config::{Identity, TsSpec};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// Longest identity shown: a peer chooses its own, and it may be a key ID of 64 KiB.
const MAX_IDENTITY: usize = 512;

/// An identity like strongSwan's `%Y`: each octet that is not printable ASCII is a `?`.
pub fn identity(identity: &Identity) -> String {
    let mut text = ascii(&exact_identity(identity));
    if text.len() > MAX_IDENTITY {
        text.truncate(MAX_IDENTITY);
        text.push_str("...");
    }
    text
}

/// An identity as text that no other identity has, for generated names that are rarely shown.
pub(crate) fn exact_identity(identity: &Identity) -> String {
    match identity {
        Identity::Addr(address) => address.to_string(),
        Identity::Fqdn(name) | Identity::Email(name) => name.clone(),
        Identity::Dn(name) => name.to_string(),
        Identity::KeyId(octets) => match std::str::from_utf8(octets) {
            // 20 octets may be a hash that happens to be printable.
            Ok(text) if octets.len() != 20 && text.bytes().all(is_printable) => text.to_owned(),
            _ => octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"),
        },
    }
}

/// The distinguished name of a certificate.
pub(super) fn distinguished_name(name: &DistinguishedName) -> String {
    ascii(&name.to_string())
}

/// A value that swanctl can print: swanctl prints `(null)` for a value that is not printable ASCII,
/// so charon sends none.
pub(super) fn ascii(text: &str) -> String {
    text.bytes().map(|octet| if is_printable(octet) { char::from(octet) } else { '?' }).collect()
}

/// A text of this gateway in printable ASCII, its special characters replaced by words.
pub(crate) fn sentence(text: &str) -> String {
    let text = text.replace('§', "section ").replace('…', "...");
    let visible = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    text.chars().map(visible).collect()
}

fn is_printable(octet: u8) -> bool {
    octet == b' ' || octet.is_ascii_graphic()
}

/// A selector like strongSwan's `%R`, with numeric ports.
pub fn selector(ts: &TrafficSelector) -> String {
    range(&ts.addrs) + &limit(ts.protocol, ts.port_start, ts.port_end)
}

/// A configured selector.
pub(crate) fn spec(spec: &TsSpec) -> String {
    match spec {
        TsSpec::Dynamic { protocol, port_start, port_end } => {
            format!("dynamic{}", limit(*protocol, *port_start, *port_end))
        }
        TsSpec::Fixed(ts) => selector(ts),
    }
}

/// Addresses as a subnet, or else as a range with `..`.
pub(super) fn range(range: &AddrRange) -> String {
    match prefix_len(range) {
        Some(length) => format!("{}/{length}", range.start()),
        None => format!("{}..{}", range.start(), range.end()),
    }
}

/// Addresses as in `local_addrs`: a single address has no prefix length.
pub(super) fn endpoint(range: &AddrRange) -> String {
    match prefix_len(range) {
        _ if range.start() == range.end() => range.start().to_string(),
        Some(length) => format!("{}/{length}", range.start()),
        None => format!("{}-{}", range.start(), range.end()),
    }
}

/// Length of the prefix, if the range is a subnet.
fn prefix_len(range: &AddrRange) -> Option<u32> {
    let (first, last, bits) = match (range.start(), range.end()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits().into(), last.to_bits().into(), 32),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits(), 128),
        _ => return None,
    };
    let differ: u128 = first ^ last;
    let host = 128 - differ.leading_zeros();
    let subnet = differ.count_ones() == host && first & differ == 0;
    subnet.then_some(bits - host)
}

fn limit(protocol: u8, start: u16, end: u16) -> String {
    let any_port = (start, end) == (0, u16::MAX);
    if protocol == 0 && any_port {
        return String::new();
    }
    let mut out = String::from("[");
    // Writing to a String cannot fail.
    let _ = match protocol_name(protocol).filter(|_| protocol != 0) {
        Some(name) => write!(out, "{name}"),
        None => write!(out, "{protocol}"),
    };
    let _ = match (start, end) {
        _ if any_port => Ok(()),
        (u16::MAX, 0) => write!(out, "/OPAQUE"),
        _ if start == end => write!(out, "/{}", port(protocol, start)),
        _ => write!(out, "/{}-{}", port(protocol, start), port(protocol, end)),
    };
    out.push(']');
    out
}

/// A port, or for ICMP the type, and the code if it is not 0.
fn port(protocol: u8, port: u16) -> String {
    let [kind, code] = port.to_be_bytes();
    match (protocol, code) {
        (1 | 58, 0) => kind.to_string(),
        (1 | 58, _) => format!("{kind}({code})"),
        _ => port.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As charon 5.9.8 has it: `chunk_printable`, octet by octet.
    #[test]
    fn non_ascii_identities_are_shown_as_charon_shows_them() {
        let dn = Identity::Dn("C=CH, O=Kölner Dom, CN=Zürich".parse().unwrap());
        assert_eq!(identity(&dn), "C=CH, O=K??lner Dom, CN=Z??rich");
        assert_eq!(identity(&Identity::Email("jürg@example.org".into())), "j??rg@example.org");
        assert_eq!(identity(&Identity::Fqdn("a\nb".into())), "a?b");
        assert_eq!(identity(&Identity::KeyId("moon".into())), "moon");
        assert_eq!(identity(&Identity::KeyId("ö".into())), "c3:b6");
        assert_eq!(identity(&Identity::Fqdn("x".repeat(600))).len(), MAX_IDENTITY + 3);
        let twins = ["ä", "ö"].map(|name| exact_identity(&Identity::Fqdn(name.into())));
        assert_ne!(twins[0], twins[1], "secrets are named so");
    }

    #[test]
    fn our_own_signs_are_words() {
        assert_eq!(sentence("RFC 7296 §2.8: 'Kölner\nTor'…"), "RFC 7296 section 2.8: 'K?lner?Tor'...");
    }
}
