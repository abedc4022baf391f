//! Children with selectors in common: only one of them can have the traffic.

use crate::render;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use testudo_ike::config::{Child, Connection, TsSpec};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// A connection and one of its children.
type ChildName = (String, String);

/// The negotiated children of connections, by their selectors.
#[derive(Debug, Default)]
pub struct SelectorIndex {
    by_local: BTreeMap<String, BTreeSet<ChildName>>,
    by_remote: BTreeMap<String, BTreeSet<ChildName>>,
    /// The children of each connection.
    children: BTreeMap<String, Vec<(String, Selectors)>>,
}

/// The selectors of a child as text. Each local one is used with each remote one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selectors {
    local: BTreeSet<String>,
    remote: BTreeSet<String>,
}

/// A child that has selectors in common with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twin {
    /// `children.<name>`.
    pub child: String,
    /// The others, as `connection.child`.
    pub others: Vec<String>,
    /// True if some of the others have further selectors, or the child has.
    pub in_part: bool,
}

/// Describes the others for the log.
impl fmt::Display for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_NAMED: usize = 3;
        let Self { others, in_part, .. } = self;
        let common = if *in_part { "has selectors in common with" } else { "has the same selectors as" };
        let named = others.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if others.len() > MAX_NAMED { " and more" } else { "" };
        write!(f, "{common} {named}{more}: outbound traffic can use only one of them")
    }
}

impl SelectorIndex {
    /// Adds a connection, or replaces the one of the same name. Returns those of its children that
    /// have twins in other connections, or before them in this one.
    pub fn load(&mut self, connection: &Connection) -> Vec<Twin> {
        self.unload(&connection.name);
        let mut twins = Vec::new();
        for child in &connection.children {
            let Some(selectors) = selectors(connection, child) else { continue };
            let name = (connection.name.clone(), child.name.clone());
            let others = self.in_common(&selectors);
            if !others.is_empty() {
                let in_part = others.iter().any(|other| self.selectors(other) != Some(&selectors));
                let others = others.into_iter().map(|(other, child)| format!("{other}.{child}")).collect();
                twins.push(Twin { child: child.name.clone(), others, in_part });
            }
            let Selectors { local, remote } = &selectors;
            for (index, keys) in [(&mut self.by_local, local), (&mut self.by_remote, remote)] {
                for key in keys {
                    index.entry(key.clone()).or_default().insert(name.clone());
                }
            }
            let children = self.children.entry(connection.name.clone()).or_default();
            children.push((child.name.clone(), selectors));
        }
        twins
    }

    /// The children that have one of these local selectors and one of these remote ones.
    fn in_common(&self, selectors: &Selectors) -> BTreeSet<ChildName> {
        let mut found = BTreeSet::new();
        for local in selectors.local.iter().filter_map(|key| self.by_local.get(key)) {
            for remote in selectors.remote.iter().filter_map(|key| self.by_remote.get(key)) {
                // Very many children may share the network on one side.
                let (few, many) = if local.len() < remote.len() { (local, remote) } else { (remote, local) };
                found.extend(few.iter().filter(|child| many.contains(*child)).cloned());
            }
        }
        found
    }

    fn selectors(&self, (connection, child): &ChildName) -> Option<&Selectors> {
        let children = self.children.get(connection)?;
        children.iter().find(|(name, _)| name == child).map(|(_, selectors)| selectors)
    }

    /// Removes a connection.
    pub fn unload(&mut self, connection: &str) {
        for (child, Selectors { local, remote }) in self.children.remove(connection).unwrap_or_default() {
            let name = (connection.to_owned(), child);
            for (index, keys) in [(&mut self.by_local, local), (&mut self.by_remote, remote)] {
                for key in keys {
                    if let Some(same) = index.get_mut(&key) {
                        same.remove(&name);
                        if same.is_empty() {
                            index.remove(&key);
                        }
                    }
                }
            }
        }
    }
}

/// `None` if the addresses are unknown before there is an SA, or if the child never has one.
fn selectors(connection: &Connection, child: &Child) -> Option<Selectors> {
    if !child.mode.is_negotiated() {
        return None;
    }
    let (ours, theirs) = (&connection.local_addrs, &connection.remote_addrs);
    let single = |addrs: &[AddrRange], is_virtual: bool, has_names: bool| match addrs {
        [addr] if addr.start() == addr.end() && !is_virtual && !has_names => Some(*addr),
        _ => None,
    };
    let has_vips = !connection.vips.is_empty() || !connection.vips_within.is_empty();
    let local = single(ours, has_vips, !connection.names.local.is_empty());
    let remote = single(theirs, !connection.pools.is_empty(), !connection.names.remote.is_empty());
    Some(Selectors { local: side(&child.local_ts, local)?, remote: side(&child.remote_ts, remote)? })
}

