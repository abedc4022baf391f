//! Identities as strongSwan writes them: the type follows from the form, or from a prefix.

use super::refusal::{Why, because, expected};
use std::net::IpAddr;
use testudo_ike::cert::{CertError, DistinguishedName};
use testudo_ike::config::Identity;

const ANY: [&str; 7] = ["", "%any", "%any6", "0.0.0.0", "*", "::", "0::0"];

/// Parses an identity without wildcards; `None` is any identity.
pub(super) fn parse(text: &str) -> Result<Option<Identity>, Why> {
    match pattern(text)? {
        Some(pattern) if pattern.has_wildcards() => {
            Err(because("but a wildcard in this identity is not supported".to_owned()))
        }
        identity => Ok(identity),
    }
}

/// Parses an identity that may have wildcards; `None` is any identity.
pub(super) fn pattern(text: &str) -> Result<Option<Identity>, Why> {
    if ANY.contains(&text) {
        return Ok(None);
    }
    match prefixed(text).unwrap_or_else(|| guessed(text))? {
        Identity::Fqdn(name) if name.starts_with('*') && !name.starts_with("*.") => {
            Err(expected("a wildcard in front of a domain, such as *.example.org"))
        }
        Identity::Email(name) if name.starts_with('*') && !name.starts_with("*@") => {
            Err(expected("a wildcard in front of a domain, such as *@example.org"))
        }
        Identity::Fqdn(name) | Identity::Email(name)
            if name.is_empty() || name.contains(char::is_control) =>
        {
            Err(expected("a printable name"))
        }
        Identity::KeyId(octets) if octets.is_empty() => Err(expected("at least one octet")),
        identity => Ok(Some(identity)),
    }
}

/// Parses an identity with a type prefix, such as `fqdn:gw.example.org`.
fn prefixed(text: &str) -> Option<Result<Identity, Why>> {
    let (prefix, value) = text.split_once(':')?;
    let text =
        || octets(value).and_then(|octets| String::from_utf8(octets).map_err(|_| expected("UTF-8 text")));
    Some(match prefix.to_ascii_lowercase().as_str() {
        "fqdn" | "dns" => text().map(Identity::Fqdn),
        "email" | "rfc822" | "userfqdn" => text().map(Identity::Email),
        "keyid" => octets(value).map(Identity::KeyId),
        "ipv4" => {
            address(value).filter(IpAddr::is_ipv4).map(Identity::Addr).ok_or(expected("an IPv4 address"))
        }
        "ipv6" => {
            address(value).filter(IpAddr::is_ipv6).map(Identity::Addr).ok_or(expected("an IPv6 address"))
        }
        "asn1dn" if value.starts_with('#') => octets(value).and_then(|der| {
            DistinguishedName::from_der(&der)
                .map(Identity::Dn)
                .map_err(|error| because(format!("but its {error}")))
        }),
        "asn1dn" => name(value),
        "ipv4net" | "ipv6net" | "ipv4range" | "ipv6range" | "asn1gn" | "xmppaddr" => {
            Err(because(format!("but identities of type {prefix} are not supported")))
        }
        _ => return None,
    })
}

/// Derives the type of an identity without a prefix from its form.
fn guessed(text: &str) -> Result<Identity, Why> {
    if let Some(name) = text.strip_prefix("@@") {
        return Ok(Identity::Email(name.to_owned()));
    }
    if text.starts_with("@#") {
        return octets(text.strip_prefix('@').unwrap_or_default()).map(Identity::KeyId);
    }
    if let Some(name) = text.strip_prefix('@') {
        return Ok(Identity::Fqdn(name.to_owned()));
    }
    if text.contains('=') {
        return name(text);
    }
    if text.starts_with('{') && text.contains("}:") {
        return Err(because("but identities of a numeric type are not supported".to_owned()));
    }
    if text.contains('@') {
        return Ok(Identity::Email(text.to_owned()));
    }
    if let Ok(address) = text.parse() {
        return Ok(Identity::Addr(address));
    }
    if super::addr::range(text).is_some() {
        return Err(because("but subnets and ranges as identities are not supported".to_owned()));
    }
    // As in strongSwan: a text with a colon that is no IPv6 address is a key ID.
    if text.contains(':') { Ok(Identity::KeyId(text.into())) } else { Ok(Identity::Fqdn(text.to_owned())) }
}

/// Parses `C=CH, O=strongSwan, CN=moon`.
fn name(text: &str) -> Result<Identity, Why> {
    text.parse().map(Identity::Dn).map_err(|error: CertError| because(format!("but its {error}")))
}

/// Parses an address as text, or as `#` and its octets in hexadecimal.
fn address(text: &str) -> Option<IpAddr> {
    if !text.starts_with('#') {
        return text.parse().ok();
    }
    let octets = octets(text).ok()?;
    let v4 = <[u8; 4]>::try_from(octets.as_slice()).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets.as_slice()).map(IpAddr::from)).ok()
}

/// Parses text as it is, or `#` and octets in hexadecimal.
fn octets(text: &str) -> Result<Vec<u8>, Why> {
    let Some(hex) = text.strip_prefix('#') else { return Ok(text.into()) };
    let why = || expected("an even number of hexadecimal digits behind #");
    let hex = hex.strip_prefix("0x").unwrap_or(hex).replace(':', "");
    if hex.is_empty() || hex.len() % 2 != 0 {
        return Err(why());
    }
    let pair = |pair: &[u8]| {
        let digits =
            std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|c| c.is_ascii_hexdigit()))?;
        u8::from_str_radix(digits, 16).ok()
    };
    hex.as_bytes().chunks(2).map(|chunk| pair(chunk).ok_or_else(why)).collect()
}
