//! Child SAs are rekeyed as often as a peer accepts.

use super::{SIDES, name};
use crate::error::BenchError;
use crate::forward::site::Site;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

/// Interval for each tunnel: a peer that creates SAs faster than they are deleted is slowed down
/// (`creation_pace`).
const PACE: Duration = Duration::from_secs(1);
/// Limit for the answer of a busy daemon.
const ANSWER: Duration = Duration::from_secs(10);

/// Both gateways rekey, each half of the tunnels, so that requests do not cross.
pub(super) struct Renewals {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64, Error>>>,
}

impl Renewals {
    pub(super) fn start(site: &Site, tunnels: u8) -> Result<Self, BenchError> {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for side in SIDES {
            let names: Vec<String> =
                (0..tunnels).filter(|number| usize::from(*number) % 2 == side.index()).map(name).collect();
            let Some((_, testudod)) = site.testudo(side) else { continue };
            let client = Client::connect(testudod.socket())?;
            let over = Arc::clone(&over);
            threads.push(std::thread::spawn(move || renew(client, &names, &over)));
        }
        Ok(Self { over, threads })
    }

    /// Stops, and returns the number of rekeyings.
    pub(super) fn stop(mut self) -> Result<u64, BenchError> {
        self.over.store(true, Ordering::Relaxed);
        let ended =
            |thread: JoinHandle<_>| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(self.threads.drain(..).map(ended).sum::<Result<u64, Error>>()?)
    }
}

/// The daemon's event for every Child SA that has replaced another.
const RENEWED: &str = "child-rekey";

/// Returns the number of rekeyings of these children.
fn renew(mut client: Client, names: &[String], over: &AtomicBool) -> Result<u64, Error> {
    client.set_timeout(Some(ANSWER))?;
    client.register(RENEWED)?;
    let (begun, mut due, mut renewed) = (Instant::now(), Duration::ZERO, 0);
    for name in names.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
        client.set_timeout(Some(ANSWER))?;
        client.command("rekey", Message::new().with("child", name.as_str()))?;
        due += PACE / names.len() as u32;
        while let Some(left) =
            (begun + due).checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            client.set_timeout(Some(left))?;
            match client.next_event() {
                // The events include the other gateway's rekeyings.
                Ok((_, event)) => {
                    renewed +=
                        event.sections().filter(|(told, _)| names.iter().any(|name| name == told)).count()
                            as u64
                }
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(renewed)
}
