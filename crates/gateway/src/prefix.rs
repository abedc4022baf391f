//! Address ranges as the fewest prefixes, which is what routes and BPF tries understand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_base::prefix::Prefix;
use testudo_ipsec::selector::AddrRange;

/// The fewest prefixes that hold the range's addresses and no others, in order.
pub(crate) fn cover(range: &AddrRange) -> Vec<Prefix> {
    let like = range.start();
    let width: u8 = if like.is_ipv4() { 32 } else { 128 };
    let (mut next, last) = (to_u128(range.start()), to_u128(range.end()));
    let mut prefixes = Vec::new();
    loop {
        let host_bits = largest_block(next, last, width);
        prefixes.extend(Prefix::new(from_u128(next, like), width - host_bits));
        let block_end = next | low_mask(host_bits);
        if block_end >= last {
            return prefixes;
        }
        next = block_end + 1;
    }
}

/// The prefix that holds the range's addresses and no others, if it is one.
pub(crate) fn exact(range: &AddrRange) -> Option<Prefix> {
    match cover(range)[..] {
        [prefix] => Some(prefix),
        _ => None,
    }
}

/// Prefixes that hold all of the range's addresses: at most `limit` of them, which is never less
/// than two. Where the fewest that hold no others are more, these hold others too, next to both
/// ends.
pub(crate) fn cover_within(range: &AddrRange, limit: usize) -> Vec<Prefix> {
    let (first, last, like) = (to_u128(range.start()), to_u128(range.end()), range.start());
    let rounded = |bits: u8| {
        let mask = low_mask(bits);
        AddrRange::new(from_u128(first & !mask, like), from_u128(last | mask, like))
            .map(|range| cover(&range))
    };
    // A range lies in two blocks of the first size that is no less than its own.
    let coarsest = (last - first).checked_ilog2().map_or(0, |bits| bits as u8 + 1);
    let fits = |prefixes: &Vec<Prefix>| prefixes.len() <= limit.max(2);
    (0..=coarsest).filter_map(rounded).find(fits).unwrap_or_default()
}

/// All addresses of a family.
pub(crate) fn whole(v6: bool) -> AddrRange {
    let (first, last): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from(u128::MAX).into())
    } else {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
    };
    AddrRange::new(first, last).unwrap_or_else(|| unreachable!("the first address comes before the last"))
}

/// True if all of `inner` lies in `outer`.
#[cfg(test)]
pub(crate) fn covers(outer: &Prefix, inner: &Prefix) -> bool {
    outer.length() <= inner.length() && outer.contains(inner.addr())
}

/// The last address of a prefix.
pub(crate) fn last_address(prefix: &Prefix) -> IpAddr {
    let width: u8 = if prefix.is_ipv4() { 32 } else { 128 };
    from_u128(to_u128(prefix.addr()) | low_mask(width - prefix.length()), prefix.addr())
}

/// The fewest prefixes that hold the addresses of `whole` that are not in `part`.
pub(crate) fn without(whole: &Prefix, part: &Prefix) -> Vec<Prefix> {
    if part.length() <= whole.length() {
        return if part.contains(whole.addr()) { Vec::new() } else { vec![*whole] };
    }
    if !whole.contains(part.addr()) {
        return vec![*whole];
    }
    // On the way down to the part, the half that it does not lie in.
    let width: u8 = if whole.is_ipv4() { 32 } else { 128 };
    let other = |length: u8| {
        let sibling = to_u128(part.addr()) ^ (1 << (width - length));
        Prefix::new(from_u128(sibling, part.addr()), length)
    };
    (whole.length() + 1..=part.length()).filter_map(other).collect()
}

/// All addresses of a prefix.
pub(crate) fn range_of(prefix: &Prefix) -> Option<AddrRange> {
    AddrRange::new(prefix.addr(), last_address(prefix))
}

