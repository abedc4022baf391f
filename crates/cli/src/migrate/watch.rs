//! The watch on both hosts: alarms of testudod, by its command `testudo-alarms`.

use super::vm::Side;
use crate::answer::answer_error;
use std::path::Path;
use std::time::Duration;
use testudo_alarms::Severity;
use testudo_vici::Error;
use testudo_vici::alarms::{AlarmPage, AlarmReport};
use testudo_vici::client::Client;
use testudo_vici::message::Message;

#[cfg(test)]
mod tests;

const COMMAND: &str = "testudo-alarms";
/// While alarms are asked for, nobody looks at the migration.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// More pages than a daemon keeps alarms: an answer that never ends is wrong.
const MAX_PAGES: usize = 100;

/// The alarms that cancel a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CancelOn {
    Warning,
    Critical,
    Never,
}

impl CancelOn {
    fn includes(self, alarm: &AlarmReport) -> Result<bool, Error> {
        let unknown = || answer_error("severity", &alarm.severity, "notice, warning or critical");
        let severity = Severity::from_name(&alarm.severity).ok_or_else(unknown)?;
        Ok(match self {
            Self::Warning => severity >= Severity::Warning,
            Self::Critical => severity >= Severity::Critical,
            Self::Never => false,
        })
    }
}

/// Why the watch does not let a migration go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchEnd {
    #[error("alarm at the {side}: {kind}, {subject}: {evidence}")]
    Alarm { side: Side, kind: String, subject: String, evidence: String },
    #[error("the {0}'s testudod does not watch")]
    Off(Side),
    #[error("the {side}'s testudod cannot be asked for alarms: {error}")]
    Silent { side: Side, error: Error },
}

/// The watch on both hosts from one moment on.
pub(super) struct Watch {
    posts: Vec<Post>,
    cancel_on: CancelOn,
}

struct Post {
    side: Side,
    client: Client,
    /// The latest alarm that is known.
    last: u64,
}

impl Watch {
    pub(super) fn new(cancel_on: CancelOn) -> Self {
        Self { posts: Vec::new(), cancel_on }
    }

    /// Watches a host's daemon too. Alarms of before do not count.
    pub(super) fn add(&mut self, side: Side, socket: &Path) -> Result<(), WatchEnd> {
        let silent = |error| WatchEnd::Silent { side, error };
        let mut client = Client::connect_within(socket, ANSWER_LIMIT).map_err(silent)?;
        let page = ask(&mut client, u64::MAX).map_err(|error| match error {
            Error::UnknownCommand(_) => WatchEnd::Off(side),
            error => silent(error),
        })?;
        if !page.watching {
            return Err(WatchEnd::Off(side));
        }
        self.posts.push(Post { side, client, last: page.last });
        Ok(())
    }

    /// Looks for new alarms. Fails at the first one that cancels a migration, and when a daemon
    /// does not watch any more.
    pub(super) fn look(&mut self) -> Result<(), WatchEnd> {
        let cancel_on = self.cancel_on;
        self.posts.iter_mut().try_for_each(|post| post.look(cancel_on))
    }
}

impl Post {
    fn look(&mut self, cancel_on: CancelOn) -> Result<(), WatchEnd> {
        let side = self.side;
        for _ in 0..MAX_PAGES {
            let silent = |error| WatchEnd::Silent { side, error };
            let page = ask(&mut self.client, self.last).map_err(silent)?;
            if !page.watching {
                return Err(WatchEnd::Off(side));
            }
            let latest = page.alarms.iter().map(|alarm| alarm.number).max();
            self.last = self.last.max(latest.unwrap_or(page.last));
            for alarm in page.alarms {
                if cancel_on.includes(&alarm).map_err(silent)? {
                    let AlarmReport { kind, subject, evidence, .. } = alarm;
                    return Err(WatchEnd::Alarm { side, kind, subject, evidence });
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(())
    }
}

/// Alarms above a number; above the highest there are none.
fn ask(client: &mut Client, above: u64) -> Result<AlarmPage, Error> {
    let mut arguments = Message::new();
    arguments.add_text("above", above);
    AlarmPage::from_message(&client.request(COMMAND, arguments)?)
}
