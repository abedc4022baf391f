//! The watch on both hosts: alarms of testudod, by its command `testudo-alarms`.

use super::vm::Side;
use crate::answer::answer_error;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::Duration;
use testudo_alarms::Severity;
use testudo_vici::Error;
use testudo_vici::alarms::{AlarmPage, AlarmReport, WatchedKind};
use testudo_vici::client::Client;
use testudo_vici::message::Message;

#[cfg(test)]
pub(super) mod tests;

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
    fn includes(self, severity: &str) -> Result<bool, Error> {
        let unknown = || answer_error("severity", severity, "notice, warning or critical");
        let severity = Severity::from_name(severity).ok_or_else(unknown)?;
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
    #[error("alarm at the {side}: {alarm}")]
    Alarm { side: Side, alarm: Found },
    #[error("an alarm goes on at the {side}: {alarm}")]
    GoesOn { side: Side, alarm: Found },
    #[error("the {0}'s testudod does not watch")]
    Off(Side),
    #[error("no alarm of the {0}'s testudod cancels: each kind is less serious, or off")]
    Powerless(Side),
    #[error("the {side}'s testudod cannot be asked for alarms: {error}")]
    Silent { side: Side, error: Error },
}

/// An alarm that cancels a migration.
#[derive(Debug)]
pub(super) struct Found {
    kind: String,
    subject: String,
    evidence: String,
}

impl Display for Found {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, subject, evidence } = self;
        write!(f, "{kind}, {subject}: {evidence}")
    }
}

impl From<AlarmReport> for Found {
    fn from(AlarmReport { kind, subject, evidence, .. }: AlarmReport) -> Self {
        Self { kind, subject, evidence }
    }
}

impl WatchEnd {
    /// What to do before a migration can begin.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Alarm { .. } | Self::GoesOn { .. } => {
                "wait until it has ended (testudo alarms --lasting there), or accept it with --cancel-on never"
            }
            Self::Off(_) => "turn the watch on there, or accept that with --cancel-on never",
            Self::Powerless(_) => {
                "raise the severity of kinds in [alarms] there, or choose --cancel-on warning or never"
            }
            Self::Silent { .. } => {
                "check that testudod runs there and is reached, or accept that with --cancel-on never"
            }
        }
    }
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
    /// The kinds whose alarms do not cancel, with their severities.
    powerless: Vec<String>,
}

impl Watch {
    pub(super) fn new(cancel_on: CancelOn) -> Self {
        Self { posts: Vec::new(), cancel_on }
    }

    /// Watches a host's daemon too. Alarms that have ended before do not count. One that goes on is
    /// refused here, because testudod raises it only once, however long the attack lasts.
    pub(super) fn add(&mut self, side: Side, socket: &Path) -> Result<(), WatchEnd> {
        let client = Client::connect_within(socket, ANSWER_LIMIT);
        let client = client.map_err(|error| WatchEnd::Silent { side, error })?;
        let mut post = Post { side, client, last: 0, powerless: Vec::new() };
        let mut going_on = post.read(self.cancel_on)?.into_iter().filter(|alarm| alarm.ended.is_none());
        if let Some(alarm) = going_on.next() {
            return Err(WatchEnd::GoesOn { side, alarm: alarm.into() });
        }
        self.posts.push(post);
        Ok(())
    }

    /// What the report says: that both watch, and which alarms do not cancel.
    pub(super) fn words(&self) -> String {
        let mut words = "by both testudods, from now on".to_owned();
        let alike =
            self.posts.windows(2).all(|two| matches!(two, [one, other] if one.powerless == other.powerless));
        for post in self.posts.iter().take(if alike { 1 } else { self.posts.len() }) {
            let at = if alike { String::new() } else { format!(" of the {}", post.side) };
            if !post.powerless.is_empty() {
                words += &format!("; alarms{at} that do not cancel: {}", post.powerless.join(", "));
            }
        }
        words
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
        match self.read(cancel_on)?.into_iter().next() {
            Some(alarm) => Err(WatchEnd::Alarm { side: self.side, alarm: alarm.into() }),
            None => Ok(()),
        }
    }

    /// The alarms since the last time, or all that the daemon keeps, that cancel a migration.
    fn read(&mut self, cancel_on: CancelOn) -> Result<Vec<AlarmReport>, WatchEnd> {
        let side = self.side;
        let failed = |error| match error {
            Error::UnknownCommand(_) => WatchEnd::Off(side),
            error => WatchEnd::Silent { side, error },
        };
        let mut found = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = ask(&mut self.client, self.last).map_err(failed)?;
            if !page.watching {
                return Err(WatchEnd::Off(side));
            }
            self.judge(page.kinds, cancel_on)?;
            let latest = page.alarms.iter().map(|alarm| alarm.number).max();
            self.last = self.last.max(latest.unwrap_or(page.last));
            for alarm in page.alarms {
                if cancel_on.includes(&alarm.severity).map_err(failed)? {
                    found.push(alarm);
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(found)
    }

    /// Which kinds do not cancel. A daemon of an earlier version does not tell.
    fn judge(&mut self, kinds: Vec<WatchedKind>, cancel_on: CancelOn) -> Result<(), WatchEnd> {
        let total = kinds.len();
        // `off` is no severity.
        let is_powerless =
            |watched: &WatchedKind| !cancel_on.includes(&watched.severity).is_ok_and(|yes| yes);
        let powerless = kinds.into_iter().filter(is_powerless);
        self.powerless =
            powerless.map(|watched| format!("{} ({})", watched.kind, watched.severity)).collect();
        if total > 0 && self.powerless.len() == total {
            return Err(WatchEnd::Powerless(self.side));
        }
        Ok(())
    }
}

/// Alarms above a number.
fn ask(client: &mut Client, above: u64) -> Result<AlarmPage, Error> {
    let mut arguments = Message::new();
    arguments.add_text("above", above);
    AlarmPage::from_message(&client.request(COMMAND, arguments)?)
}
