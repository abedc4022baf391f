//! Every suite of ESP with a Linux kernel's XFRM, with both kinds of sequence numbers.

use crate::common::{Pair, Scenario, Watch};
use crate::esp_suites::{INNER_MTU, Suite, connect, is_agreed, sizes_are_answered};
use crate::rekeying::renew;
use std::time::Duration;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::Direction;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// Little enough for an emulated processor, and more than a window of TCP.
const TRANSFER: u64 = 256 << 10;
/// Time limit of an exchange, including retransmissions and another attempt of charon, while others
/// use the emulated processor.
const SOON: Duration = Duration::from_secs(60);

/// With what `ip xfrm state` calls the algorithms.
const SUITES: [(Suite, &str); 13] = [
    (("aes128-sha256-esn", [Some("AES_CBC"), Some("128"), Some("HMAC_SHA2_256_128")]), "hmac(sha256)"),
    (("aes256-sha512-noesn", [Some("AES_CBC"), Some("256"), Some("HMAC_SHA2_512_256")]), "hmac(sha512)"),
    (("aes192-sha384-esn", [Some("AES_CBC"), Some("192"), Some("HMAC_SHA2_384_192")]), "hmac(sha384)"),
    (("aes128-sha1-noesn", [Some("AES_CBC"), Some("128"), Some("HMAC_SHA1_96")]), "hmac(sha1)"),
    (("aes128-aesxcbc-esn", [Some("AES_CBC"), Some("128"), Some("AES_XCBC_96")]), "xcbc(aes)"),
    (("aes256-aescmac-noesn", [Some("AES_CBC"), Some("256"), Some("AES_CMAC_96")]), "cmac(aes)"),
    (("3des-md5-esn", [Some("3DES_CBC"), None, Some("HMAC_MD5_96")]), "cbc(des3_ede)"),
    (("aes192gcm16-esn", [Some("AES_GCM_16"), Some("192"), None]), "rfc4106(gcm(aes))"),
    (("chacha20poly1305-esn", [Some("CHACHA20_POLY1305"), None, None]), "rfc7539esp(chacha20,poly1305)"),
    (("aes128ccm8-esn", [Some("AES_CCM_8"), Some("128"), None]), "rfc4309(ccm(aes))"),
    (("aes256ccm16-noesn", [Some("AES_CCM_16"), Some("256"), None]), "rfc4309(ccm(aes))"),
    (("aes128gmac-esn", [Some("NULL_AES_GMAC"), Some("128"), None]), "rfc4543(gcm(aes))"),
    (("null-sha256-esn", [Some("NULL"), None, Some("HMAC_SHA2_256_128")]), "cipher_null"),
];

fn states(pair: &Pair) -> testudo_lab::Result<String> {
    match &pair.two {
        Gateway::Guest(guest) => guest.run("ip xfrm state"),
        _ => panic!("side two runs a guest"),
    }
}

/// From the guest's iperf server and to it.
fn streams(pair: &Pair, family: Family) {
    for direction in [Direction::Up, Direction::Down] {
        let to = Side::Two.host(family);
        Streams::one(direction, TRANSFER).carry(&pair.t.client, &pair.t.server, to).unwrap();
    }
}

#[test]
#[ignore = "make test-all: each cipher"]
fn a_linux_kernel_takes_every_suite() {
    let pair =
        Scenario::new("esp-kernel", Kind::Guest).inner_mtu(INNER_MTU).settings("legacy = true").start_empty();
    let sides = [Side::One, Side::Two].into_iter().cycle();
    for ((suite, kernels), initiator) in SUITES.into_iter().zip(sides) {
        connect(&pair, Family::V4, suite.0, initiator);
        let watch = Watch::start(&pair.t);
        is_agreed(&pair, suite);
        let shown = states(&pair).unwrap();
        assert!(shown.contains(kernels), "{shown}");
        assert_eq!(shown.contains("flag af-unspec esn"), suite.0.ends_with("-esn"), "{shown}");
        for family in [Family::V4, Family::V6] {
            sizes_are_answered(&pair, family);
            streams(&pair, family);
        }
        // New keys, from either side.
        for side in [Side::One, Side::Two] {
            renew(&pair, side, &["--child", "lab"]);
            for family in [Family::V4, Family::V6] {
                sizes_are_answered(&pair, family);
            }
        }
        watch.saw_nothing();
        assert_eq!(pair.dropped("auth_failed"), 0, "{}", suite.0);
        pair.swanctl(initiator).terminate_within("lab", SOON).unwrap();
        wait_until("the end of the kernel's SAs", SOON, || {
            let states = states(&pair)?;
            Ok(if states.trim().is_empty() { Ok(()) } else { Err(states) })
        })
        .unwrap();
    }
}
