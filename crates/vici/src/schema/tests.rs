//! Every row of the table does what it says, and stands in `docs/reference/swanctl.md`.

use super::keys::{AUTH, Accepted, CHILD, CONNECTION, Key, POOL, Rule};
use crate::message::{Element, Message};
use crate::schema::{Policy, connection};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const DOC: &str = include_str!("../../../../docs/reference/swanctl.md");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Connection,
    Auth,
    Child,
}

/// Loads a connection with `element` in the given section.
fn load(section: Section, element: Element) -> Result<(), String> {
    let mut auth = Message::new();
    let mut child = Message::new();
    let mut conn = Message::new();
    match section {
        Section::Connection => conn.push(element),
        Section::Auth => auth.push(element),
        Section::Child => child.push(element),
    }
    if auth.value("auth").is_none() && auth.section("auth").is_none() {
        auth.add("auth", "psk");
    }
    conn.add_section("remote", Message::new().with("auth", "psk"));
    conn.add_section("local", auth);
    if !conn.elements().iter().any(|element| element.name() == "children") {
        conn.add_section("children", Message::new().with_section("net", child));
    }
    connection(&Message::new().with_section("gw", conn), Policy::Modern)
        .map(drop)
        .map_err(|refusal| refusal.to_string())
}

fn value(name: &str, text: &str) -> Element {
    Element::Value(name.to_owned(), text.into())
}

fn rows() -> impl Iterator<Item = (Section, &'static Key)> {
    let connection = CONNECTION.iter().map(|key| (Section::Connection, key));
    let auth = AUTH.iter().map(|key| (Section::Auth, key));
    let child = CHILD.iter().map(|key| (Section::Child, key));
    connection.chain(auth).chain(child)
}

#[test]
fn decoded_keys_are_decoded() {
    for (section, key) in rows().filter(|(_, key)| matches!(key.rule, Rule::Decoded)) {
        if key.name.ends_with('*') || key.name == "children" {
            continue;
        }
        let shape = Element::Section(key.name.to_owned(), Message::new());
        let why = load(section, shape).unwrap_err();
        assert!(why.contains(": found a section, expected a "), "{}: {why}", key.name);
    }
}

#[test]
fn other_keys_are_accepted_with_harmless_values_only() {
    for (section, key) in rows() {
        let (accepted, what) = match key.rule {
            Rule::Only(accepted, what) => (accepted, what),
            Rule::NoEffect(accepted, _) => (accepted, "expected yes"),
            Rule::Decoded => continue,
        };
        let good: Vec<&str> = match accepted {
            Accepted::AnyTime => vec!["0", "30s", "1h"],
            Accepted::Boolean => vec!["yes", "no"],
            Accepted::No => vec!["no", "0", "False"],
            Accepted::Yes => vec!["yes", "1", "True"],
            Accepted::Zero => vec!["0", "0s", "0x0", "00", "0/0x00000000", "0 m"],
            Accepted::Empty => vec![""],
            Accepted::Words(words, _) => words.to_vec(),
            Accepted::Never => vec![],
        };
        let name = key.name.trim_end_matches('*');
        for text in good {
            assert_eq!(load(section, value(name, text)), Ok(()), "{name} = {text}");
        }
        let bad = if matches!(accepted, Accepted::Yes) { "no" } else { "1x" };
        let why = load(section, value(name, bad)).unwrap_err();
        assert!(why.contains(&format!("{name}: found \"{bad}\", ")), "{why}");
        assert!(why.contains(what), "{why}");
    }
}

#[test]
fn zero_is_nothing_else() {
    for text in ["1", "", "s", "0x", "0/1", "1/0", "0sm0", "0smh", "-0", "0.0", "00000001"] {
        assert!(load(Section::Child, value("inactivity", text)).is_err(), "{text:?}");
    }
}

#[test]
fn the_documentation_has_the_same_keys() {
    let mut tables: Vec<Vec<&str>> = Vec::new();
    for line in DOC.lines() {
        if line.starts_with("## ") {
            tables.push(Vec::new());
        }
        let row = line.strip_prefix("| `").and_then(|row| row.split_once('`'));
        if let (Some((key, _)), Some(table)) = (row, tables.last_mut()) {
            table.push(key);
        }
    }
    for keys in [CONNECTION, AUTH, CHILD, POOL] {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        let table = tables.iter().find(|table| table.first() == names.first()).unwrap();
        let missing: Vec<_> = names.iter().filter(|name| !table.contains(name)).collect();
        assert!(missing.is_empty(), "not in docs/reference/swanctl.md: {missing:?}");
        let extra: Vec<_> = table.iter().filter(|name| !names.contains(name)).collect();
        assert!(extra.is_empty(), "only in docs/reference/swanctl.md: {extra:?}");
    }
}

