use super::samples::{address, flow, sa};
use super::*;

#[test]
fn selectors_include_what_they_name() {
    let (host, port) = (address("192.0.2.2"), Some(49152));
    for (selector, all_ports, one_port) in [
        ("192.0.2.2/32", true, true),
        ("192.0.2.0/24[tcp]", true, true),
        ("192.0.2.1..192.0.2.9[tcp/49152]", false, true),
        ("192.0.2.2/32[tcp/49000-49999]", false, true),
        ("192.0.2.2/32[tcp/49153]", false, false),
        ("192.0.2.2/32[tcp/OPAQUE]", false, false),
        ("192.0.2.2/32[udp]", false, false),
        ("192.0.2.3/32", false, false),
        ("192.0.2.3..192.0.2.9", false, false),
        ("2001:db8::/32", false, false),
    ] {
        assert_eq!(selects(selector, host, None), all_ports, "{selector}");
        assert_eq!(selects(selector, host, port), one_port, "{selector}");
    }
}

#[test]
fn both_ends_of_one_sa_are_found() {
    let (ours, theirs) = (sa(1), sa(2));
    let tunnel = ChildSa { mode: "TUNNEL".to_owned(), ..sa(1) };
    let (found, other) =
        find(&[tunnel.clone(), ours.clone()], std::slice::from_ref(&theirs), flow()).unwrap();
    assert!(found.is(&ours) && other.is(&theirs));

    let found = |sas: &[ChildSa]| find(sas, &[sa(2)], flow()).unwrap_err().found;
    assert!(found(&[]).starts_with("no installed Child SA"));
    assert!(found(&[tunnel]).starts_with("no installed Child SA"), "the IP header is another one");
    let narrow = ChildSa { remote_ts: vec!["192.0.2.2/32[tcp/22]".to_owned()], ..sa(1) };
    assert!(found(&[narrow]).starts_with("no installed Child SA"));
}

/// Two daemons that have a Child SA each, but not this one together.
#[test]
fn the_other_end_must_be_that_of_this_sa() {
    let another = ChildSa { spi_in: "c0000009".to_owned(), ..sa(2) };
    let itself = sa(1);
    for theirs in [another, itself] {
        let refusal = find(&[sa(1)], &[theirs], flow()).unwrap_err();
        assert!(refusal.found.contains("the other end"), "{}", refusal.found);
    }
}

#[test]
fn weak_algorithms_are_known() {
    let with = |protocol: &str, encryption: &str, integrity: Option<&str>| ChildSa {
        protocol: protocol.to_owned(),
        encryption: encryption.to_owned(),
        integrity: integrity.map(str::to_owned),
        ..sa(1)
    };
    for (strong, protocol, encryption, integrity) in [
        (true, "ESP", "AES_GCM_16", None),
        (true, "ESP", "AES_CCM_16", None),
        (true, "ESP", "CHACHA20_POLY1305", None),
        (true, "ESP", "AES_CBC", Some("HMAC_SHA2_256_128")),
        (false, "ESP", "AES_CBC", Some("HMAC_SHA1_96")),
        (false, "ESP", "AES_CBC", None),
        (false, "ESP", "3DES_CBC", Some("HMAC_SHA2_256_128")),
        (false, "ESP", "NULL", Some("HMAC_SHA2_256_128")),
        (false, "ESP", "NULL_AES_GMAC", None),
        (false, "AH", "NULL", Some("HMAC_SHA2_256_128")),
    ] {
        let sa = with(protocol, encryption, integrity);
        assert_eq!(sa.is_strong(), strong, "{}", sa.suite());
    }
    assert_eq!(sa(1).suite(), "ESP AES_GCM_16-128");
}

#[test]
fn the_answer_of_a_daemon_is_read() {
    let child = |state: &str| {
        Message::new()
            .with("name", "migration")
            .with("state", state)
            .with("mode", "TRANSPORT")
            .with("protocol", "ESP")
            .with("encr-alg", "AES_GCM_16")
            .with("encr-keysize", "128")
            .with("spi-in", "c0000001")
            .with("spi-out", "c0000002")
            .with("packets-in", "0")
            .with("packets-out", "0")
            .with_list("local-ts", ["192.0.2.1/32[tcp]"])
            .with_list("remote-ts", ["192.0.2.2/32[tcp/49152]"])
    };
    let ike = Message::new()
        .with("local-host", "192.0.2.1")
        .with("local-id", "host1")
        .with("remote-host", "192.0.2.2")
        .with("remote-id", "host2");
    assert_eq!(ChildSa::read(&ike, &child("INSTALLED")).unwrap(), sa(1));
    let error = ChildSa::read(&ike, &Message::new()).unwrap_err().to_string();
    assert!(error.contains("name"), "{error}");
}
