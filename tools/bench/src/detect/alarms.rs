//! The alarms of a gateway, as a client of VICI hears of them.

use crate::error::BenchError;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use testudo_lab::{Error, wait_until};
use testudo_vici::client::Client;
use testudo_vici::message::Message;

const EVENT: &str = "testudo-alarm";
/// An alarm is over when its subject has been quiet for ten seconds.
const END_LIMIT: Duration = Duration::from_secs(120);

/// One event.
struct Heard {
    at: Instant,
    state: String,
    kind: String,
}

/// Listens from its start on.
pub(super) struct Alarms {
    events: Receiver<Heard>,
    /// The kinds of the alarms that last, once for each of them.
    lasting: Vec<String>,
}

impl Alarms {
    pub(super) fn listen(socket: &Path) -> Result<Self, BenchError> {
        let mut client = Client::connect(socket)?;
        client.register(EVENT)?;
        let (told, events) = channel();
        // Ends with the daemon, or when nobody listens any more.
        thread::spawn(move || {
            while let Ok((_, message)) = client.next_event() {
                let Some(heard) = read(Instant::now(), &message) else { continue };
                if told.send(heard).is_err() {
                    break;
                }
            }
        });
        Ok(Self { events, lasting: Vec::new() })
    }

    /// When an alarm of this kind is raised, if that is within this time.
    pub(super) fn raised(&mut self, kind: &str, within: Duration) -> Result<Option<Instant>, BenchError> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(heard) => {
                    let is_it = heard.state == "raised" && heard.kind == kind;
                    let at = heard.at;
                    self.note(heard);
                    if is_it {
                        return Ok(Some(at));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::unexpected("testudod", "events", "the end of its connection").into());
                }
            }
        }
    }

    /// Waits until no alarm of this kind lasts.
    pub(super) fn await_end(&mut self, kind: &str) -> Result<(), BenchError> {
        Ok(wait_until(&format!("the end of {kind}"), END_LIMIT, || {
            while let Ok(heard) = self.events.try_recv() {
                self.note(heard);
            }
            let lasts = self.lasting.iter().any(|lasting| lasting == kind);
            Ok(if lasts { Err(format!("{:?}", self.lasting)) } else { Ok(()) })
        })?)
    }

    fn note(&mut self, heard: Heard) {
        match heard.state.as_str() {
            "raised" => self.lasting.push(heard.kind),
            "ended" => {
                if let Some(at) = self.lasting.iter().position(|kind| *kind == heard.kind) {
                    self.lasting.swap_remove(at);
                }
            }
            _ => {}
        }
    }
}

fn read(at: Instant, message: &Message) -> Option<Heard> {
    let (_, alarm) = message.sections().next()?;
    Some(Heard { at, state: message.text("state")?.to_owned(), kind: alarm.text("kind")?.to_owned() })
}
