//! Certificates that neither side accepts: the reason is in the log, and is not sent to the peer.

use super::{ECDSA, equip, load, own, start};
use crate::common::{Pair, SOON};
use testudo_lab::pki::Pki;
use testudo_lab::topology::Side;
use testudo_lab::wait_until;

/// No tunnel comes up, and our log says why. As responder the log is limited in rate for strangers,
/// so we initiate.
fn refused(pair: &mut Pair, why: &str) {
    for initiator in [Side::One, Side::Two] {
        let args = ["--initiate", "--child", "lab", "--timeout", "10"];
        let done = pair.swanctl(initiator).cmd(args).run_any().unwrap();
        assert!(!done.status.success(), "{}", done.stdout);
        pair.await_log(why);
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
    }
}

fn equipped(name: &'static str) -> (Pair, Pki) {
    let (pair, pki) = start(name);
    for side in [Side::One, Side::Two] {
        equip(&pair, &pki, side, ECDSA, "root");
    }
    (pair, pki)
}

#[test]
fn a_certificate_of_another_ca() {
    let (mut pair, pki) = start("wrong-ca");
    pki.ca("other", ECDSA, "/C=CH/O=Testudo Lab/CN=Other", None).unwrap();
    equip(&pair, &pki, Side::One, ECDSA, "root");
    equip(&pair, &pki, Side::Two, ECDSA, "other");
    load(&pair, |_, _| {});
    refused(
        &mut pair,
        "no issuer certificate is loaded for 'C=CH, O=Testudo Lab, CN=gw2', issued by 'C=CH, O=Testudo Lab, CN=Other'",
    );
}

#[test]
fn a_ca_that_the_connection_does_not_name() {
    let (mut pair, pki) = equipped("other-ca");
    pki.ca("other", ECDSA, "/C=CH/O=Testudo Lab/CN=Other", None).unwrap();
    pki.give(pair.swanctl(Side::One), "other.pem", "x509ca").unwrap();
    load(&pair, |side, connection| {
        if side == Side::One {
            connection.remote.push("cacerts = other.pem".into());
        }
    });
    refused(&mut pair, "root CA 'C=CH, O=Testudo Lab, CN=Root' is not trusted here");
    // By its name alone.
    let named = |pair: &Pair, ca: &str| {
        load(pair, |side, connection| {
            if side == Side::One {
                connection.remote.push(format!("ca_id = \"C=CH, O=Testudo Lab, CN={ca}\""));
            }
        });
    };
    named(&pair, "Other");
    let why = "no CA up to 'C=CH, O=Testudo Lab, CN=Root' has the identity C=CH, O=Testudo Lab, CN=Other";
    refused(&mut pair, why);
    named(&pair, "Root");
    super::come_and_go(&pair);
}

#[test]
fn a_revoked_certificate_and_one_that_may_be() {
    let (mut pair, pki) = equipped("revoked");
    let strict = |pair: &Pair| {
        load(pair, |side, connection| {
            if side == Side::One {
                connection.remote.push("revocation = strict".into());
            }
        });
    };
    strict(&pair);
    refused(&mut pair, "cannot tell whether certificate 'C=CH, O=Testudo Lab, CN=gw2' is revoked: no CRL of");
    pki.crl("now", "root", &[]).unwrap();
    pki.give(pair.swanctl(Side::One), "now.crl", "x509crl").unwrap();
    strict(&pair);
    super::come_and_go(&pair);
    pki.crl("now", "root", &[own(Side::Two)]).unwrap();
    pki.give(pair.swanctl(Side::One), "now.crl", "x509crl").unwrap();
    load(&pair, |_, _| {});
    refused(&mut pair, "certificate 'C=CH, O=Testudo Lab, CN=gw2' was revoked at 2020-01-01T00:00:00Z");
}

#[test]
fn an_identity_that_is_not_in_the_certificate() {
    let (mut pair, _pki) = equipped("confirm");
    load(&pair, |side, connection| match side {
        Side::One => connection.remote[1] = "id = mars.lab.example".into(),
        Side::Two => connection.local.push("id = mars.lab.example".into()),
    });
    // charon puts its own subject in the place of an identity that its certificate has not.
    let args = ["--initiate", "--child", "lab", "--timeout", "10"];
    let done = pair.swanctl(Side::Two).cmd(args).run_any().unwrap();
    assert!(!done.status.success(), "{}", done.stdout);
    let reasons = ["does not confirm that its owner is mars.lab.example", "no connection is configured for "];
    wait_until("one of two reasons", SOON, || {
        let log = pair.one.process().log()?;
        Ok(if reasons.iter().any(|reason| log.contains(reason)) { Ok(()) } else { Err(log) })
    })
    .unwrap();
}

/// swanctl names files that it cannot load, with the reason from testudod.
#[test]
fn files_that_cannot_be_loaded_are_named() {
    let (pair, pki) = equipped("files");
    let swanctl = pair.swanctl(Side::One);
    pki.give(swanctl, "gw1.pem", "x509ca").unwrap();
    swanctl.write_file("x509crl", "no.crl", "nothing").unwrap();
    let done = swanctl.cmd(["--load-creds", "--noprompt"]).run_any().unwrap();
    for (file, why) in [
        (
            "x509ca/gw1.pem' failed: ",
            "certificate 'C=CH, O=Testudo Lab, CN=gw1' lacks the CA basic constraint",
        ),
        ("x509crl/no.crl' failed: ", "load-cert.data: found a file of 7 octets, but this CRL is malformed"),
    ] {
        assert!(done.stderr.contains(&format!("{file}{why}")), "{}", done.stderr);
    }
}
