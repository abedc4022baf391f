//! The changes that routers make to a packet with AH: RFC 4302 §3.3.3.1 and its appendix A
//! implemented independently, as simply as possible.

use testudo_wire::ip::{self, Protocol};
use testudo_wire::{ipv4, ipv6};

/// Per octet: the bits that routers may change, and those of them that may change while the packet
/// remains a valid packet of the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    /// AH treats them as zero.
    pub(super) unseen: u8,
    /// Later processing ignores them too.
    pub(super) free: u8,
}

const ALL: Bits = Bits { unseen: 0xff, free: 0xff };
const UNSEEN: Bits = Bits { unseen: 0xff, free: 0 };

/// The bits of the octets before `at`, the offset of AH.
pub(super) fn bits(packet: &[u8], at: usize) -> Vec<Bits> {
    let mut bits = vec![Bits::default(); at];
    match ip::version(packet) {
        Some(4) => v4(packet, &mut bits),
        _ => v6(packet, &mut bits),
    }
    bits
}

fn v4(packet: &[u8], bits: &mut [Bits]) {
    // ECN has its own rules at the end of a tunnel, and another offset makes a fragment.
    bits[1] = Bits { unseen: 0xff, free: 0xfc };
    bits[6] = Bits { unseen: 0xff, free: 0x40 };
    bits[7] = UNSEEN;
    bits[8] = ALL;
    bits[10] = UNSEEN;
    bits[11] = UNSEEN;
    let mut here = ipv4::HEADER;
    while here < bits.len() {
        let (kind, len) = (packet[here], packet.get(here + 1).copied().map_or(0, usize::from));
        match kind {
            0 => return,
            1 => here += 1,
            _ if len < 2 || here + len > bits.len() => return,
            130 | 133 | 134 | 148 | 149 => here += len,
            kind => {
                // The type and length of an option stay, and so does a source route that has
                // ended.
                bits[here..here + len].fill(UNSEEN);
                let data = if matches!(kind, 131 | 137) { 3 } else { 2 };
                bits[here..here + len].iter_mut().skip(data).for_each(|octet| *octet = ALL);
                here += len;
            }
        }
    }
}

fn v6(packet: &[u8], bits: &mut [Bits]) {
    bits[0] = Bits { unseen: 0x0f, free: 0x0f };
    bits[1] = Bits { unseen: 0xff, free: 0xcf };
    bits[2] = ALL;
    bits[3] = ALL;
    bits[7] = ALL;
    let (mut protocol, mut here) = (Protocol(packet[6]), ipv6::HEADER);
    while here < bits.len() {
        let end = here + (usize::from(packet[here + 1]) + 1) * 8;
        match protocol {
            Protocol::HOP_BY_HOP | Protocol::DEST_OPTIONS => options(packet, &mut bits[..end], here + 2),
            // The number of segments left may change together with the addresses, which stay the
            // same here.
            _ => bits[here + 3] = UNSEEN,
        }
        (protocol, here) = (Protocol(packet[here]), end);
    }
}

/// Options from `here` to the end of `bits`.
fn options(packet: &[u8], bits: &mut [Bits], mut here: usize) {
    while here < bits.len() {
        let kind = packet[here];
        let end = if kind == 0 { here + 1 } else { here + 2 + usize::from(packet[here + 1]) };
        if kind & 0x20 != 0 {
            bits[here + 2..end].fill(ALL);
        }
        here = end;
    }
}
