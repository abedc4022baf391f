//! The watch on both hosts: alarms of testudod, by its command `testudo-alarms`.

use super::vm::Side;
use std::path::Path;
use std::time::Duration;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

#[cfg(test)]
mod tests;

const COMMAND: &str = "testudo-alarms";
/// While alarms are asked for, nobody looks at the migration.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// More pages than a daemon keeps alarms: an answer that never ends is wrong.
const MAX_PAGES: usize = 100;

/// How serious an alarm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Notice,
    Warning,
    Critical,
}

/// The alarms that cancel a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CancelOn {
    Warning,
    Critical,
    Never,
}

impl CancelOn {
    fn includes(self, severity: Severity) -> bool {
        match self {
            Self::Warning => severity >= Severity::Warning,
            Self::Critical => severity >= Severity::Critical,
            Self::Never => false,
        }
    }
}

/// An alarm, as far as a migration is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    number: u64,
    severity: Severity,
    kind: String,
    subject: String,
    evidence: String,
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

/// One page of the answer.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    watching: bool,
    last: u64,
    more: bool,
    alarms: Vec<Alarm>,
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
        let mut client = Client::connect(socket).map_err(silent)?;
        client.set_timeout(Some(ANSWER_LIMIT)).map_err(silent)?;
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
            let page = ask(&mut self.client, self.last);
            let page = page.map_err(|error| WatchEnd::Silent { side, error })?;
            if !page.watching {
                return Err(WatchEnd::Off(side));
            }
            let latest = page.alarms.iter().map(|alarm| alarm.number).max();
            self.last = self.last.max(latest.unwrap_or(page.last));
            if let Some(alarm) = page.alarms.into_iter().find(|alarm| cancel_on.includes(alarm.severity)) {
                let Alarm { kind, subject, evidence, .. } = alarm;
                return Err(WatchEnd::Alarm { side, kind, subject, evidence });
            }
            if !page.more {
                break;
            }
        }
        Ok(())
    }
}

/// Alarms above a number; above the highest there are none.
fn ask(client: &mut Client, above: u64) -> Result<Page, Error> {
    let mut arguments = Message::new();
    arguments.add_text("above", above);
    Page::read(&client.request(COMMAND, arguments)?)
}

impl Page {
    fn read(message: &Message) -> Result<Self, Error> {
        let alarms = message.section("alarms").into_iter().flat_map(Message::sections);
        Ok(Self {
            watching: yes(message, "watching")?,
            last: number("last", text(message, "last")?)?,
            more: yes(message, "more")?,
            alarms: alarms.map(|(number, alarm)| Alarm::read(number, alarm)).collect::<Result<_, _>>()?,
        })
    }
}

impl Alarm {
    fn read(name: &str, message: &Message) -> Result<Self, Error> {
        let owned = |key| text(message, key).map(str::to_owned);
        let severity = match text(message, "severity")? {
            "notice" => Severity::Notice,
            "warning" => Severity::Warning,
            "critical" => Severity::Critical,
            other => return Err(wrong("severity", other, "notice, warning or critical")),
        };
        Ok(Self {
            number: number("alarms", name)?,
            severity,
            kind: owned("kind")?,
            subject: owned("subject")?,
            evidence: owned("evidence")?,
        })
    }
}

fn text<'a>(message: &'a Message, key: &str) -> Result<&'a str, Error> {
    message.text(key).ok_or_else(|| wrong(key, "missing", "text"))
}

fn yes(message: &Message, key: &str) -> Result<bool, Error> {
    match text(message, key)? {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(wrong(key, other, "yes or no")),
    }
}

fn number(key: &str, text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| wrong(key, text, "a number"))
}

fn wrong(key: &str, found: &str, expected: &'static str) -> Error {
    Error::Answer { key: key.to_owned(), found: found.to_owned(), expected }
}
