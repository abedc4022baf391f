//! The first octets of a packet, in words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ipsec::dataplane::Sample;

const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AH: u8 = 51;
/// UDP port of ESP in UDP (RFC 3948).
const NAT_T_PORT: u16 = 4500;

/// What a packet says of itself.
pub(super) struct Evidence {
    /// Its source address.
    pub(super) source: Option<IpAddr>,
    /// The rest, for people.
    pub(super) text: String,
}

/// Reads a sample. Whatever does not look like a packet is shown as octets.
pub(super) fn describe(sample: &Sample) -> Evidence {
    let head = sample.head();
    let Some((source, destination, protocol, payload)) = split(head) else {
        let octets: String = head.iter().take(16).map(|octet| format!("{octet:02x}")).collect();
        return Evidence { source: None, text: format!("{} octets that begin with {octets}", sample.len) };
    };
    let what = fragment(head, protocol, payload).unwrap_or_else(|| name(protocol, payload));
    let text = format!("{source} > {destination}, {what}, {} octets", sample.len);
    Evidence { source: Some(source), text }
}

fn split(head: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    match head.first()? >> 4 {
        4 => {
            let header = usize::from(head.first()? & 0xf) * 4;
            let addr = |at: usize| -> Option<IpAddr> {
                Some(Ipv4Addr::from(*head.get(at..)?.first_chunk::<4>()?).into())
            };
            Some((addr(12)?, addr(16)?, *head.get(9)?, head.get(header..).unwrap_or_default()))
        }
        6 => {
            let addr = |at: usize| -> Option<IpAddr> {
                Some(Ipv6Addr::from(*head.get(at..)?.first_chunk::<16>()?).into())
            };
            Some((addr(8)?, addr(24)?, *head.get(6)?, head.get(40..).unwrap_or_default()))
        }
        _ => None,
    }
}

/// A fragment behind the first one has no ports, and no SPI.
fn fragment(head: &[u8], protocol: u8, payload: &[u8]) -> Option<String> {
    let word = |octets: &[u8], at: usize| Some(u16::from_be_bytes(*octets.get(at..)?.first_chunk()?));
    let (of, offset, more, first) = match (head.first()? >> 4, protocol) {
        (4, _) => {
            let field = word(head, 6)?;
            (protocol, (field & 0x1fff) * 8, field & 0x2000 > 0, payload)
        }
        (_, FRAGMENT) => {
            let field = word(payload, 2)?;
            (*payload.first()?, field & !7, field & 1 > 0, payload.get(8..).unwrap_or_default())
        }
        _ => return None,
    };
    match (offset, more) {
        (0, true) => Some(format!("first fragment of {}", name(of, first))),
        (0, false) => None,
        _ => Some(format!("fragment of IP protocol {of} at octet {offset}")),
    }
}

fn name(protocol: u8, payload: &[u8]) -> String {
    let port = |at: usize| Some(u16::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    match (protocol, port(0), port(2)) {
        (ESP, ..) => esp("ESP", payload),
        (AH, ..) => esp("AH", payload.get(4..).unwrap_or_default()),
        (UDP, Some(from), Some(NAT_T_PORT)) => {
            esp(&format!("ESP in UDP from port {from}"), payload.get(8..).unwrap_or_default())
        }
        (TCP, Some(from), Some(to)) => format!("TCP {from} > {to}"),
        (UDP, Some(from), Some(to)) => format!("UDP {from} > {to}"),
        (other, ..) => format!("IP protocol {other}"),
    }
}

/// SPI and number follow each other in both.
fn esp(what: &str, payload: &[u8]) -> String {
    let word = |at: usize| Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    match (word(0), word(4)) {
        (Some(spi), Some(number)) => format!("{what}, SPI {spi:#010x}, sequence number {number}"),
        _ => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::spi::Spi;

    fn of(head: &[u8]) -> String {
        describe(&Sample::of(Spi(0), head)).text.rsplit_once(", ").unwrap().0.to_owned()
    }

    #[test]
    fn packets_are_named_by_what_they_carry() {
        let v4 = |protocol: u8, payload: &[u8]| {
            let mut head = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
            head.extend([192, 0, 2, 1, 192, 0, 2, 2]);
            head.extend(payload);
            head
        };
        let esp = [1, 2, 3, 4, 0, 0, 0, 9];
        assert_eq!(of(&v4(50, &esp)), "192.0.2.1 > 192.0.2.2, ESP, SPI 0x01020304, sequence number 9");
        let ah = [&[50, 4, 0, 0], &esp[..]].concat();
        assert_eq!(of(&v4(51, &ah)), "192.0.2.1 > 192.0.2.2, AH, SPI 0x01020304, sequence number 9");
        let udp = [&[0x30, 0x39, 0x11, 0x94, 0, 0, 0, 0], &esp[..]].concat();
        let in_udp = "192.0.2.1 > 192.0.2.2, ESP in UDP from port 12345, SPI 0x01020304, sequence number 9";
        assert_eq!(of(&v4(17, &udp)), in_udp);
        assert_eq!(of(&v4(6, &[0, 80, 0, 81])), "192.0.2.1 > 192.0.2.2, TCP 80 > 81");
        assert_eq!(of(&v4(17, &[0, 80])), "192.0.2.1 > 192.0.2.2, IP protocol 17");
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 50, 64];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend(Ipv6Addr::UNSPECIFIED.octets());
        assert_eq!(of(&[&v6[..], &esp].concat()), "::1 > ::, ESP, SPI 0x01020304, sequence number 9");
    }

    #[test]
    fn fragments_are_named_by_their_place() {
        let mut v4 = vec![0x45, 0, 0, 0, 0, 7, 0x20, 40, 64, 50, 0, 0];
        v4.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        v4.extend([1, 2, 3, 4, 0, 0, 0, 9]);
        assert_eq!(of(&v4), "192.0.2.1 > 192.0.2.2, fragment of IP protocol 50 at octet 320");
        v4[7] = 0;
        let esp = "ESP, SPI 0x01020304, sequence number 9";
        assert_eq!(of(&v4), format!("192.0.2.1 > 192.0.2.2, first fragment of {esp}"));
        v4[6] = 0x40;
        assert_eq!(of(&v4), "192.0.2.1 > 192.0.2.2, ESP, SPI 0x01020304, sequence number 9");
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 44, 64];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend(Ipv6Addr::UNSPECIFIED.octets());
        v6.extend([50, 0, 1, 65, 0, 0, 0, 7, 1, 2, 3, 4, 0, 0, 0, 9]);
        assert_eq!(of(&v6), "::1 > ::, fragment of IP protocol 50 at octet 320");
        v6[42..44].copy_from_slice(&[0, 1]);
        assert_eq!(of(&v6), "::1 > ::, first fragment of ESP, SPI 0x01020304, sequence number 9");
    }

    #[test]
    fn every_beginning_of_a_packet_is_read_without_harm() {
        let mut head = [0x4f; 64];
        for len in 0..=64 {
            for first in 0..=255 {
                head[0] = first;
                describe(&Sample::of(Spi(0), &head[..len]));
                if let Some((.., protocol, payload)) = split(&head[..len]) {
                    name(protocol, payload);
                    for protocol in [ESP, AH, UDP, TCP] {
                        name(protocol, payload);
                    }
                }
            }
        }
    }
}
