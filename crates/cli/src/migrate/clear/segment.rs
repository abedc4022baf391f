//! The TCP segment that asks for a connection, and what answers it (RFC 9293 §3.1).

use std::net::IpAddr;
use testudo_wire::checksum::Sum;

const TCP: u8 = 6;
const HEADER: usize = 20;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// The length of the header in words of four octets, in the upper half of its octet.
const WORDS: u8 = 5 << 4;

/// Of the two hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) ours: u16,
    pub(super) theirs: u16,
}

impl Ports {
    /// The segment, without options or data.
    pub(super) fn segment(self, from: IpAddr, to: IpAddr) -> [u8; HEADER] {
        let [a, b] = self.ours.to_be_bytes();
        let [c, d] = self.theirs.to_be_bytes();
        let with = |[high, low]: [u8; 2]| {
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, WORDS, SYN, 0xff, 0xff, high, low, 0, 0]
        };
        let pseudo = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Sum::new().pseudo_v4(from, to, TCP, HEADER as u16),
            (from, to) => Sum::new().pseudo_v6(v6(from), v6(to), TCP, HEADER as u32),
        };
        with(pseudo.bytes(&with([0, 0])).finish().to_be_bytes())
    }

    /// Whether a segment from the other host says that this one has arrived.
    pub(super) fn is_answer(self, segment: &[u8]) -> bool {
        let Some([a, b, c, d, _, _, _, _, _, _, _, _, _, flags, ..]) = segment.first_chunk::<HEADER>() else {
            return false;
        };
        let between = [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])];
        between == [self.theirs, self.ours] && (flags & RST != 0 || flags & (SYN | ACK) == SYN | ACK)
    }
}

fn v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports { ours: 40000, theirs: 49152 };

    #[test]
    fn a_segment_has_the_checksum_of_its_family() {
        for (from, to) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let segment = PORTS.segment(from, to);
            let pseudo = match (from, to) {
                (IpAddr::V4(from), IpAddr::V4(to)) => Sum::new().pseudo_v4(from, to, TCP, 20),
                (IpAddr::V6(from), IpAddr::V6(to)) => Sum::new().pseudo_v6(from, to, TCP, 20),
                _ => unreachable!(),
            };
            assert!(pseudo.bytes(&segment).is_valid());
            assert_eq!(segment[..4], [0x9c, 0x40, 0xc0, 0x00]);
            assert!(!PORTS.is_answer(&segment), "this host's own");
        }
    }

    #[test]
    fn a_refusal_and_an_acceptance_answer_it() {
        let from = |ports: Ports, flags| {
            let mut segment = ports.segment([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
            segment[13] = flags;
            segment
        };
        let back = Ports { ours: PORTS.theirs, theirs: PORTS.ours };
        for (flags, answers) in
            [(RST | ACK, true), (RST, true), (SYN | ACK, true), (SYN, false), (ACK, false)]
        {
            assert_eq!(PORTS.is_answer(&from(back, flags)), answers, "{flags:#x}");
        }
        assert!(!PORTS.is_answer(&from(Ports { theirs: 40001, ..back }, RST)), "of another connection");
        assert!(!PORTS.is_answer(&from(back, RST)[..19]));
    }
}
