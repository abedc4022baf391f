//! Seeds of the header targets.

use super::{Seed, packet};
use testudo_wire::ip::Protocol;

/// Every packet after this head.
fn each(head: &[u8]) -> Vec<Seed> {
    let seeds = packet::every().into_iter();
    seeds.map(|(name, packet)| (name.to_owned(), [head, &packet].concat())).collect()
}

/// `flags:8 | value:16 | packet`.
pub(super) fn headers() -> Vec<Seed> {
    each(&[0, 5, 20])
}

/// `flags:8 | mtu:16 | packet`.
pub(super) fn fragment() -> Vec<Seed> {
    each(&[0, 0, 68])
}

/// `flags:8 | mtu:16 | headroom:8 | packet`.
pub(super) fn icmp() -> Vec<Seed> {
    let too_big = each(&[0, 5, 100, 64]);
    let expired = each(&[4 | 8, 0, 0, 64]);
    let named = |(name, seed): Seed| (format!("{name}-expired"), seed);
    too_big.into_iter().chain(expired.into_iter().map(named)).collect()
}

/// `header:10 | flags:8 | size:16 | packet`.
pub(super) fn offload() -> Vec<Seed> {
    let head = [&[1, 0, 0, 0, 0, 0, 20, 0, 6, 0][..], &[0, 0, 100]].concat();
    let mut seeds = each(&head);
    // ACK, PSH and FIN set, at the highest sequence number; repaired by the flags.
    let header =
        [&[0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0xff][..], &[0, 0, 0, 9, 0x50, 0x99, 1, 0, 0, 0, 0, 0]]
            .concat();
    let large = [header, (0..1000).map(|at| at as u8).collect()].concat();
    for (name, packet) in [
        ("v4-large", packet::v4(|fields| fields.id = 0xfffe, Protocol::TCP, &large)),
        ("v6-large", packet::v6(|_| (), Protocol::TCP, &large)),
    ] {
        seeds.push((name.to_owned(), [&head[..], &packet].concat()));
    }
    seeds
}
