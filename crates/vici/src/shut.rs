//! `testudo-shut` and `testudo-release`, commands that strongSwan does not have: the shut prefixes,
//! whose clear traffic is dropped although no loaded connection protects them, and the release of
//! one of them.
//!
//! ```text
//! testudo-shut { behind = <prefix: those after it in order> } => {
//!     clustered = <yes or no>     # yes: each node has its own, and is asked for its own
//!     more = <yes or no>          # yes: ask again, for those after the last
//!     prefixes = {
//!         <prefix> = {
//!             own-side = <yes: not what goes to it is dropped, but what comes in clear to this
//!                         host's own addresses in it; otherwise it is left out>
//!             reason = <earlier-run, connection-unloaded, connection-changed or pool-changed>
//!             name = <of the connection or the pool, if the reason has one>
//!             since = <time (RFC 3339)>
//!             from = <dropped, judged or passed: clear packets from the prefix>
//!             protected-by = [ <some of the connections and SAs that still protect all of it> ]
//!         }
//!     }
//! }
//!
//! testudo-release {
//!     prefix = <prefix>
//!     check = <yes: only says whether it is possible>
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

/// The most prefixes in one answer: there may be ten thousand, and the length of a packet is
/// limited.
pub const MAX_PREFIXES_PER_PAGE: usize = 500;

/// Why a prefix is shut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", content = "name", rename_all = "kebab-case")]
pub enum Cause {
    /// It was shut when the daemon started.
    EarlierRun,
    /// The connection that protected it was unloaded.
    ConnectionUnloaded(String),
    /// The connection that protected it was loaded again without it.
    ConnectionChanged(String),
    /// The pool of its addresses was changed or unloaded.
    PoolChanged(String),
}

/// What happens to clear packets from a prefix. Those to it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClearFrom {
    /// They are dropped.
    Dropped,
    /// The policies decide.
    Judged,
    /// They pass.
    Passed,
}

/// A prefix that is shut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShutPrefix {
    /// As ADDRESS/LENGTH.
    pub prefix: String,
    /// False: packets to it are dropped. True: a tunnel for everything had it on our side, and what
    /// comes in clear to this host's own addresses in it is dropped.
    pub own_side: bool,
    /// Why it is shut.
    #[serde(flatten)]
    pub cause: Cause,
    /// Since when it is shut (RFC 3339). If an earlier run had shut it: since this run found it.
    pub since: String,
    /// What happens to clear packets from it.
    pub from: ClearFrom,
    /// Connections, or a remaining Child SA, that still protect all of it, for operators; not
    /// necessarily all of them. A prefix with such protection cannot be released.
    pub protected_by: Vec<String>,
}

/// A page of the shut prefixes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutPage {
    /// Each node of a cluster has its own.
    pub clustered: bool,
    /// There are more after the last of these.
    pub more: bool,
    /// The prefixes.
    pub prefixes: Vec<ShutPrefix>,
}

/// The arguments of `testudo-release`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// All addresses of the prefix.
    pub prefix: AddrRange,
    /// Only says whether the release is possible.
    pub check: bool,
    /// The user, as the client says.
    pub by: Option<String>,
}

/// The result of a [`Release`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Released {
    /// It is released on this node, and not on the other nodes.
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
        let mut message = Message::new();
        if self.own_side {
            message.add("own-side", "yes");
        }
        message.add("reason", self.cause.reason());
        if let Some(name) = self.cause.name() {
            message.add("name", name);
        }
        let message = message.with("since", self.since.as_str()).with("from", self.from.name());
        message.with_list("protected-by", self.protected_by.iter().cloned())
    }

    fn from_message(prefix: &str, message: &Message) -> Result<Self, Error> {
        Ok(Self {
            prefix: prefix.to_owned(),
            own_side: message.text("own-side") == Some("yes"),
            cause: Cause::read(message)?,
            since: text(message, "since")?.to_owned(),
            from: ClearFrom::read(message)?,
            protected_by: message.texts("protected-by").map(str::to_owned).collect(),
        })
    }
}

impl Released {
    /// The answer to a successful `testudo-release`.
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
            Self::EarlierRun => f.write_str("left by an earlier testudod run"),
            Self::ConnectionUnloaded(name) => write!(f, "connection {name} was unloaded"),
            Self::ConnectionChanged(name) => write!(f, "connection {name} no longer protects it"),
            Self::PoolChanged(name) => write!(f, "pool {name} was changed or unloaded"),
        }
    }
}

impl ClearFrom {
    const ALL: [Self; 3] = [Self::Dropped, Self::Judged, Self::Passed];

    /// The name in the answer.
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