/// The table's text for a key that is accepted with some values only.
#[test]
fn the_documentation_has_the_same_values() {
    let mut section = "";
    let mut seen = 0;
    for line in DOC.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let Some(name) = cells[0].strip_prefix("| `").and_then(|cell| cell.strip_suffix('`')) else {
            continue;
        };
        let keys = match section {
            "`connections.<conn>`" => CONNECTION,
            "`connections.<conn>.local<suffix>`, `connections.<conn>.remote<suffix>`" => AUTH,
            "`connections.<conn>.children.<child>`" => CHILD,
            "`pools.<pool>`" => POOL,
            _ => continue,
        };
        let Some(key) = keys.iter().find(|key| key.name == name) else { continue };
        let shown = cells[1];
        let fits = match key.rule {
            Rule::Decoded => !shown.is_empty() && shown != "empty" && shown != "nothing",
            Rule::NoEffect(_, why) => shown == "a boolean" && line.contains(why),
            Rule::Only(accepted, _) => match accepted {
                Accepted::AnyTime => shown == "any time",
                Accepted::Boolean => false,
                Accepted::No => shown == "`no`",
                Accepted::Yes => shown == "`yes`",
                Accepted::Zero => shown == "`0`",
                Accepted::Empty => shown == "empty",
                Accepted::Never => shown == "nothing",
                Accepted::Words(words, _) => {
                    shown.split(", ").all(|word| words.contains(&word.trim_matches('`')))
                }
            },
        };
        assert!(fits, "{section}: {name} is documented as {shown:?}, and is {:?}", key.rule);
        seen += 1;
    }
    assert_eq!(seen, CONNECTION.len() + AUTH.len() + CHILD.len() + POOL.len());
}

/// Texts that mean something somewhere, and some that mean nothing.
fn text() -> impl Strategy<Value = String> {
    let words = [
        "yes",
        "no",
        "0",
        "2",
        "30s",
        "64",
        "psk",
        "trap",
        "start",
        "pass",
        "drop",
        "tunnel",
        "default",
        "dynamic",
        "%any",
        "192.0.2.1",
        "10.1.0.0/16[tcp/80]",
        "aes128gcm16-prfsha256-x25519",
        "aes256gcm16-esn",
        "@gw",
        "@#0a",
    ];
    prop_oneof![4 => select(words.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}"]
}

fn element(section: Section) -> impl Strategy<Value = Element> {
    let names: Vec<_> =
        rows().filter(|(of, _)| *of == section).map(|(_, key)| key.name.trim_end_matches('*')).collect();
    let value = |name: &'static str| text().prop_map(move |text| value(name, &text));
    let list = |name: &'static str| {
        let items = vec(text(), 0..3);
        items.prop_map(move |items| {
            Element::List(name.to_owned(), items.into_iter().map(Into::into).collect())
        })
    };
    select(names).prop_flat_map(move |name| prop_oneof![value(name), list(name)])
}

fn section(of: Section) -> impl Strategy<Value = Message> {
    vec(element(of), 0..4).prop_map(|elements| {
        let mut message = Message::new();
        elements.into_iter().for_each(|element| message.push(element));
        message
    })
}

proptest! {
    #[test]
    fn a_configuration_is_refused_by_a_path_or_can_be_listed(
        conn in section(Section::Connection),
        local in section(Section::Auth),
        child in section(Section::Child),
    ) {
        let local = if local.value("auth").is_some() { local } else { local.with("auth", "psk") };
        let conn = conn
            .with_section("local", local)
            .with_section("remote", Message::new().with("auth", "psk"))
            .with_section("children", Message::new().with_section("net", child));
        match connection(&Message::new().with_section("gw", conn), Policy::Modern) {
            Ok(connection) => {
                for message in crate::render::list_conn(&connection) {
                    prop_assert!(crate::codec::encode(&message, &mut Vec::new()).is_ok());
                }
            }
            Err(refusal) => prop_assert!(refusal.to_string().starts_with("connections.gw."), "{refusal}"),
        }
    }
}
