//! Everything that is shown, taken from the daemon once.

use super::sa::{self, IkeSa};
use serde::Serialize;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;

/// What the daemon said.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Snapshot {
    pub(super) daemon: Daemon,
    pub(super) ike_sas: Vec<IkeSa>,
    pub(super) counters: Counters,
}

/// The daemon itself.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Daemon {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) uptime: String,
    pub(super) since: String,
    pub(super) half_open: u64,
}

impl Snapshot {
    /// Asks for everything.
    pub(super) fn take(client: &mut Client) -> Result<Self, Error> {
        let version = client.request("version", Message::new())?;
        let stats = client.request("stats", Message::new())?;
        let events = client.stream("list-sas", "list-sa", Message::new())?;
        let counters = client.request("testudo-counters", Message::new())?;
        Ok(Self {
            daemon: Daemon::read(&version, &stats)?,
            ike_sas: sa::read_all(&events)?,
            counters: Counters::from_message(&counters)?,
        })
    }
}

impl Daemon {
    fn read(version: &Message, stats: &Message) -> Result<Self, Error> {
        let uptime = sa::section(stats, "uptime")?;
        Ok(Self {
            name: sa::text(version, "daemon")?,
            version: sa::text(version, "version")?,
            uptime: sa::text(uptime, "running")?,
            since: sa::text(uptime, "since")?,
            half_open: sa::number(sa::section(stats, "ikesas")?, "half-open")?,
        })
    }
}
