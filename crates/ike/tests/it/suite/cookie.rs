//! Cookies and NAT detection.

use std::net::SocketAddr;
use testudo_ike::message::{IkeSpi, Nonce};
use testudo_ike::suite::cookie::{self, Claim};
use testudo_ike::suite::{IkeSpis, nat_detection_hash};

const KEY: [u8; 32] = [0x42; 32];

#[test]
fn a_cookie_is_its_version_and_a_mac() {
    let nonce = Nonce::new(vec![7; 16]).unwrap();
    let claim = Claim { spi: IkeSpi(1), addr: "192.0.2.1".parse().unwrap(), nonce: &nonce };
    let made = cookie::make(0x0102_0304, &KEY, &claim).unwrap();
    assert_eq!(made.len(), 36, "at most 64 octets are allowed (RFC 7296 §2.6)");
    assert_eq!(cookie::version(&made), Some(0x0102_0304));
    assert!(cookie::verify(0x0102_0304, &KEY, &claim, &made).unwrap());
}

#[test]
fn a_cookie_holds_for_nobody_else() {
    let nonce = Nonce::new(vec![7; 16]).unwrap();
    let other_nonce = Nonce::new(vec![7; 17]).unwrap();
    let addr = "192.0.2.1".parse().unwrap();
    let claim = Claim { spi: IkeSpi(1), addr, nonce: &nonce };
    let made = cookie::make(9, &KEY, &claim).unwrap();
    let others = [
        Claim { spi: IkeSpi(2), ..claim },
        Claim { addr: "192.0.2.2".parse().unwrap(), ..claim },
        Claim { addr: "2001:db8::1".parse().unwrap(), ..claim },
        Claim { nonce: &other_nonce, ..claim },
    ];
    for other in others {
        assert!(!cookie::verify(9, &KEY, &other, &made).unwrap(), "{other:?}");
    }
    assert!(!cookie::verify(10, &KEY, &claim, &made).unwrap());
    assert!(!cookie::verify(9, &[0x43; 32], &claim, &made).unwrap());
}

#[test]
fn a_cookie_of_another_shape_is_refused() {
    let nonce = Nonce::new(vec![7; 16]).unwrap();
    let claim = Claim { spi: IkeSpi(1), addr: "2001:db8::1".parse().unwrap(), nonce: &nonce };
    let made = cookie::make(9, &KEY, &claim).unwrap();
    for length in 0..made.len() {
        assert_eq!(cookie::version(&made[..length]).is_some(), length >= 4);
        assert!(!cookie::verify(9, &KEY, &claim, &made[..length]).unwrap());
    }
    assert!(!cookie::verify(9, &KEY, &claim, &[&made[..], &[0]].concat()).unwrap());
    for at in 0..made.len() {
        let mut damaged = made.clone();
        damaged[at] ^= 1;
        assert!(!cookie::verify(9, &KEY, &claim, &damaged).unwrap());
    }
}

#[test]
fn nat_detection_covers_spis_address_and_port() {
    let spis = IkeSpis { initiator: IkeSpi(1), responder: IkeSpi(2) };
    let addr: SocketAddr = "192.0.2.1:500".parse().unwrap();
    let hash = nat_detection_hash(spis, addr);
    // printf '\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\300\0\2\1\1\364' | sha1sum
    let expected = "e551650fd0b1c24a937f8f251b195b30fec944e4";
    assert_eq!(hash.iter().map(|octet| format!("{octet:02x}")).collect::<String>(), expected);
    let others = [
        nat_detection_hash(IkeSpis { initiator: IkeSpi(2), responder: IkeSpi(1) }, addr),
        nat_detection_hash(spis, "192.0.2.1:4500".parse().unwrap()),
        nat_detection_hash(spis, "192.0.2.2:500".parse().unwrap()),
        nat_detection_hash(spis, "[2001:db8::1]:500".parse().unwrap()),
    ];
    for other in others {
        assert_eq!(other.len(), 20);
        assert_ne!(other, hash);
    }
}
