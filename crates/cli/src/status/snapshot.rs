//! The data of the whole status, requested from the daemon once.

use super::children;
use super::sa::{self, IkeSa};
use crate::answer;
use serde::Serialize;
use testudo_vici::Error;
use testudo_vici::children::ChildReport;
use testudo_vici::client::Client;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;

/// Version of the JSON: within one version keys are only added (docs/reference/status.md).
const VERSION: u32 = 1;

/// The daemon's data. Its keys in JSON are described in docs/reference/status.md.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Snapshot {
    pub(super) version: u32,
    pub(super) daemon: Daemon,
    pub(super) children: Vec<ChildReport>,
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
    /// Requests all data.
    pub(super) fn take(client: &mut Client) -> Result<Self, Error> {
        let version = client.request("version", Message::new())?;
        let stats = client.request("stats", Message::new())?;
        let configured = client.stream("testudo-children", "testudo-child", Message::new())?;
        let mut children = ChildReport::read_all(&configured)?;
        children::sort(&mut children);
        let events = client.stream("list-sas", "list-sa", Message::new())?;
        let counters = client.request("testudo-counters", Message::new())?;
        Ok(Self {
            version: VERSION,
            children,
            daemon: Daemon::read(&version, &stats)?,
            ike_sas: sa::read_all(&events)?,
            counters: Counters::from_message(&counters)?,
        })
    }
}

impl Daemon {
    fn read(version: &Message, stats: &Message) -> Result<Self, Error> {
        let uptime = answer::section(stats, "uptime")?;
        Ok(Self {
            name: answer::text(version, "daemon")?,
            version: answer::text(version, "version")?,
            uptime: answer::text(uptime, "running")?,
            since: answer::text(uptime, "since")?,
            half_open: answer::number(answer::section(stats, "ikesas")?, "half-open")?,
        })
    }
}
