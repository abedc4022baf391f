//! The parts of the daemon's answers that have no type of their own.

use testudo_vici::Error;
use testudo_vici::answer;
use testudo_vici::message::Message;

pub(crate) use answer::{answer_error, number, optional, section};

pub(crate) fn text(message: &Message, key: &str) -> Result<String, Error> {
    answer::text(message, key).map(str::to_owned)
}
