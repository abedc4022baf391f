//! Messages as lines of text, which a fuzzer mutates more successfully than lengths and type
//! octets.
//!
//! `>name` begins a section and `<` ends it, `name=value` is a value, `name:one,two` a list. Other
//! lines are ignored.

use testudo_vici::message::{Element, Message};

/// The message of these lines. Open sections end at the end.
pub(crate) fn message(text: &[u8]) -> Message {
    let mut current = Message::new();
    let mut outer: Vec<(String, Message)> = Vec::new();
    let close = |current: &mut Message, outer: &mut Vec<(String, Message)>| {
        if let Some((name, parent)) = outer.pop() {
            let content = std::mem::replace(current, parent);
            current.push(Element::Section(name, content));
        }
    };
    for line in text.split(|octet| *octet == b'\n') {
        match line {
            [b'>', name @ ..] => outer.push((named(name), std::mem::take(&mut current))),
            [b'<', ..] => close(&mut current, &mut outer),
            _ => {
                let Some(at) = line.iter().position(|octet| matches!(octet, b'=' | b':')) else { continue };
                let (name, value) = (named(&line[..at]), &line[at + 1..]);
                if line[at] == b'=' {
                    current.push(Element::Value(name, value.into()));
                } else {
                    let items = value.split(|octet| *octet == b',').filter(|item| !item.is_empty());
                    current.push(Element::List(name, items.map(Into::into).collect()));
                }
            }
        }
    }
    while !outer.is_empty() {
        close(&mut current, &mut outer);
    }
    current
}

fn named(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
