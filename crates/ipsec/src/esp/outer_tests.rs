//! Sizes: what fits, exactly.

use super::*;
use crate::sa::{EspAlgorithm, HeaderCopy, KeyMaterial};
use crate::spi::Spi;

/// Every combination of outer family and encapsulation.
fn all() -> impl Iterator<Item = Outer> {
    let addrs = [("192.0.2.1:4500", "192.0.2.2:4500"), ("[2001:db8::1]:4500", "[2001:db8::2]:4500")];
    let kinds = [Encapsulation::Plain, Encapsulation::Udp];
    addrs.into_iter().flat_map(move |(local, remote)| {
        kinds.map(|encapsulation| {
            let params = ChildSaParams {
                spi_in: Spi(0x1000),
                spi_out: Spi(0x2000),
                algorithm: EspAlgorithm::Aes128Gcm16,
                key_in: KeyMaterial(Vec::new()),
                key_out: KeyMaterial(Vec::new()),
                esn: true,
                replay_window: 64,
                local_ts: Vec::new(),
                remote_ts: Vec::new(),
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                encapsulation,
                mode: Mode::Tunnel,
                copy: HeaderCopy::default(),
            };
            Outer::new(&params).unwrap()
        })
    })
}

fn outer_len(outer: &Outer, inner: usize) -> usize {
    outer.prefix_len() + inner + Outer::trailer_len(inner) + TAG_LEN
}

#[test]
fn prefixes_are_as_long_as_their_headers() {
    let lens: Vec<_> = all().map(|outer| outer.prefix_len()).collect();
    assert_eq!(lens, [20 + 16, 20 + 8 + 16, 40 + 16, 40 + 8 + 16]);
}

#[test]
fn the_inner_mtu_is_exact_for_every_path() {
    for outer in all() {
        let mut refused = 0;
        for path in 0..=u16::MAX {
            match outer.overhead().inner_mtu(path) {
                Ok(inner) => {
                    assert!(outer_len(&outer, inner.into()) <= path.into());
                    assert!(outer_len(&outer, usize::from(inner) + 1) > path.into());
                }
                Err(Error::PathMtu { found, expected }) => {
                    assert_eq!(found, path);
                    assert!(found < expected && outer.overhead().inner_mtu(expected).is_ok());
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        // What is refused is below what is accepted, and nothing in between.
        assert!(
            outer.overhead().inner_mtu(refused).is_ok() && outer.overhead().inner_mtu(refused - 1).is_err()
        );
    }
}

#[test]
fn no_path_that_is_believed_is_too_small() {
    for outer in all() {
        let smallest = if outer.is_ipv6() { 1280 } else { crate::pmtu::SMALLEST_IPV4 };
        assert!(outer.overhead().inner_mtu(smallest).is_ok());
    }
}

#[test]
fn a_larger_packet_never_becomes_smaller_outside() {
    for outer in all() {
        for inner in 0..9000 {
            let (this, next) = (outer_len(&outer, inner), outer_len(&outer, inner + 1));
            assert!(this <= next && next - this <= 4);
            assert!((Outer::trailer_len(inner) + inner).is_multiple_of(4));
        }
    }
}

#[test]
fn the_ends_are_read_from_the_header() {
    let ends: Vec<_> = all().map(|outer| outer.ends()).collect();
    let [v4, v6] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")]
        .map(|(src, dst)| (src.parse().unwrap(), dst.parse().unwrap()));
    assert_eq!(ends, [v4, v4, v6, v6]);
}
