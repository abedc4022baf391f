//! Post-quantum key exchanges, in strongSwan 6's words.

use testudo_ike::config::KeyExchange::{self, Ecp384, MlKem512, MlKem768, MlKem1024, X25519};
use testudo_ike::config::{Connection, EspProposal, IkeProposal};
use testudo_vici::message::Message;
use testudo_vici::render;
use testudo_vici::schema::{Policy, connection};

fn load(key: &str, proposal: &str) -> Result<Connection, String> {
    let psk = || Message::new().with("auth", "psk");
    let mut content = Message::new().with_section("local", psk()).with_section("remote", psk());
    if key == "proposals" {
        content = content.with_list(key, [proposal]);
    } else {
        let net = Message::new().with_list(key, [proposal]);
        content = content.with_section("children", Message::new().with_section("net", net));
    }
    connection(&Message::new().with_section("gw", content), Policy::Modern)
        .map_err(|refusal| refusal.to_string())
}

fn ike(text: &str) -> Result<IkeProposal, String> {
    load("proposals", text).map(|mut conn| conn.proposals.remove(0))
}

fn places<const N: usize>(named: [(usize, &[Option<KeyExchange>]); N]) -> [Vec<Option<KeyExchange>>; 7] {
    let mut places: [Vec<_>; 7] = Default::default();
    for (number, methods) in named {
        places[number - 1] = methods.to_vec();
    }
    places
}

#[test]
fn additional_key_exchanges() {
    let proposal = ike("aes256gcm16-prfsha384-ecp384-ke1_mlkem768").unwrap();
    assert_eq!(proposal.ke, [Ecp384]);
    assert_eq!(proposal.additional, places([(1, &[Some(MlKem768)])]));
    let proposal =
        ike("AES256GCM16-X25519-KE1_MLKEM768-ke1_none-ke3_ecp384-ke3_mlkem512-ke7_mlkem1024").unwrap();
    let expected =
        places([(1, &[Some(MlKem768), None]), (3, &[Some(Ecp384), Some(MlKem512)]), (7, &[Some(MlKem1024)])]);
    assert_eq!(proposal.additional, expected);
    assert_eq!(ike("aes128-sha256-x25519").unwrap().additional, places([]));
    assert_eq!(ike("aes128gcm16-mlkem768").unwrap().ke, [MlKem768], "in the place of the first exchange");
    assert_eq!(ike("aes128gcm16-x25519-mlkem1024-mlkem512").unwrap().ke, [X25519, MlKem1024, MlKem512]);
}

#[test]
fn unusable_proposals_are_refused_with_the_reason() {
    for (text, expected) in [
        (
            "aes128gcm16-x25519-ke1_sha256",
            "but \"ke1_sha256\" names no key exchange; expected one such as ke1_mlkem768",
        ),
        ("aes128gcm16-x25519-ke1_foo", "but algorithm \"foo\" is not supported; expected aes{128,"),
        (
            "aes128gcm16-x25519-ke1_modp1024",
            "but algorithm \"modp1024\" is refused as weak: its group is too small",
        ),
        ("aes128gcm16-x25519-ke0_mlkem768", "but algorithm \"ke0_mlkem768\" is not supported"),
        ("aes128gcm16-x25519-ke8_mlkem768", "but algorithm \"ke8_mlkem768\" is not supported"),
        ("aes128gcm16-x25519-ke01_mlkem768", "but algorithm \"ke01_mlkem768\" is not supported"),
        ("aes128gcm16-ke1_mlkem768", "but it names no key exchange; expected one such as x25519"),
        ("aes128gcm16-x25519-ke1_x25519", "but no key exchange method can be used twice"),
        ("aes128gcm16-x25519-ke1_mlkem768-ke2_mlkem768", "but no key exchange method can be used twice"),
    ] {
        let why = ike(text).unwrap_err();
        let expected = format!("connections.gw.proposals: found {text:?}, {expected}");
        assert!(why.starts_with(&expected), "{why}");
    }
    for (text, expected) in [
        (
            "aes128gcm16-ke1_mlkem768",
            "but it has additional key exchanges without a first one; expected one such as x25519",
        ),
        ("aes128gcm16-x25519-ke1_x25519", "but no key exchange method can be used twice"),
        ("aes128gcm16-x25519-ke1_mlkem768-ke2_mlkem768", "but no key exchange method can be used twice"),
        ("aes128gcm16-x25519-ke1_foo", "but algorithm \"foo\" is not supported"),
    ] {
        let why = esp(text).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

fn esp(text: &str) -> Result<EspProposal, String> {
    let connection = load("esp_proposals", text)?;
    Ok(connection.children[0].proposals[0].clone())
}

#[test]
fn additional_key_exchanges_of_child_sas() {
    let proposal = esp("aes256gcm16-x25519-ke1_mlkem768-ke1_none-ke2_mlkem1024").unwrap();
    assert_eq!(proposal.ke, [X25519]);
    assert_eq!(proposal.additional, places([(1, &[Some(MlKem768), None]), (2, &[Some(MlKem1024)])]));
    assert_eq!(esp("aes128gcm16-x25519").unwrap().additional, places([]));
}

#[test]
fn ike_and_child_sas_show_them_under_charons_keys() {
    let sa = crate::support::net_sa(1);
    let events = render::list_sa(&sa, None, testudo_ike::output::Time::default(), &|_| Default::default());
    let ike = events[0].section("gw").unwrap();
    let child = ike.section("child-sas").unwrap().section("net-1").unwrap();
    for shown in [ike, child] {
        assert_eq!(shown.text("dh-group"), Some("CURVE_25519"));
        assert_eq!(shown.text("ake1"), Some("ML_KEM_768"));
        assert_eq!(shown.text("ake2"), None);
    }
    let algorithms = render::algorithms(Policy::Modern);
    let methods = algorithms.section("dh").unwrap();
    for name in ["ML_KEM_512", "ML_KEM_768", "ML_KEM_1024"] {
        assert!(methods.text(name).is_some(), "{name}");
    }
}
