//! Children of different connections with the same selectors: only one of them can have the
//! traffic.

use crate::render;
use std::collections::{BTreeMap, BTreeSet};
use testudo_ike::config::{Child, Connection, TsSpec};

/// The negotiated children of connections, by their selectors.
#[derive(Debug, Default)]
pub struct SelectorIndex {
    by_selectors: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The entries of each connection.
    keys: BTreeMap<String, Vec<(String, String)>>,
}

/// A child with the same selectors as others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// `children.<name>`.
    pub child: String,
    /// The others, as `connection.child`.
    pub others: Vec<String>,
}

impl Twin {
    /// Describes the others for the log.
    pub fn describe(others: &[String]) -> String {
        const MAX_NAMED: usize = 3;
        let named = others.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if others.len() > MAX_NAMED { " and more" } else { "" };
        format!("has the same selectors as {named}{more}: outbound traffic can use only one of them")
    }
}

impl SelectorIndex {
    /// Adds a connection, or replaces the one of the same name. Returns those of its children that
    /// have twins in other connections.
    pub fn load(&mut self, connection: &Connection) -> Vec<Twin> {
        self.unload(&connection.name);
        let keyed = connection.children.iter().filter_map(|child| Some((child.name.clone(), key(child)?)));
        let keyed: Vec<(String, String)> = keyed.collect();
        let mut twins = Vec::new();
        for (child, key) in &keyed {
            let same = self.by_selectors.entry(key.clone()).or_default();
            let others = same.iter().filter(|(other, _)| *other != connection.name);
            let others: Vec<String> = others.map(|(other, child)| format!("{other}.{child}")).collect();
            if !others.is_empty() {
                twins.push(Twin { child: child.clone(), others });
            }
            same.insert((connection.name.clone(), child.clone()));
        }
        self.keys.insert(connection.name.clone(), keyed);
        twins
    }

    /// Removes a connection.
    pub fn unload(&mut self, connection: &str) {
        for (child, key) in self.keys.remove(connection).unwrap_or_default() {
            if let Some(same) = self.by_selectors.get_mut(&key) {
                same.remove(&(connection.to_owned(), child));
                if same.is_empty() {
                    self.by_selectors.remove(&key);
                }
            }
        }
    }
}

/// `None` if the addresses are unknown before there is an SA, or if the child never has one.
fn key(child: &Child) -> Option<String> {
    let dynamic = |spec: &TsSpec| matches!(spec, TsSpec::Dynamic { .. });
    if !child.mode.is_negotiated() || child.local_ts.iter().chain(&child.remote_ts).any(dynamic) {
        return None;
    }
    let side = |specs: &[TsSpec]| {
        let mut specs: Vec<String> = specs.iter().map(render::spec).collect();
        specs.sort();
        specs.join(",")
    };
    Some(format!("{}={}", side(&child.local_ts), side(&child.remote_ts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::schema::{self, Policy};

    fn connection(name: &str, local: &[&str], remote: &[&str]) -> Connection {
        let psk = || Message::new().with("auth", "psk");
        let child = Message::new()
            .with_list("local_ts", local.iter().copied())
            .with_list("remote_ts", remote.iter().copied());
        let content = Message::new()
            .with_section("local", psk())
            .with_section("remote", psk())
            .with_section("children", Message::new().with_section("net", child));
        schema::connection(&Message::new().with_section(name, content), Policy::Modern).unwrap()
    }

    #[test]
    fn the_same_selectors_in_any_order_are_the_same() {
        let mut index = SelectorIndex::default();
        let nets = ["10.1.0.0/16", "10.3.0.0/16"];
        assert_eq!(index.load(&connection("a", &nets, &["10.2.0.0/16"])), []);
        let swapped = ["10.3.0.0/16", "10.1.0.0/16"];
        let twin = Twin { child: "net".into(), others: vec!["a.net".into()] };
        assert_eq!(index.load(&connection("b", &swapped, &["10.2.0.0/16"])), [twin]);
        assert_eq!(index.load(&connection("b", &nets, &["10.2.0.0/17"])), [], "it is another now");
        assert_eq!(index.load(&connection("c", &["10.2.0.0/16"], &nets)), [], "the other way round");
        index.unload("a");
        assert_eq!(index.load(&connection("b", &nets, &["10.2.0.0/16"])), [], "that is gone");
    }

    #[test]
    fn selectors_that_need_an_sa_have_no_twins() {
        let mut index = SelectorIndex::default();
        for name in ["a", "b"] {
            assert_eq!(index.load(&connection(name, &["10.1.0.0/16"], &["dynamic"])), []);
        }
    }
}
