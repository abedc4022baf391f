//! DNS names of connections: resolved in threads of their own, because that may take long.
//!
//! The system's own resolver is asked, so `/etc/hosts`, `/etc/resolv.conf` and `/etc/nsswitch.conf`
//! count. A look-up cannot be cancelled. So control takes a name as failed when its time is over,
//! and ignores a later answer.

use crate::error::LookupError;
use crate::pool::{Pool, waking};
use mio::Waker;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads: as many look-ups run at a time.
const LOOKUP_THREADS: usize = 4;
/// Names that wait for a thread; more fail at once.
const MAX_WAITING_NAMES: usize = 16_384;
/// How long a look-up may take, with the time that it waits for a thread.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A name and its addresses, or why it has none.
pub(crate) type Resolution = (String, Result<Vec<IpAddr>, LookupError>);

/// The threads and their names.
pub(crate) struct Resolver {
    waker: Arc<Waker>,
    /// `None` before the first name.
    pool: Option<Pool<String, Resolution>>,
    look_up: fn(&str) -> Result<Vec<IpAddr>, LookupError>,
    time_limit: Duration,
    /// Names whose answer is awaited, and until when.
    awaited: BTreeMap<String, Instant>,
    /// Names that a thread resolves, or will.
    out: BTreeSet<String>,
    /// Names that were given up.
    failed: Vec<Resolution>,
}

/// Control hears of each answer at once.
fn takes_long(_: &String) -> bool {
    true
}

impl Resolver {
    /// Without names. `waker` wakes the control thread when one is resolved.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self::with(waker, look_up, LOOKUP_TIMEOUT)
    }

    fn with(
        waker: Arc<Waker>,
        look_up: fn(&str) -> Result<Vec<IpAddr>, LookupError>,
        time_limit: Duration,
    ) -> Self {
        let (awaited, out, failed) = Default::default();
        Self { waker, pool: None, look_up, time_limit, awaited, out, failed }
    }

    /// Begins to resolve names.
    pub(crate) fn ask(&mut self, names: Vec<String>, now: Instant) {
        let mut begun = Vec::new();
        for name in names {
            if self.out.contains(&name) {
                // A thread still resolves it.
                self.awaited.insert(name, now + self.time_limit);
            } else if self.out.len() >= MAX_WAITING_NAMES {
                self.failed.push((name, Err(LookupError::Busy { limit: MAX_WAITING_NAMES })));
            } else {
                self.out.insert(name.clone());
                self.awaited.insert(name.clone(), now + self.time_limit);
                begun.push(name);
            }
        }
        if begun.is_empty() {
            return;
        }
        match self.pool() {
            Ok(pool) => pool.submit(begun),
            Err(why) => {
                for name in begun {
                    self.out.remove(&name);
                    self.awaited.remove(&name);
                    self.failed.push((name, Err(why.clone())));
                }
            }
        }
    }

    fn pool(&mut self) -> Result<&Pool<String, Resolution>, LookupError> {
        if self.pool.is_none() {
            let look_up = self.look_up;
            let run = move |name: String| {
                let result = look_up(&name);
                (name, result)
            };
            let pool =
                Pool::start("names", LOOKUP_THREADS, || {}, takes_long, run, waking(Arc::clone(&self.waker)))
                    .map_err(|error| LookupError::NoThread(error.to_string()))?;
            self.pool = Some(pool);
        }
        self.pool.as_ref().ok_or(LookupError::NoPool)
    }

    /// Takes the names that are resolved or have failed.
    pub(crate) fn done(&mut self, now: Instant) -> Vec<Resolution> {
        let mut answers = std::mem::take(&mut self.failed);
        for (name, result) in self.pool.iter().flat_map(Pool::done) {
            self.out.remove(&name);
            if self.awaited.remove(&name).is_some() {
                answers.push((name, result));
            }
        }
        let late = self.awaited.extract_if(.., |_, until| *until <= now);
        let why = LookupError::TimedOut { seconds: self.time_limit.as_secs() };
        answers.extend(late.map(|(name, _)| (name, Err(why.clone()))));
        answers
    }
}

/// The daemon's end waits for no look-up: the threads end with the process.
impl Drop for Resolver {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            std::mem::forget(pool);
        }
    }
}

/// Asks the system.
fn look_up(name: &str) -> Result<Vec<IpAddr>, LookupError> {
    let found = (name, 0).to_socket_addrs().map_err(|error| LookupError::System(error.to_string()))?;
    Ok(found.map(|addr: SocketAddr| addr.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Poll, Token};

    /// Long enough for any machine: the test waits for the cause.
    const LIMIT: Duration = Duration::from_secs(60);

    fn resolver(look_up: fn(&str) -> Result<Vec<IpAddr>, LookupError>, limit: Duration) -> (Resolver, Poll) {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        (Resolver::with(waker, look_up, limit), poll)
    }

    fn answers(resolver: &mut Resolver, count: usize) -> Vec<Resolution> {
        let mut found = Vec::new();
        let end = Instant::now() + LIMIT;
        while found.len() < count && Instant::now() < end {
            found.extend(resolver.done(Instant::now()));
            std::thread::sleep(Duration::from_millis(1));
        }
        found.sort();
        found
    }

    #[test]
    fn names_come_back_with_their_addresses_or_the_reason() {
        fn fake(name: &str) -> Result<Vec<IpAddr>, LookupError> {
            match name {
                "gw" => Ok(vec!["192.0.2.1".parse().unwrap()]),
                _ => Err(LookupError::System("no such name".into())),
            }
        }
        let (mut resolver, _poll) = resolver(fake, LIMIT);
        resolver.ask(vec!["gw".into(), "nobody".into()], Instant::now());
        let expected = [
            ("gw".to_owned(), Ok(vec!["192.0.2.1".parse().unwrap()])),
            ("nobody".to_owned(), Err(LookupError::System("no such name".to_owned()))),
        ];
        assert_eq!(answers(&mut resolver, 2), expected);
        assert!(resolver.out.is_empty() && resolver.awaited.is_empty());
    }

    /// A look-up that never ends keeps its thread, and is not begun again beside itself.
    #[test]
    fn a_name_that_takes_too_long_has_failed() {
        fn stuck(_: &str) -> Result<Vec<IpAddr>, LookupError> {
            loop {
                std::thread::park();
            }
        }
        let (mut resolver, _poll) = resolver(stuck, Duration::ZERO);
        let begun = Instant::now();
        resolver.ask(vec!["gw".into()], begun);
        assert_eq!(resolver.done(begun), [("gw".into(), Err(LookupError::TimedOut { seconds: 0 }))]);
        resolver.ask(vec!["gw".into()], begun);
        assert_eq!((resolver.out.len(), resolver.awaited.len()), (1, 1));
    }

    #[test]
    fn addresses_resolve_to_themselves() {
        assert_eq!(look_up("192.0.2.7"), Ok(vec!["192.0.2.7".parse().unwrap()]));
    }
}
