//! What the endpoint tells its host about: events, log lines, counters.

use crate::endpoint::{Contact, Discard, Stats};
use crate::environment::Environment;
use crate::environment::exchanges::{Counted, ExchangeCounter};
use crate::environment::log_limit::{AnswerLimit, LogLimit};
use crate::exchange::describe;
use crate::exchange::receive::Datagram;
use crate::message::{Encrypted, ExchangeType, Header, Message, Payload};
use crate::output::{Event, IkeSaId, LogLevel, Output, Reason, Time};
use crate::sa::IkeSa;
use crate::suite::{Opened, SkOpener};
use std::collections::{BTreeSet, VecDeque};

/// A tunnel that does not come up, or does not stay.
pub(crate) const FAILURE: LogLevel = LogLevel::Warning;
/// What an operator must see.
pub(crate) const IMPORTANT: LogLevel = LogLevel::Notice;
/// The ordinary course.
pub(crate) const ORDINARY: LogLevel = LogLevel::Info;
/// For who looks into a problem.
pub(crate) const DETAIL: LogLevel = LogLevel::Detail;

/// Which way a message goes.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Sent,
    Received,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sent => "sending",
            Self::Received => "received",
        })
    }
}

/// What sessions leave for the host, in order, and what is counted of them.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) stats: Stats,
    pub(crate) log_limit: LogLimit,
    pub(crate) answer_limit: AnswerLimit,
    /// See [`ReplicationMut::take_changed`](crate::endpoint::ReplicationMut::take_changed).
    pub(crate) changed: BTreeSet<IkeSaId>,
    /// What others are to be told of new ones.
    pub(crate) contacts: Vec<Contact>,
}

/// The level of a line about an end.
pub(crate) fn level_of_end(reason: &Reason) -> LogLevel {
    if reason.is_failure() { FAILURE } else { ORDINARY }
}

impl Effects {
    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// A line about an IKE SA.
    pub(crate) fn log(&mut self, sa: &IkeSa, level: LogLevel, message: impl Into<String>) {
        let connection = (!sa.connection.is_empty()).then(|| sa.connection.clone());
        self.event(Event::Log { ike: Some(sa.id), connection, level, message: message.into() });
    }

    /// A line about a connection.
    pub(crate) fn log_connection(&mut self, connection: &str, level: LogLevel, message: impl Into<String>) {
        let connection = Some(connection.to_owned());
        self.event(Event::Log { ike: None, connection, level, message: message.into() });
    }

    /// Counts what is refused, and says so at most once a second for each reason.
    pub(crate) fn discard(&mut self, now: Time, reason: Discard, message: impl FnOnce() -> String) {
        self.stats.discard(reason);
        if let Some(left_out) = self.log_limit.admit(now, reason) {
            let line = limited(message(), left_out);
            self.event(Event::Log { ike: None, connection: None, level: ORDINARY, message: line });
        }
    }

    /// Counts an initiator that is refused, and says why, at most once a second for each reason
    /// there is.
    pub(crate) fn discard_initiator(&mut self, now: Time, sa: &IkeSa, from: &str, why: &str) {
        self.stats.discard(Discard::Refused);
        if let Some(left_out) = self.log_limit.admit_refusal(now, why) {
            self.log(sa, FAILURE, limited(format!("refused {from}: {why}"), left_out));
        }
    }

    /// Something that is counted happened to an IKE SA.
    pub(crate) fn count(&mut self, sa: &IkeSa, counter: ExchangeCounter) {
        // Before IKE_AUTH is over a responder has only guessed the connection.
        let known = sa.phase.half_open().is_none() && !sa.connection.is_empty();
        self.stats.exchanges.count(known.then_some(&sa.connection), counter);
    }

    /// A message of an IKE SA was made or understood.
    pub(crate) fn count_message(&mut self, sa: &IkeSa, exchange: ExchangeType, message: Counted) {
        if let Some(counter) = ExchangeCounter::of(exchange, message) {
            self.count(sa, counter);
        }
    }

    /// Checks and decrypts; what fails is as if it had never come.
    pub(crate) fn unseal(
        &mut self,
        datagram: Datagram<'_>,
        opener: &SkOpener,
        header: Header,
        encrypted: &Encrypted<'_>,
    ) -> Option<Opened> {
        match opener.open(encrypted) {
            Ok(opened) => Some(opened),
            Err(error) => {
                self.discard(datagram.now, Discard::Integrity, || {
                    format!("ignored {} from {}: {error}", header.exchange, datagram.path.remote)
                });
                None
            }
        }
    }
}

impl Environment {
    /// Why something was chosen: a line that takes time to make, and is made for those who read it.
    pub(crate) fn explain(&mut self, sa: &IkeSa, line: impl FnOnce() -> String) {
        if self.config.details {
            self.effects.log(sa, DETAIL, line());
        }
    }

    /// What a message holds, for the log: nothing secret.
    pub(crate) fn show(&mut self, sa: &IkeSa, way: Way, header: &Header, payloads: &[Payload]) {
        if self.config.details {
            let kind = if header.response { "response" } else { "request" };
            let (exchange, id) = (header.exchange, header.message_id);
            let held = describe::payloads(payloads);
            self.effects.log(sa, DETAIL, format!("{way} {exchange} {kind} {id} [{held}]"));
        }
    }

    /// The same of a message in clear.
    pub(crate) fn show_clear(&mut self, sa: &IkeSa, way: Way, bytes: &[u8]) {
        if self.config.details
            && let Ok(message) = Message::parse(bytes)
        {
            self.show(sa, way, &message.header, message.payloads.iter().as_slice());
        }
    }
}

/// A line that strangers can cause; what went unsaid is mentioned with the next.
fn limited(line: String, left_out: u64) -> String {
    if left_out == 0 { line } else { format!("{line} (and {left_out} more like it)") }
}