/// The address behind this one, if it is not the last of its family.
pub(crate) fn following(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(addr) => addr.to_bits().checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

/// The widest prefix that begins with this address.
pub(crate) fn widest_at(addr: IpAddr) -> Prefix {
    let width: u8 = if addr.is_ipv4() { 32 } else { 128 };
    let host_bits = to_u128(addr).trailing_zeros().min(width.into()) as u8;
    Prefix::new(addr, width - host_bits).unwrap_or(Prefix::host(addr))
}

/// The most host bits of a block that starts at `next`, is aligned and does not pass `last`.
fn largest_block(next: u128, last: u128, width: u8) -> u8 {
    let aligned = next.trailing_zeros().min(width.into());
    let room = last.saturating_sub(next).checked_add(1).map_or(u128::BITS, u128::ilog2);
    aligned.min(room) as u8
}

fn low_mask(bits: u8) -> u128 {
    1u128.checked_shl(bits.into()).map_or(u128::MAX, |v| v - 1)
}

fn to_u128(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

fn from_u128(value: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(value as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover_text(start: &str, end: &str) -> String {
        let range = AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap();
        cover(&range).iter().map(Prefix::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranges_become_the_fewest_prefixes() {
        assert_eq!(cover_text("10.1.0.0", "10.1.255.255"), "10.1.0.0/16");
        assert_eq!(cover_text("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
        assert_eq!(cover_text("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
        assert_eq!(cover_text("10.0.0.1", "10.0.0.6"), "10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32");
        assert_eq!(cover_text("255.255.255.255", "255.255.255.255"), "255.255.255.255/32");
        assert_eq!(cover_text("fd00::1", "fd00::2"), "fd00::1/128 fd00::2/128");
    }

    #[test]
    fn a_range_that_takes_too_many_prefixes_is_widened_at_its_ends() {
        let within = |start: &str, end: &str, limit| {
            let range = AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap();
            let text: Vec<_> = cover_within(&range, limit).iter().map(Prefix::to_string).collect();
            text.join(" ")
        };
        assert_eq!(within("10.0.0.1", "10.0.0.6", 4), "10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32");
        assert_eq!(within("10.0.0.1", "10.0.0.6", 3), "10.0.0.0/29");
        assert_eq!(within("10.0.0.1", "10.0.0.9", 2), "10.0.0.0/29 10.0.0.8/31");
        assert_eq!(within("10.0.0.255", "10.0.1.0", 1), "10.0.0.255/32 10.0.1.0/32");
        assert_eq!(within("10.0.0.1", "10.0.0.1", 0), "10.0.0.1/32");
        assert_eq!(within("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", 2), "::/0");
        let odd = ["1111", "eeee"].map(|group| [group; 8].join(":"));
        let odd = within(&odd[0], &odd[1], 64);
        assert!((32..=64).contains(&odd.split(' ').count()), "{odd}");
    }

    #[test]
    fn a_range_may_be_one_prefix() {
        let exact = |start: &str, end: &str| {
            exact(&AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap())
        };
        assert_eq!(exact("10.2.0.0", "10.2.255.255"), Some("10.2.0.0/16".parse().unwrap()));
        assert_eq!(exact("fd00::1", "fd00::1"), Some("fd00::1/128".parse().unwrap()));
        assert_eq!(exact("10.2.0.0", "10.2.255.254"), None);
        assert_eq!(exact("10.2.0.1", "10.2.0.2"), None);
    }

    #[test]
    fn what_is_left_of_a_prefix_without_a_part_of_it() {
        let left = |whole: &str, part: &str| {
            let left = without(&whole.parse().unwrap(), &part.parse().unwrap());
            left.iter().map(Prefix::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left("10.1.0.0/16", "10.0.0.0/8"), "");
        assert_eq!(left("10.1.0.0/16", "10.1.0.0/16"), "");
        assert_eq!(left("10.1.0.0/16", "10.2.0.1/32"), "10.1.0.0/16");
        assert_eq!(left("10.1.0.0/16", "fd00::1/128"), "10.1.0.0/16");
        assert_eq!(left("10.1.0.0/16", "10.1.192.0/19"), "10.1.0.0/17 10.1.128.0/18 10.1.224.0/19");
        assert_eq!(left("10.1.0.0/30", "10.1.0.1/32"), "10.1.0.2/31 10.1.0.0/32");
        assert_eq!(left("::/0", "8000::/1"), "::/1");
    }

    #[test]
    fn a_prefix_covers_what_lies_inside_it() {
        let prefix = |s: &str| s.parse::<Prefix>().unwrap();
        assert!(covers(&prefix("10.0.0.0/8"), &prefix("10.9.0.0/16")));
        assert!(covers(&prefix("10.0.0.0/8"), &prefix("10.0.0.0/8")));
        assert!(covers(&prefix("::/0"), &prefix("fd00::/8")));
        assert!(!covers(&prefix("10.9.0.0/16"), &prefix("10.0.0.0/8")));
        assert!(!covers(&prefix("0.0.0.0/0"), &prefix("fd00::/8")));
    }
}
