//! `testudo-shut` and `testudo-release`, commands of our own: the prefixes whose clear traffic is
//! held back although no loaded connection asks for it, and letting one of them go.
//!
//! ```text
//! testudo-shut { behind = <prefix: those that come after it in order> } => {
//!     clustered = <yes or no>     # yes: each node has its own, and is asked for its own
//!     more = <yes or no>          # yes: ask again, for those behind the last
//!     prefixes = {
//!         <prefix> = {
//!             reason = <earlier-run, connection-unloaded, connection-changed or pool-changed>
//!             name = <of the connection or the pool, if the reason names one>
//!             since = <time (RFC 3339)>
//!             from = <dropped, judged or passed: clear packets that come from there>
//!             protected-by = [ <some of what protects all of it nevertheless> ]
//!         }
//!     }
//! }
//!
//! testudo-release {
//!     prefix = <prefix>
//!     check = <yes: only says whether it can be done>
//!     by = <user, for the log>
//! } => {
//!     success = yes
//!     clustered = <yes or no>
//!     inside = <number of prefixes inside it that stay shut>
//! }
//! ```

use crate::Error;
use crate::answer::{answer_error, boolean, number, read_boolean, section, text};
use crate::message::Message;
use serde::Serialize;
use std::fmt;
use testudo_ipsec::selector::AddrRange;

/// The most prefixes of one answer: there may be some ten thousand, and a packet has its limit.
pub const MAX_PREFIXES_PER_PAGE: usize = 500;

/// Why a prefix is shut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", content = "name", rename_all = "kebab-case")]
pub enum Cause {
    /// It was when the daemon started.
    EarlierRun,
    /// The connection that protected it was unloaded.
    ConnectionUnloaded(String),
    /// The connection that protected it was loaded anew without it.
    ConnectionChanged(String),
    /// The pool whose addresses it is was changed or unloaded.
    PoolChanged(String),
}

/// What becomes of clear packets that come from a prefix. Those that go there are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClearFrom {
    /// They are dropped.
    Dropped,
    /// The policies are asked.
    Judged,
    /// They pass.
    Passed,
}

/// A prefix that is shut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShutPrefix {
    /// As ADDRESS/LENGTH.
    pub prefix: String,
    /// Why.
    #[serde(flatten)]
    pub cause: Cause,
    /// Since when (RFC 3339). Of one that an earlier run had shut: since this run found it.
    pub since: String,
    /// What becomes of clear packets that come from there.
    pub from: ClearFrom,
    /// What protects all of it nevertheless, for people: some of the connections, or a Child SA
    /// that is left. While there is anything it cannot be let go.
    pub protected_by: Vec<String>,
}

/// Some of the prefixes that are shut, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutPage {
    /// Each node of a cluster has its own.
    pub clustered: bool,
    /// There are others behind the last of these.
    pub more: bool,
    /// The prefixes.
    pub prefixes: Vec<ShutPrefix>,
}

/// `testudo-release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// All addresses of the prefix.
    pub prefix: AddrRange,
    /// Only says whether it can be done.
    pub check: bool,
    /// Who asks for it, as the client says.
    pub by: Option<String>,
}

/// What comes of [`Release`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Released {
    /// It is let go on the node that is asked, and not on the others.
    pub clustered: bool,
    /// Prefixes inside it that stay shut.
    pub inside: u64,
}

impl ShutPage {
    /// The answer to `testudo-shut`.
    pub fn to_message(&self) -> Message {
        let mut prefixes = Message::new();
        for prefix in &self.prefixes {
            prefixes.add_section(&prefix.prefix, prefix.to_message());
        }
        let page = Message::new().with("clustered", boolean(self.clustered)).with("more", boolean(self.more));
        page.with_section("prefixes", prefixes)
    }

    /// Reads the answer to `testudo-shut`.
    pub fn from_message(message: &Message) -> Result<Self, Error> {
        let prefixes = section(message, "prefixes")?.sections();
        Ok(Self {
            clustered: read_boolean(message, "clustered")?,
            more: read_boolean(message, "more")?,
            prefixes: prefixes
                .map(|(prefix, shut)| ShutPrefix::from_message(prefix, shut))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl ShutPrefix {
    fn to_message(&self) -> Message {
        let mut message = Message::new().with("reason", self.cause.reason());
        if let Some(name) = self.cause.name() {
            message.add("name", name);
        }
        let message = message.with("since", self.since.as_str()).with("from", self.from.name());
        message.with_list("protected-by", self.protected_by.iter().cloned())
    }

    fn from_message(prefix: &str, message: &Message) -> Result<Self, Error> {
        Ok(Self {
            prefix: prefix.to_owned(),
            cause: Cause::read(message)?,
            since: text(message, "since")?.to_owned(),
            from: ClearFrom::read(message)?,
            protected_by: message.texts("protected-by").map(str::to_owned).collect(),
        })
    }
}

impl Released {
    /// The answer to `testudo-release`, if it succeeds.
    pub fn to_message(self) -> Message {
        let mut message = Message::new().with("success", "yes").with("clustered", boolean(self.clustered));
        message.add_text("inside", self.inside);
        message
    }

    /// Reads the answer to `testudo-release`.
    pub fn from_message(message: &Message) -> Result<Self, Error> {
        Ok(Self { clustered: read_boolean(message, "clustered")?, inside: number(message, "inside")? })
    }
}

impl Cause {
    fn reason(&self) -> &'static str {
        match self {
            Self::EarlierRun => "earlier-run",
            Self::ConnectionUnloaded(_) => "connection-unloaded",
            Self::ConnectionChanged(_) => "connection-changed",
            Self::PoolChanged(_) => "pool-changed",
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::EarlierRun => None,
            Self::ConnectionUnloaded(name) | Self::ConnectionChanged(name) | Self::PoolChanged(name) => {
                Some(name)
            }
        }
    }

    fn read(message: &Message) -> Result<Self, Error> {
        let name = || text(message, "name").map(str::to_owned);
        Ok(match text(message, "reason")? {
            "earlier-run" => Self::EarlierRun,
            "connection-unloaded" => Self::ConnectionUnloaded(name()?),
            "connection-changed" => Self::ConnectionChanged(name()?),
            "pool-changed" => Self::PoolChanged(name()?),
            other => {
                let expected = "earlier-run, connection-unloaded, connection-changed or pool-changed";
                return Err(answer_error("reason", other, expected));
            }
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarlierRun => f.write_str("an earlier testudod has left it"),
            Self::ConnectionUnloaded(name) => write!(f, "connection {name} was unloaded"),
            Self::ConnectionChanged(name) => write!(f, "connection {name} protects it no more"),
            Self::PoolChanged(name) => write!(f, "pool {name} was changed or unloaded"),
        }
    }
}

impl ClearFrom {
    const ALL: [Self; 3] = [Self::Dropped, Self::Judged, Self::Passed];

    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Judged => "judged",
            Self::Passed => "passed",
        }
    }

    fn read(message: &Message) -> Result<Self, Error> {
        let found = text(message, "from")?;
        let known = Self::ALL.into_iter().find(|from| from.name() == found);
        known.ok_or_else(|| answer_error("from", found, "dropped, judged or passed"))
    }
}
