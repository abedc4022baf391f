//! Child SAs that are renewed as often as a peer takes that.

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

/// Each tunnel once in so long: a peer that makes SAs faster than they are let go is put off
/// (`creation_pace`).
const PACE: Duration = Duration::from_secs(1);
/// The most that a daemon with that much to do may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Both gateways renew, each a half of the tunnels, so that requests do not cross.
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

    /// How many have been renewed.
    pub(super) fn stop(mut self) -> Result<u64, BenchError> {
        self.over.store(true, Ordering::Relaxed);
        let ended =
            |thread: JoinHandle<_>| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(self.threads.drain(..).map(ended).sum::<Result<u64, Error>>()?)
    }
}

/// What the daemon tells of every Child SA that has taken another's place.
const RENEWED: &str = "child-rekey";

/// Answers how often one of those children was renewed.
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
                // The other gateway's renewals are told here too.
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
