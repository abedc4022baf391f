//! Sizes: what fits, exactly.

use super::*;
use crate::sa::{Cipher, EspAlgorithm, HeaderCopy, KeyMaterial, Mac};
use testudo_base::spi::Spi;

/// Every combination of outer family and encapsulation, of all algorithms and modes.
fn all() -> impl Iterator<Item = Outer> {
    let modes = [Mode::Tunnel, Mode::Transport];
    EspAlgorithm::all().flat_map(move |algorithm| modes.into_iter().flat_map(move |mode| of(algorithm, mode)))
}

/// Every combination of outer family and encapsulation.
fn of(algorithm: EspAlgorithm, mode: Mode) -> impl Iterator<Item = Outer> {
    let addrs = [("192.0.2.1:4500", "192.0.2.2:4500"), ("[2001:db8::1]:4500", "[2001:db8::2]:4500")];
    let kinds = [Encapsulation::Plain, Encapsulation::Udp];
    addrs.into_iter().flat_map(move |(local, remote)| {
        kinds.map(|encapsulation| {
            let params = ChildSaParams {
                spi_in: Spi(0x1000),
                spi_out: Spi(0x2000),
                algorithm,
                key_in: KeyMaterial(Vec::new()),
                key_out: KeyMaterial(Vec::new()),
                esn: true,
                replay_window: 64,
                local_ts: Vec::new(),
                remote_ts: Vec::new(),
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
                encapsulation,
                mode,
                copy: HeaderCopy::default(),
            };
            Outer::new(&params).unwrap()
        })
    })
}

fn outer_len(outer: &Outer, inner: usize) -> usize {
    outer_len_behind(outer, outer.clear_len(), inner)
}

/// The same with so many octets that stay in clear.
fn outer_len_behind(outer: &Outer, clear: usize, inner: usize) -> usize {
    outer.prefix_len() + inner + outer.sizes().behind(inner - clear)
}

#[test]
fn prefixes_are_as_long_as_their_headers() {
    let ivs = [
        (EspAlgorithm::Aes256Gcm16, 8),
        (EspAlgorithm::separate(Cipher::Null, Mac::HmacSha1_96), 0),
        (EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha1_96), 16),
    ];
    for (algorithm, iv) in ivs {
        let lens: Vec<_> = of(algorithm, Mode::Tunnel).map(|outer| outer.prefix_len() - iv).collect();
        assert_eq!(lens, [20 + 8, 20 + 8 + 8, 40 + 8, 40 + 8 + 8]);
    }
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
        // All refused values are below all accepted ones.
        assert!(
            outer.overhead().inner_mtu(refused).is_ok() && outer.overhead().inner_mtu(refused - 1).is_err()
        );
    }
}

/// Options and extension headers shift what is padded.
#[test]
fn whatever_stays_in_clear_what_is_said_to_fit_does() {
    for outer in all().filter(Outer::is_transport) {
        let step = if outer.is_ipv6() { 8 } else { 4 };
        for clear in (outer.clear_len()..=outer.clear_len() + 40).step_by(step) {
            for path in 1280..1400 {
                let mtu = outer.mtu_behind(clear, outer.overhead().inner_mtu(path).unwrap());
                let (path, align) = (usize::from(path), usize::from(outer.sizes().align));
                let total = outer_len_behind(&outer, clear, mtu.into());
                assert!(total <= path && total + 2 * align > path);
                assert!(outer_len_behind(&outer, clear, usize::from(mtu) + 1) > total);
            }
        }
    }
}

#[test]
fn no_path_that_is_believed_is_too_small() {
    for outer in all() {
        let smallest = if outer.is_ipv6() { 1280 } else { crate::pmtu::MIN_IPV4_MTU };
        assert!(outer.overhead().inner_mtu(smallest).is_ok());
    }
}

#[test]
fn a_larger_packet_never_becomes_smaller_outside() {
    for outer in all() {
        for inner in outer.clear_len()..9000 {
            let (this, next) = (outer_len(&outer, inner), outer_len(&outer, inner + 1));
            let sizes = outer.sizes();
            let align = usize::from(sizes.align);
            assert!(this <= next && next - this <= align);
            assert!((sizes.trailer_len(inner) + inner).is_multiple_of(align));
        }
    }
}

#[test]
fn the_ends_are_read_from_the_header() {
    let ends: Vec<_> = of(EspAlgorithm::Aes128Gcm16, Mode::Tunnel).map(|outer| outer.ends()).collect();
    let [v4, v6] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")]
        .map(|(src, dst)| (src.parse().unwrap(), dst.parse().unwrap()));
    assert_eq!(ends, [v4, v4, v6, v6]);
}
