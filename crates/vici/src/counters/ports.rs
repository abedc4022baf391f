//! The state of a port: its interface, its link, its filter.
//!
//! ```text
//! status = {
//!     state = <up, link-down, missing or waiting>
//!     seconds = <n: time in this state>
//!     why = <waiting: why the interface cannot be used>
//!     ifindex = <number of the interface>  mtu = <octets>  speed = <Mb/s>
//!     queues = <n: queues that workers receive from>
//!     routes = <n: routes of the main table through the port>
//!     filter = <native or generic>
//! }
//! ```
//!
//! Keys whose value is unknown are left out: those of the interface while it is missing, `speed` if
//! the driver does not report it, `filter` while the filter is not attached.

use crate::Error;
use crate::answer::{add_optional, number, optional, text};
use crate::message::Message;
use serde::Serialize;

/// The state of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortStatus {
    /// `up`; `link-down`: its interface has no carrier, or is down; `missing`: there is no
    /// interface of its name; `waiting`: there is one, but it cannot be used.
    pub state: String,
    /// Seconds in this state.
    pub seconds: u64,
    /// Why its interface cannot be used.
    pub why: Option<String>,
    /// Number of its interface in the kernel.
    pub ifindex: Option<u64>,
    /// Largest IP packet of its interface, in octets.
    pub mtu: Option<u64>,
    /// Speed of its link, in Mb/s.
    pub speed: Option<u64>,
    /// Queues that workers receive from.
    pub queues: u64,
    /// Routes of the main table through the port.
    pub routes: u64,
    /// How the filter is attached: `native` or `generic`. `None` if it is not attached.
    pub filter: Option<String>,
}

impl PortStatus {
    pub(super) fn to_message(&self) -> Message {
        let mut message = Message::new().with("state", self.state.as_str());
        message.add_text("seconds", self.seconds);
        let numbers = [("ifindex", self.ifindex), ("mtu", self.mtu), ("speed", self.speed)];
        for (key, value) in numbers {
            add_optional(&mut message, key, value);
        }
        message.add_text("queues", self.queues);
        message.add_text("routes", self.routes);
        for (key, value) in [("why", &self.why), ("filter", &self.filter)] {
            value.iter().for_each(|value| message.add(key, value.as_str()));
        }
        message
    }

    pub(super) fn from_message(message: &Message) -> Result<Self, Error> {
        let text_of = |key: &str| message.text(key).map(str::to_owned);
        Ok(Self {
            state: text(message, "state")?.to_owned(),
            seconds: number(message, "seconds")?,
            why: text_of("why"),
            ifindex: optional(message, "ifindex")?,
            mtu: optional(message, "mtu")?,
            speed: optional(message, "speed")?,
            queues: number(message, "queues")?,
            routes: number(message, "routes")?,
            filter: text_of("filter"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_can_be_read_back() {
        let up = PortStatus {
            state: "up".to_owned(),
            seconds: 604,
            why: None,
            ifindex: Some(7),
            mtu: Some(1500),
            speed: Some(10_000),
            queues: 2,
            routes: 3,
            filter: Some("native".to_owned()),
        };
        let missing = PortStatus { state: "missing".to_owned(), seconds: 12, ..PortStatus::default() };
        let why = Some("one queue".to_owned());
        let waiting =
            PortStatus { state: "waiting".to_owned(), why, ifindex: Some(8), ..PortStatus::default() };
        for status in [up, missing, waiting] {
            assert_eq!(PortStatus::from_message(&status.to_message()).unwrap(), status);
        }
        let bad = Message::new().with("state", "up").with("seconds", "1").with("mtu", "large");
        let error = PortStatus::from_message(&bad).unwrap_err().to_string();
        assert!(error.contains("mtu") && error.contains("large"), "{error}");
    }
}