/// The selectors of a side, whose `dynamic` is that address.
fn side(specs: &[TsSpec], dynamic: Option<AddrRange>) -> Option<BTreeSet<String>> {
    let text = |spec: &TsSpec| match *spec {
        TsSpec::Dynamic { protocol, port_start, port_end } => {
            let fixed = TrafficSelector { addrs: dynamic?, protocol, port_start, port_end };
            Some(render::spec(&TsSpec::Fixed(fixed)))
        }
        TsSpec::Fixed(_) => Some(render::spec(spec)),
    };
    specs.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::schema::{self, Policy};

    fn child(local: &[&str], remote: &[&str]) -> Message {
        Message::new()
            .with_list("local_ts", local.iter().copied())
            .with_list("remote_ts", remote.iter().copied())
    }

    /// With these keys beside its children.
    fn made(name: &str, keys: Message, children: Message) -> Connection {
        let psk = || Message::new().with("auth", "psk");
        let content = keys
            .with_section("local", psk())
            .with_section("remote", psk())
            .with_section("children", children);
        schema::connection(&Message::new().with_section(name, content), Policy::Modern).unwrap()
    }

    fn connection(name: &str, local: &[&str], remote: &[&str]) -> Connection {
        made(name, Message::new(), Message::new().with_section("net", child(local, remote)))
    }

    fn twin(child: &str, other: &str, in_part: bool) -> Twin {
        Twin { child: child.into(), others: vec![other.into()], in_part }
    }

    #[test]
    fn the_same_selectors_in_any_order_are_the_same() {
        let mut index = SelectorIndex::default();
        let nets = ["10.1.0.0/16", "10.3.0.0/16"];
        assert_eq!(index.load(&connection("a", &nets, &["10.2.0.0/16"])), []);
        let swapped = ["10.3.0.0/16", "10.1.0.0/16"];
        assert_eq!(index.load(&connection("b", &swapped, &["10.2.0.0/16"])), [twin("net", "a.net", false)]);
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

    #[test]
    fn one_selector_of_a_list_is_enough() {
        let mut index = SelectorIndex::default();
        let nets = ["10.2.0.0/16", "10.3.0.0/16"];
        assert_eq!(index.load(&connection("a", &["10.1.0.0/16"], &nets)), []);
        let found = index.load(&connection("b", &["10.1.0.0/16"], &["10.2.0.0/16"]));
        assert_eq!(found, [twin("net", "a.net", true)]);
        let text = "has selectors in common with a.net: outbound traffic can use only one of them";
        assert_eq!(found[0].to_string(), text);
        assert_eq!(index.load(&connection("c", &["10.9.0.0/16"], &nets)), [], "not on the other side");
    }

    #[test]
    fn children_of_one_connection_are_compared_too() {
        let nets = || child(&["10.1.0.0/16"], &["10.2.0.0/16"]);
        let children = Message::new().with_section("net", nets()).with_section("again", nets());
        let mut index = SelectorIndex::default();
        let site = made("site", Message::new(), children);
        assert_eq!(index.load(&site), [twin("again", "site.net", false)]);
        assert_eq!(index.load(&site), [twin("again", "site.net", false)], "loaded again");
    }

    /// `dynamic`, the default, is the outer address where there is only one.
    #[test]
    fn dynamic_selectors_of_single_addresses_are_compared() {
        let hosts = |local: &str, remote: &str| {
            Message::new().with_list("local_addrs", [local]).with_list("remote_addrs", [remote])
        };
        let children = || Message::new().with_section("net", Message::new());
        let mut index = SelectorIndex::default();
        let keys = || hosts("192.0.2.1", "192.0.2.2");
        assert_eq!(index.load(&made("a", keys(), children())), []);
        let same = [twin("net", "a.net", false)];
        assert_eq!(index.load(&made("b", keys(), children())), same);
        assert_eq!(index.load(&connection("b", &["192.0.2.1"], &["192.0.2.2"])), same, "written out");
        assert_eq!(index.load(&made("b", hosts("192.0.2.1", "192.0.2.3"), children())), []);
        assert_eq!(index.load(&made("b", hosts("192.0.2.1", "192.0.2.0/24"), children())), []);
        assert_eq!(index.load(&made("b", hosts("192.0.2.1", "peer.example.org"), children())), []);
        assert_eq!(index.load(&made("b", keys().with_list("vips", ["0.0.0.0"]), children())), []);
        assert_eq!(index.load(&made("b", keys().with_list("pools", ["rw"]), children())), []);
    }
}
