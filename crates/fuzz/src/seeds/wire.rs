//! Seeds of the header targets.

use super::{Seed, packet};

/// Every packet behind this head.
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
