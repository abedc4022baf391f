//! `testudo-children`, a command that strongSwan does not have: every configured child, and whether
//! it is up. The answer is a series of `testudo-child` events: one for each connection, or several
//! if its children do not fit into one.
//!
//! ```text
//! testudo-child = {
//!     <connection> = {
//!         <child> = {
//!             state = <up, establishing, waiting, down, trapped, passive, pass or drop>
//!             expected = <yes or no>      # it should be up without a request
//!             since = <seconds since it came up or went down, if known>
//!             error = <the last failure, if any>
//!             error-ago = <seconds since then>
//!             next-try = <seconds until the next attempt, if one is scheduled>
//! silent = <seconds since the peer's last sign of life, if the child is up on this node> sas =
//! <its Child SAs that are up> node = <cluster: the node that has it or should bring it up> } } }
//! ```

use crate::Error;
use crate::answer::{add_optional, answer_error, boolean, number, optional, read_boolean, text};
use crate::message::Message;
use crate::render::{sentence, split_events};
use serde::Serialize;
pub use testudo_ike::endpoint::ChildState;

/// Longest error text sent, in octets.
const MAX_REASON_OCTETS: usize = 500;

/// A configured child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChildReport {
    /// `connections.<name>`.
    pub connection: String,
    /// `children.<name>`.
    pub name: String,
    /// Its state.
    pub state: ChildState,
    /// It should be up without a request.
    pub expected: bool,
    /// Seconds since it came up or went down.
    pub since: Option<u64>,
    /// The last failure.
    pub last_error: Option<ChildError>,
    /// Seconds until the next attempt.
    pub next_try: Option<u64>,
    /// Seconds since the peer's last sign of life.
    pub silent: Option<u64>,
    /// Its Child SAs that are up.
    pub sas: u64,
    /// In a cluster, the node that has it or should bring it up.
    pub node: Option<u64>,
}

/// A failure of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChildError {
    /// The reason.
    pub reason: String,
    /// Seconds since then.
    pub ago: u64,
}

impl ChildReport {
    /// True if it should be up and is not.
    pub fn is_missed(&self) -> bool {
        self.expected && self.state != ChildState::Up
    }

    /// The events for one connection; no event if it has no children.
    pub fn events(connection: &str, children: &[Self]) -> Vec<Message> {
        if children.is_empty() {
            return Vec::new();
        }
        let children = children.iter().map(|child| (child.name.clone(), child.to_message()));
        split_events(children, |children| Message::new().with_section(connection, children))
    }

    /// Reads all events.
    pub fn read_all(events: &[Message]) -> Result<Vec<Self>, Error> {
        let connections = events.iter().flat_map(Message::sections);
        let children = connections.flat_map(|(connection, content)| {
            content.sections().map(move |(name, child)| Self::from_message(connection, name, child))
        });
        children.collect()
    }

    fn to_message(&self) -> Message {
        let mut message = Message::new().with("state", self.state.as_str());
        message.add("expected", boolean(self.expected));
        if let Some(error) = &self.last_error {
            let mut reason = sentence(&error.reason);
            reason.truncate(MAX_REASON_OCTETS);
            message.add("error", reason);
            message.add_text("error-ago", error.ago);
        }
        add_optional(&mut message, "since", self.since);
        add_optional(&mut message, "next-try", self.next_try);
        add_optional(&mut message, "silent", self.silent);
        message.add_text("sas", self.sas);
        add_optional(&mut message, "node", self.node);
        message
    }

    fn from_message(connection: &str, name: &str, message: &Message) -> Result<Self, Error> {
        let found = text(message, "state")?;
        let state = ChildState::ALL.into_iter().find(|state| state.as_str() == found);
        let last_error = match message.text("error") {
            Some(reason) => {
                Some(ChildError { reason: reason.to_owned(), ago: number(message, "error-ago")? })
            }
            None => None,
        };
        Ok(Self {
            connection: connection.to_owned(),
            name: name.to_owned(),
            state: state.ok_or_else(|| answer_error("state", found, "the state of a child"))?,
            expected: read_boolean(message, "expected")?,
            since: optional(message, "since")?,
            last_error,
            next_try: optional(message, "next-try")?,
            silent: optional(message, "silent")?,
            sas: number(message, "sas")?,
            node: optional(message, "node")?,
        })
    }
}
