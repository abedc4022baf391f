//! A certificate that is valid, and that nobody expects.

use super::{ECDSA, dn, equip, load, start};
use crate::common::SOON;
use serde_json::json;
use testudo_lab::topology::Side;
use testudo_lab::wait_until;

/// Two CAs are trusted, and a peer has a certificate of one, and later one of the other.
#[test]
fn a_certificate_of_another_ca_raises_an_alarm() {
    let (pair, pki) = start("surprise");
    pki.ca("second", ECDSA, "/C=CH/O=Testudo Lab/CN=Second", None).unwrap();
    for side in [Side::One, Side::Two] {
        pki.give(pair.swanctl(side), "second.pem", "x509ca").unwrap();
        equip(&pair, &pki, side, ECDSA, "root");
    }
    let come = || {
        load(&pair, |_, _| {});
        pair.up(Side::One);
        pair.swanctl(Side::One).terminate("lab").unwrap();
        pair.await_sas(Side::Two, 0, SOON);
    };
    come();
    come();
    assert_eq!(pair.one.alarms().unwrap()["alarms"], json!([]), "the same CA twice");
    equip(&pair, &pki, Side::Two, ECDSA, "second");
    come();
    let alarm = wait_until("an alarm", SOON, || {
        let all = pair.one.alarms().unwrap();
        Ok(all["alarms"].get(0).cloned().ok_or_else(|| all.to_string()))
    })
    .unwrap();
    assert_eq!((&alarm["kind"], &alarm["severity"]), (&json!("certificate"), &json!("warning")), "{alarm}");
    assert!(alarm["subject"].as_str().unwrap().contains(dn(Side::Two)), "{alarm}");
    assert!(alarm["evidence"].as_str().unwrap().contains("CN=Second"), "{alarm}");
}
