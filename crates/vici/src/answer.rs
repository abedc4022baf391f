//! The parts that the answers to Testudo's own commands are made of, and the errors of their
//! readers.

use crate::Error;
use crate::message::Message;
use serde::Serializer;

/// Counters by name, in the order in which they are shown.
pub type Named = Vec<(String, u64)>;

pub(crate) fn as_map<S: Serializer>(counters: &Named, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counters.iter().map(|(name, value)| (name, value)))
}

pub(crate) fn named(counters: &Named) -> Message {
    let mut message = Message::new();
    for (name, value) in counters {
        message.add_text(name, value);
    }
    message
}

pub(crate) fn read_named(message: &Message, name: &str) -> Result<Named, Error> {
    let section = section(message, name)?;
    section
        .elements()
        .iter()
        .map(|element| Ok((element.name().to_owned(), number(section, element.name())?)))
        .collect()
}

/// The section of that name.
pub fn section<'a>(message: &'a Message, name: &str) -> Result<&'a Message, Error> {
    message.section(name).ok_or_else(|| answer_error(name, "missing", "a section"))
}

/// The text of that name.
pub fn text<'a>(message: &'a Message, name: &str) -> Result<&'a str, Error> {
    message.text(name).ok_or_else(|| answer_error(name, "missing", "text"))
}

/// The number of that name.
pub fn number(message: &Message, name: &str) -> Result<u64, Error> {
    optional(message, name)?.ok_or_else(|| answer_error(name, "missing", "a number"))
}

/// Adds a number unless it is unknown.
pub(crate) fn add_optional(message: &mut Message, key: &str, value: Option<u64>) {
    if let Some(value) = value {
        message.add_text(key, value);
    }
}

/// The number of that name, which is left out when it is unknown.
pub fn optional(message: &Message, key: &str) -> Result<Option<u64>, Error> {
    let parse = |text: &str| text.parse().map_err(|_| answer_error(key, text, "a number"));
    message.text(key).map(parse).transpose()
}

pub(crate) fn boolean(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

pub(crate) fn read_boolean(message: &Message, key: &str) -> Result<bool, Error> {
    match text(message, key)? {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(answer_error(key, other, "yes or no")),
    }
}

/// What an answer has under a name is not what is expected there.
pub fn answer_error(key: &str, found: &str, expected: &'static str) -> Error {
    Error::Answer { key: key.to_owned(), found: found.to_owned(), expected }
}
