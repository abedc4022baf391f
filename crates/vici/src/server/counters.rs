//! `get-counters` and `reset-counters`: messages by exchange, under charon's names.

use super::Answer;
use super::commands::{done, failed, fields};
use crate::control::Control;
use crate::message::Message;
use crate::schema::{Refusal, value};
use crate::session::Request;
use testudo_ike::endpoint::ExchangeCounters;

/// The counters that a command is about.
enum Whose<'a> {
    /// Those of the whole daemon.
    Total,
    /// Those of every connection that has counters.
    EveryConnection,
    /// Those of one connection.
    Connection(&'a str),
}

impl<'a> Whose<'a> {
    /// As in charon, `all` has precedence over `name`, and an empty name counts as missing.
    fn take(request: &'a Request) -> Result<Self, Refusal> {
        let mut fields = fields(request)?;
        let all = fields.parsed("all", value::boolean)?.unwrap_or(false);
        let name = fields.text("name")?.filter(|name| !name.is_empty());
        fields.finish()?;
        Ok(match name {
            _ if all => Self::EveryConnection,
            Some(name) => Self::Connection(name),
            None => Self::Total,
        })
    }
}

pub(super) fn get(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let exchanges = control.exchanges();
    let mut counters = Message::new();
    match Whose::take(request)? {
        // In charon the section of the whole daemon has an empty name.
        Whose::Total => counters.add_section("", section(exchanges.total())),
        Whose::EveryConnection => {
            for (name, of) in exchanges.connections() {
                counters.add_section(name, section(of));
            }
        }
        Whose::Connection(name) => match exchanges.of(name) {
            Some(of) => counters.add_section(name, section(of)),
            None => return Ok(Answer::Now(failed("no counters found for this connection".to_owned()))),
        },
    }
    Ok(Answer::Now(Message::new().with_section("counters", counters).with("success", "yes")))
}

pub(super) fn reset(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let exchanges = control.exchanges_mut();
    match Whose::take(request)? {
        Whose::Total => exchanges.reset_total(),
        Whose::EveryConnection => exchanges.reset_connections(),
        Whose::Connection(name) => exchanges.reset_connection(name),
    }
    Ok(Answer::Now(done(Ok(()))))
}

fn section(counters: &ExchangeCounters) -> Message {
    let mut section = Message::new();
    for (name, value) in counters.iter() {
        section.add_text(name, value);
    }
    section
}
