//! Reports to the host: events, log lines, counters.

use crate::config::Identity;
use crate::endpoint::{Contact, Discard, Stats};
use crate::environment::Environment;
use crate::environment::exchanges::{Counted, ExchangeCounter};
use crate::environment::log_limit::{AnswerLimit, LogLimit};
use crate::exchange::describe;
use crate::exchange::receive::Datagram;
use crate::message::{Encrypted, ExchangeType, Header, Message, Payload};
use crate::output::{Event, IkeSaId, LogLevel, Output, Reason, Time};
use crate::sa::{Anchor, IkeSa};
use crate::suite::{Opened, SkOpener};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A tunnel does not come up, or does not stay up.
pub(crate) const FAILURE: LogLevel = LogLevel::Warning;
/// An event that an operator must see.
pub(crate) const IMPORTANT: LogLevel = LogLevel::Notice;
/// The ordinary course.
pub(crate) const ORDINARY: LogLevel = LogLevel::Info;
/// Details for finding a problem.
pub(crate) const DETAIL: LogLevel = LogLevel::Detail;

/// The direction of a message.
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

/// The effects of sessions for the host, in order, and the counters.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) stats: Stats,
    pub(crate) log_limit: LogLimit,
    pub(crate) answer_limit: AnswerLimit,
    /// See [`ReplicationMut::take_changed`](crate::endpoint::ReplicationMut::take_changed).
    pub(crate) changed: BTreeSet<IkeSaId>,
    /// Peers' new IKE SAs that other nodes must know of.
    pub(crate) contacts: Vec<Contact>,
    /// The CA that has vouched for each identity last.
    vouchers: BTreeMap<Identity, Anchor>,
}

/// Identities whose CAs are remembered. A CA that serves more peers is itself the one to watch.
const MAX_VOUCHERS: usize = 1 << 16;

/// The level of a log line about an end. See [`Environment::is_unexpected`].
pub(crate) fn level_of_end(reason: &Reason, is_unexpected: bool) -> LogLevel {
    if is_unexpected || reason.is_failure() { FAILURE } else { ORDINARY }
}

/// The level of a log line about a refused datagram. What scanners send to every address is
/// ordinary.
fn level_of_discard(reason: Discard) -> LogLevel {
    match reason {
        Discard::NoProposal
        | Discard::HalfOpenLimit
        | Discard::SourceLimit
        | Discard::HalfOpenEvicted
        | Discard::Overload
        | Discard::Computation => FAILURE,
        _ => ORDINARY,
    }
}

impl Effects {
    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Logs a line about an IKE SA.
    pub(crate) fn log(&mut self, sa: &IkeSa, level: LogLevel, message: impl Into<String>) {
        let connection = (!sa.connection.is_empty()).then(|| sa.connection.clone());
        self.event(Event::Log { ike: Some(sa.id), connection, level, message: message.into() });
    }

    /// Logs a line about a connection.
    pub(crate) fn log_connection(&mut self, connection: &str, level: LogLevel, message: impl Into<String>) {
        let connection = Some(connection.to_owned());
        self.event(Event::Log { ike: None, connection, level, message: message.into() });
    }

    /// A peer is authentic. Tells the host if another CA has vouched for its identity before.
    pub(crate) fn note_voucher(&mut self, ike: IkeSaId, identity: &Identity, anchor: Anchor, line: &str) {
        let Some(known) = self.vouchers.get_mut(identity) else {
            if self.vouchers.len() < MAX_VOUCHERS {
                self.vouchers.insert(identity.clone(), anchor);
            }
            return;
        };
        if std::mem::replace(known, anchor) != anchor {
            let (identity, line) = (identity.to_string(), line.to_owned());
            self.event(Event::OtherVoucher { ike, identity, line });
        }
    }

    /// Counts a refused datagram, and logs it at most once a second for each reason.
    pub(crate) fn discard(&mut self, now: Time, reason: Discard, message: impl FnOnce() -> String) {
        self.stats.discard(reason);
        if let Some(left_out) = self.log_limit.admit(now, reason) {
            self.log_limited(level_of_discard(reason), message(), left_out);
        }
    }

    /// [`Self::discard`] for a peer that a connection names: an operator must see it. Each line
    /// has a rate of its own, so that strangers do not suppress it.
    pub(crate) fn discard_named(&mut self, now: Time, reason: Discard, line: String) {
        self.stats.discard(reason);
        if let Some(left_out) = self.log_limit.admit_refusal(now, &line) {
            self.log_limited(FAILURE, line, left_out);
        }
    }

    fn log_limited(&mut self, level: LogLevel, line: String, left_out: u64) {
        self.event(Event::Log { ike: None, connection: None, level, message: limited(line, left_out) });
    }

    /// Counts a refused initiator, and logs the reason, each at most once a second.
    pub(crate) fn discard_initiator(&mut self, now: Time, sa: &IkeSa, from: &str, why: &str) {
        self.stats.discard(Discard::Refused);
        if let Some(left_out) = self.log_limit.admit_refusal(now, why) {
            self.log(sa, FAILURE, limited(format!("refused {from}: {why}"), left_out));
        }
    }

    /// Counts an event of an IKE SA.
    pub(crate) fn count(&mut self, sa: &IkeSa, counter: ExchangeCounter) {
        // Before IKE_AUTH is over a responder has only guessed the connection.
        let known = sa.phase.half_open().is_none() && !sa.connection.is_empty();
        self.stats.exchanges.count(known.then_some(&sa.connection), counter);
    }

    /// Counts a message of an IKE SA that was made or understood.
    pub(crate) fn count_message(&mut self, sa: &IkeSa, exchange: ExchangeType, message: Counted) {
        if let Some(counter) = ExchangeCounter::of(exchange, message) {
            self.count(sa, counter);
        }
    }

    /// Verifies and decrypts a message. A message that fails is treated as if it had not arrived.
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
    /// Logs the reason for a choice. The line is made only if it is logged, because that takes
    /// time.
    pub(crate) fn explain(&mut self, sa: &IkeSa, line: impl FnOnce() -> String) {
        if self.config.details {
            self.effects.log(sa, DETAIL, line());
        }
    }

    /// Logs the contents of a message, without secrets.
    pub(crate) fn show(&mut self, sa: &IkeSa, way: Way, header: &Header, payloads: &[Payload]) {
        if self.config.details {
            let kind = if header.response { "response" } else { "request" };
            let (exchange, id) = (header.exchange, header.message_id);
            let held = describe::payloads(payloads);
            self.effects.log(sa, DETAIL, format!("{way} {exchange} {kind} {id} [{held}]"));
        }
    }

    /// Logs the contents of a message in clear.
    pub(crate) fn show_clear(&mut self, sa: &IkeSa, way: Way, bytes: &[u8]) {
        if self.config.details
            && let Ok(message) = Message::parse(bytes)
        {
            self.show(sa, way, &message.header, message.payloads.iter().as_slice());
        }
    }
}

/// A line that strangers can cause, with the number of those left out before it.
fn limited(line: String, left_out: u64) -> String {
    if left_out == 0 { line } else { format!("{line} (and {left_out} more like it)") }
}
