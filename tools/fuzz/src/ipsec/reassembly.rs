//! Reassembly: the result consists of its fragments and nothing else, and every fragment is
//! accounted for.

use crate::input::{Input, bit};
use crate::repair;
use testudo_base::siphash::SipKey;
use testudo_ipsec::reassembly::{Limits, Loss, Reassembler, Whole};
use testudo_wire::fragment::Fragment;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::Ipv6;
use testudo_wire::{ip, ipv4, ipv6};

/// Small, so that few steps reach them.
const LIMITS: Limits = Limits {
    datagrams: 4,
    per_source: 2,
    fragments: 8,
    fragments_per_source: 5,
    octets: 3000,
    patience: 100,
    stale: 10,
};

struct Run {
    reassembler: Reassembler<Vec<u8>>,
    now: u64,
    given: usize,
    joined: usize,
    lost: usize,
}

/// Steps: `kind:8`, then `flags:8 | fragment`, or `id:8 | mtu:16 | which:8 | packet`, or
/// `milliseconds:8`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let reassembler = Reassembler::new(LIMITS, SipKey::new([9; 16]));
    let mut run = Run { reassembler, now: 0, given: 0, joined: 0, lost: 0 };
    while !input.is_empty() {
        match input.u8() % 3 {
            0 => {
                let flags = input.u8();
                let mut packet = input.padded_chunk(2000);
                mend(&mut packet, flags);
                run.give(packet);
            }
            1 => {
                let (id, mtu, which) = (input.u8(), input.u16(), input.u8());
                let mut packet = input.padded_chunk(4000);
                mend(&mut packet, 3);
                pieces(&packet, id, mtu, which).into_iter().for_each(|piece| run.give(piece));
            }
            _ => run.wait(input.u8().into()),
        }
    }
    run.wait(LIMITS.patience);
    assert!(run.reassembler.is_empty() && run.reassembler.held() == 0, "nothing waits for ever");
}

fn mend(packet: &mut [u8], flags: u8) {
    if bit(flags, 0) {
        repair::length(packet);
    }
    if bit(flags, 1) {
        repair::checksum(packet);
    }
}

/// The fragments of a packet whose bits are set, the last one first if the highest bit is set.
fn pieces(packet: &[u8], id: u8, mtu: u16, which: u8) -> Vec<Vec<u8>> {
    let mut out = vec![0; usize::from(mtu)];
    let mut pieces = Vec::new();
    if ip::version(packet) == Some(6) {
        let Ok(mut fragments) = ipv6::fragment(packet, mtu, id.into()) else { return pieces };
        while let Ok(Some(len)) = fragments.write_next(&mut out) {
            pieces.push(out[..len].to_vec());
        }
    } else {
        let Ok(mut fragments) = ipv4::fragment(packet, mtu) else { return pieces };
        while let Ok(Some(len)) = fragments.write_next(&mut out) {
            let mut piece = out[..len].to_vec();
            piece[5] = id;
            repair::checksum(&mut piece);
            pieces.push(piece);
        }
    }
    let chosen = pieces.into_iter().enumerate().filter(|(at, _)| *at > 6 || bit(which, *at as u8));
    let mut chosen: Vec<Vec<u8>> = chosen.map(|(_, piece)| piece).collect();
    if bit(which, 7) {
        chosen.reverse();
    }
    chosen
}

impl Run {
    fn give(&mut self, packet: Vec<u8>) {
        let Ok(Some(fragment)) = Fragment::parse(&packet) else { return };
        check(&packet, &fragment);
        self.given += 1;
        let lost = &mut self.lost;
        let way = 0;
        let whole = self.reassembler.add(packet, fragment, way, self.now, &mut |_, _: Loss| *lost += 1);
        if let Some(whole) = whole {
            self.joined += whole.fragments();
            hold(whole);
        }
        self.balance();
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let lost = &mut self.lost;
        self.reassembler.expire(self.now, &mut |_, why| {
            assert_eq!(why, Loss::Timeout);
            *lost += 1;
        });
        self.balance();
    }

    fn balance(&self) {
        let held = self.reassembler.held();
        assert!(held <= LIMITS.fragments);
        assert!(held == 0 || !self.reassembler.is_empty());
        assert_eq!(self.given, self.joined + self.lost + held, "a fragment is gone");
    }
}

/// The fields of a fragment must be consistent with its packet.
fn check(packet: &[u8], fragment: &Fragment) {
    let (at, len) = (usize::from(fragment.at), usize::from(fragment.len));
    assert!(at + len <= packet.len());
    assert!(fragment.more || fragment.offset != 0, "a whole packet is no fragment");
    assert_eq!(fragment.offset % 8, 0);
    assert_eq!(fragment.datagram.v6, ip::version(packet) == Some(6));
    assert!(fragment.header_len() <= at);
}

/// Each octet of the packet must be that of a fragment, and no octet may be added.
fn hold(whole: Whole<Vec<u8>>) {
    let len = whole.packet_len();
    assert!(len <= LIMITS.octets);
    let mut packet = vec![0xee; len];
    assert!(!whole.write(&mut packet[..len - 1]), "there was no room");
    assert!(whole.write(&mut packet));
    if ip::version(&packet) == Some(4) {
        let ip = Ipv4::parse_verified(&packet).expect("a packet");
        assert!(ip.total_len() == len && !ip.is_fragment());
    } else {
        assert_eq!(Ipv6::parse(&packet).expect("a packet").total_len(), len);
    }
    let mut octets = 0;
    let mut header = None;
    for piece in whole.into_packets() {
        let fragment = Fragment::parse(&piece).ok().flatten().expect("as before");
        let start = *header.get_or_insert(fragment.header_len()) + usize::from(fragment.offset);
        let from = usize::from(fragment.at);
        let payload = &piece[from..from + usize::from(fragment.len)];
        assert_eq!(&packet[start..start + payload.len()], payload);
        octets += payload.len();
    }
    assert_eq!(octets + header.unwrap_or_default(), len);
}
