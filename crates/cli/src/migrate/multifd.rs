//! By how many connections beside the first QEMU sends memory (multifd).
//!
//! Each keeps a thread of QEMU and a worker of testudod busy at either host. Where they have to
//! share processors that costs time (docs/benchmarks.md), so each needs two at either host.

use super::MigrateArgs;
use super::vm::{Side, Vm};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use testudo_vici::client::Client;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;
use testudo_vici::processors::Processors;

#[cfg(test)]
mod tests;

const CAPABILITY: &str = "multifd";
/// One further connection does what the first would have done.
const MIN: u64 = 2;
/// More are the operator's to ask for.
const MAX: u64 = 8;
/// Of a connection: one for the thread of QEMU, one for the worker.
const PROCESSORS_PER_CONNECTION: u64 = 2;
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multifd {
    /// As many as have processors of their own.
    Auto,
    Off,
    Channels(u8),
}

/// Another word.
#[derive(Debug, thiserror::Error)]
#[error("expected auto, off, or a number from 1 to 255")]
pub(super) struct NoMultifd;

impl FromStr for Multifd {
    type Err = NoMultifd;

    fn from_str(text: &str) -> Result<Self, NoMultifd> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            number => match number.parse() {
                Ok(channels @ 1..) => Ok(Self::Channels(channels)),
                _ => Err(NoMultifd),
            },
        }
    }
}

/// What is done, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Choice {
    /// Null: all goes by one connection.
    pub(super) channels: Option<u8>,
    pub(super) why: String,
}

impl Choice {
    fn of(channels: Option<u8>, why: impl Into<String>) -> Self {
        Self { channels, why: why.into() }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        match self.channels {
            Some(channels) => format!("Memory goes by {channels} further connections: {}", self.why),
            None => format!("Memory goes by one connection: {}", self.why),
        }
    }
}

/// Chooses.
pub(super) fn choose(args: &MigrateArgs, source: &mut Vm, destination: &mut Vm) -> Choice {
    match args.multifd {
        Multifd::Off => return Choice::of(None, "--multifd off"),
        Multifd::Channels(channels) => return Choice::of(Some(channels), format!("--multifd {channels}")),
        Multifd::Auto => {}
    }
    for vm in [source, destination] {
        let side = vm.side();
        match vm.execute("query-migrate-capabilities", json!({})) {
            Ok(answer) if is_able(&answer) => {}
            Ok(_) => return Choice::of(None, format!("QEMU at the {side} has no multifd")),
            Err(error) => return Choice::of(None, format!("QEMU at the {side}: {error}")),
        }
    }
    let mut hosts = Vec::new();
    for (side, socket) in args.daemons() {
        match Host::ask(side, socket) {
            Ok(host) => hosts.push(host),
            Err(error) => return Choice::of(None, format!("testudod of the {side}: {error}")),
        }
    }
    decide(&hosts)
}

/// Whether an answer to `query-migrate-capabilities` knows it.
fn is_able(answer: &Value) -> bool {
    answer.as_array().into_iter().flatten().any(|one| one["capability"] == CAPABILITY)
}

/// What counts of a host.
#[derive(Clone, Copy, Debug)]
struct Host {
    side: Side,
    processors: u64,
    workers: u64,
}

impl Host {
    fn ask(side: Side, socket: &Path) -> Result<Self, testudo_vici::Error> {
        let mut client = Client::connect_within(socket, ANSWER_LIMIT)?;
        let processors = Processors::from_message(&client.request("testudo-processors", Message::new())?)?;
        let counters = Counters::from_message(&client.request("testudo-counters", Message::new())?)?;
        let workers = u64::try_from(counters.workers.len()).unwrap_or(u64::MAX);
        Ok(Self { side, processors: processors.count, workers })
    }

    /// The connections for which it has workers and processors.
    fn room(&self) -> u64 {
        self.workers.min(self.processors / PROCESSORS_PER_CONNECTION)
    }
}

fn decide(hosts: &[Host]) -> Choice {
    let Some(least) = hosts.iter().min_by_key(|host| host.room()) else {
        return Choice::of(None, "no host is known");
    };
    let Host { side, processors, workers } = *least;
    let has = format!("{processors} processors and {workers} of testudod's workers at the {side}");
    let channels = least.room().min(MAX);
    if channels < MIN {
        return Choice::of(None, format!("{has}, which further ones would share"));
    }
    Choice::of(u8::try_from(channels).ok(), has)
}
