//! Post-quantum pre-shared keys: `ppk_id`, `ppk_required`, and `secrets.ppk<suffix>`.

use crate::support::message;
use testudo_ike::config::{Identity, PpkPolicy, SecretKind};
use testudo_vici::message::{Element, Message};
use testudo_vici::render;
use testudo_vici::schema::{Policy, connection, shared_secret};

fn conn(keys: &[(&str, &str)]) -> Result<testudo_ike::config::Connection, String> {
    let psk = || Message::new().with("auth", "psk");
    let content = message(keys).with_section("local", psk()).with_section("remote", psk());
    connection(&Message::new().with_section("gw", content), Policy::Modern)
        .map_err(|refusal| refusal.to_string())
}

#[test]
fn a_connection_names_its_ppk_and_may_require_it() {
    assert_eq!(conn(&[]).unwrap().ppk, PpkPolicy::default());
    let named = conn(&[("ppk_id", "quantum.example.org"), ("ppk_required", "yes")]).unwrap();
    let id = Some(Identity::Fqdn("quantum.example.org".to_owned()));
    assert_eq!(named.ppk, PpkPolicy { id, required: true });
    assert_eq!(conn(&[("ppk_id", "@#0aff")]).unwrap().ppk.id, Some(Identity::KeyId(vec![0x0a, 0xff])));
    assert_eq!(conn(&[("ppk_id", "")]).unwrap().ppk.id, None);
    let why = conn(&[("ppk_required", "perhaps")]).unwrap_err();
    assert!(why.starts_with("connections.gw.ppk_required: found \"perhaps\""), "{why}");
}

#[test]
fn a_ppk_is_loaded_with_its_names() {
    let of = |owners: &[&str]| {
        message(&[("type", "ppk"), ("data", "key")]).with_list("owners", owners.iter().copied())
    };
    let secret = shared_secret(&of(&["quantum"]).with("id", "ppk-1")).unwrap();
    assert_eq!((secret.kind, secret.name.as_str()), (SecretKind::Ppk, "ppk-1"));
    assert_eq!(secret.owners, [Identity::Fqdn("quantum".to_owned())]);
    assert_eq!(shared_secret(&of(&["quantum"])).unwrap().name, "ppk-of-quantum");
    assert_eq!(shared_secret(&of(&[])).unwrap().name, "ppk-of-anybody");
    assert!(!format!("{secret:?}").contains("key\""));
}

#[test]
fn connections_and_ike_sas_show_it_under_charons_keys() {
    let shown = render::list_conn(&conn(&[("ppk_id", "quantum"), ("ppk_required", "yes")]).unwrap());
    let Some([Element::Section(_, content)]) = shown.first().map(Message::elements) else {
        panic!("{shown:?}")
    };
    assert_eq!((content.text("ppk_id"), content.text("ppk_required")), (Some("quantum"), Some("yes")));
    let mut sa = crate::support::net_sa(1);
    for (ppk, expected) in [(false, None), (true, Some("yes"))] {
        sa.ppk = ppk;
        let events =
            render::list_sa(&sa, None, testudo_ike::output::Time::default(), &|_| Default::default());
        assert_eq!(events[0].section("gw").unwrap().text("ppk"), expected);
    }
}
