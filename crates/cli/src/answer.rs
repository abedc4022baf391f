//! The parts of the daemon's answers that have no type of their own.

use testudo_vici::Error;
use testudo_vici::message::Message;

pub(crate) fn section<'a>(message: &'a Message, key: &str) -> Result<&'a Message, Error> {
    message.section(key).ok_or_else(|| wrong(key, "missing", "a section"))
}

pub(crate) fn text(message: &Message, key: &str) -> Result<String, Error> {
    message.text(key).map(str::to_owned).ok_or_else(|| wrong(key, "missing", "text"))
}

pub(crate) fn number(message: &Message, key: &str) -> Result<u64, Error> {
    optional(message, key)?.ok_or_else(|| wrong(key, "missing", "a number"))
}

pub(crate) fn optional(message: &Message, key: &str) -> Result<Option<u64>, Error> {
    let parse = |text: &str| text.parse().map_err(|_| wrong(key, text, "a number"));
    message.text(key).map(parse).transpose()
}

pub(crate) fn wrong(key: &str, found: &str, expected: &'static str) -> Error {
    Error::Answer { key: key.to_owned(), found: found.to_owned(), expected }
}
