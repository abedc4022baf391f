//! Message elements: sections, key/values, lists and their items.

use super::reader::Reader;
use super::{MAX_DEPTH, MAX_PACKET};
use crate::Error;
use crate::message::{Blob, Element, Message};

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

/// Appends the encoding of `message`.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), Error> {
    encode_at(message, out, 0)
}

fn encode_at(message: &Message, out: &mut Vec<u8>, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    for element in message.elements() {
        match element {
            Element::Section(name, content) => {
                out.push(SECTION_START);
                put_name(name, out)?;
                encode_at(content, out, depth + 1)?;
                out.push(SECTION_END);
            }
            Element::Value(name, value) => {
                out.push(KEY_VALUE);
                put_name(name, out)?;
                put_value(value, out)?;
            }
            Element::List(name, items) => {
                out.push(LIST_START);
                put_name(name, out)?;
                for item in items {
                    out.push(LIST_ITEM);
                    put_value(item, out)?;
                }
                out.push(LIST_END);
            }
        }
    }
    if out.len() > MAX_PACKET + 4 {
        return Err(Error::TooLong { what: "message", found: out.len(), most: MAX_PACKET });
    }
    Ok(())
}

/// Length of the encoding of `message`.
pub fn encoded_len(message: &Message) -> usize {
    let len = |element: &Element| match element {
        Element::Section(name, content) => 3 + name.len() + encoded_len(content),
        Element::Value(name, value) => 4 + name.len() + value.bytes().len(),
        Element::List(name, items) => {
            3 + name.len() + items.iter().map(|item| 3 + item.bytes().len()).sum::<usize>()
        }
    };
    message.elements().iter().map(len).sum()
}

pub(super) fn put_name(name: &str, out: &mut Vec<u8>) -> Result<(), Error> {
    let too_long = |_| Error::TooLong { what: "name", found: name.len(), most: u8::MAX.into() };
    out.push(u8::try_from(name.len()).map_err(too_long)?);
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

fn put_value(value: &Blob, out: &mut Vec<u8>) -> Result<(), Error> {
    let bytes = value.bytes();
    let too_long = |_| Error::TooLong { what: "value", found: bytes.len(), most: u16::MAX.into() };
    out.extend_from_slice(&u16::try_from(bytes.len()).map_err(too_long)?.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// Parses a whole message.
pub fn parse(bytes: &[u8]) -> Result<Message, Error> {
    let mut reader = Reader::new(bytes);
    let mut current = Message::new();
    let mut outer: Vec<(String, Message)> = Vec::new();
    while let Some(kind) = reader.u8() {
        match kind {
            SECTION_START => {
                if outer.len() == MAX_DEPTH {
                    return Err(Error::TooDeep);
                }
                let name = reader.name("the name of a section")?.to_owned();
                outer.push((name, std::mem::take(&mut current)));
            }
            SECTION_END => {
                let Some((name, parent)) = outer.pop() else {
                    return Err(unexpected(kind, "outside of any section", "1, 3 or 4"));
                };
                let content = std::mem::replace(&mut current, parent);
                current.push(Element::Section(name, content));
            }
            KEY_VALUE => {
                let name = reader.name("the name of a value")?;
                let value = reader.value("a value")?;
                current.push(Element::Value(name.to_owned(), value.into()));
            }
            LIST_START => {
                let name = reader.name("the name of a list")?.to_owned();
                current.push(Element::List(name, parse_items(&mut reader)?));
            }
            _ => return Err(unexpected(kind, "in a section", "1 to 4")),
        }
    }
    if outer.is_empty() { Ok(current) } else { Err(Error::Truncated { field: "a section" }) }
}

fn parse_items(reader: &mut Reader<'_>) -> Result<Vec<Blob>, Error> {
    let mut items = Vec::new();
    loop {
        match reader.u8() {
            Some(LIST_ITEM) => items.push(reader.value("a list item")?.into()),
            Some(LIST_END) => return Ok(items),
            Some(kind) => return Err(unexpected(kind, "in a list", "5 or 6")),
            None => return Err(Error::Truncated { field: "a list" }),
        }
    }
}

fn unexpected(found: u8, place: &'static str, expected: &'static str) -> Error {
    Error::ElementType { found, place, expected }
}
