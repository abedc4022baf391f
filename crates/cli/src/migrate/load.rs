//! How busy the processors of both hosts are during a migration, as the two testudods tell.

use super::vm::Side;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;
use testudo_vici::processors::Processors;

#[cfg(test)]
mod tests;

const COMMAND: &str = "testudo-processors";
const PERIOD: Duration = Duration::from_secs(1);
/// The rest of a migration behind its last whole second counts if it is that long: the kernel counts
/// hundredths of a second.
const LEAST: Duration = Duration::from_millis(100);
/// Meanwhile nobody looks at the migration.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// The processors of one host from the begin of a migration to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct HostLoad {
    pub(super) side: Side,
    pub(super) processors: u64,
    /// Per cent of all processors, in the busiest of the parts below.
    pub(super) peak: u64,
    /// Per cent of all processors in each second, and in what was left behind the last.
    pub(super) each_second: Vec<u64>,
}

/// Both hosts, from one moment on.
pub(super) struct Loads {
    posts: Vec<Post>,
    latest: Instant,
}

struct Post {
    side: Side,
    /// None: it did not answer, and is not asked again.
    client: Option<Client>,
    latest: Processors,
    parts: Vec<u64>,
}

impl Loads {
    /// Begins with those hosts whose testudods answer. One of an earlier version does not.
    pub(super) fn begin<'a>(sockets: impl IntoIterator<Item = (Side, &'a Path)>) -> Self {
        let begin = |(side, socket): (Side, &Path)| {
            let mut client = Client::connect_within(socket, ANSWER_LIMIT).ok()?;
            let latest = ask(&mut client).ok()?;
            Some(Post { side, client: Some(client), latest, parts: Vec::new() })
        };
        Self { posts: sockets.into_iter().filter_map(begin).collect(), latest: Instant::now() }
    }

    /// Asks once a second.
    pub(super) fn look(&mut self) {
        if self.latest.elapsed() >= PERIOD {
            self.ask();
        }
    }

    /// The loads of the hosts that have told any.
    pub(super) fn end(mut self) -> Vec<HostLoad> {
        if self.latest.elapsed() >= LEAST {
            self.ask();
        }
        self.posts.into_iter().filter_map(Post::load).collect()
    }

    fn ask(&mut self) {
        let now = Instant::now();
        let passed = now.duration_since(self.latest);
        self.latest = now;
        for post in &mut self.posts {
            post.ask(passed);
        }
    }
}

impl Post {
    fn ask(&mut self, passed: Duration) {
        let Some(answer) = self.client.as_mut().map(ask) else { return };
        match answer {
            Ok(now) => {
                self.parts.push(per_cent(self.latest, now, passed));
                self.latest = now;
            }
            Err(_) => self.client = None,
        }
    }

    fn load(self) -> Option<HostLoad> {
        let peak = *self.parts.iter().max()?;
        Some(HostLoad { side: self.side, processors: self.latest.count, peak, each_second: self.parts })
    }
}

fn ask(client: &mut Client) -> Result<Processors, Error> {
    Processors::from_message(&client.request(COMMAND, Message::new())?)
}

/// How much of that time the processors have worked, on average, at most all of it: the answers of a
/// busy host come late.
fn per_cent(before: Processors, now: Processors, passed: Duration) -> u64 {
    let worked = now.busy.saturating_sub(before.busy).as_millis();
    let possible = (passed.as_millis() * u128::from(now.count)).max(1);
    u64::try_from(100 * worked / possible).unwrap_or(100).min(100)
}
