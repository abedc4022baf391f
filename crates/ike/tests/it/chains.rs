//! Bounds of chains, and lists of revoked certificates that do not count, with the files of
//! `fixtures/pki`.

use crate::certificates::{assert_refused, judge, judge_with};
use crate::pki::{cert, crl};
use testudo_ike::cert::Credentials;

#[test]
fn a_chain_has_ten_certificates_at_most() {
    let links: Vec<String> = (1..=9).map(|number| format!("link-{number}")).collect();
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    assert_eq!(judge("sun-by-link-8", &["link-0"], &links), Ok("C=CH, O=Testudo, CN=Link 0".to_owned()));
    let longer = "the chain is longer than 10 certificates";
    assert_refused(judge("sun-by-link-9", &["link-0"], &links), longer);
}

/// RFC 5280 §6.3.3 (f): a CA says by its key usage whether its lists count.
#[test]
fn a_list_of_a_ca_that_may_not_sign_lists_does_not_count() {
    let crls = [crl("listless.crl")];
    let judged = judge_with("sun-by-listless", &["listless"], &[], &crls, |_| {});
    assert_eq!(judged, Ok("C=CH, O=Testudo, CN=Listless".to_owned()), "although it has the certificate");
}

/// Neither is older, and an operator who loads one wants it.
#[test]
fn of_two_lists_of_one_second_the_later_to_come_counts() {
    let (first, second) = (crl("first.crl"), crl("second.crl"));
    assert_ne!(first, second);
    let mut credentials = Credentials::default();
    credentials.load_certificate(cert("link-0"), true).unwrap();
    for list in [&first, &second, &first] {
        assert!(credentials.load_crl(list.clone()));
        assert_eq!(credentials.crls(), std::slice::from_ref(list));
    }
}
