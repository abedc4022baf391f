//! Echo requests with statistics.
//!
//! ping(8) is not used: after the first reply it waits for the last one no longer than an interval
//! or twice the longest round trip, so that a busy machine seems to lose packets. Here every
//! request has two seconds, or more.

mod socket;

use crate::{Error, Namespace, Result};
use socket::{Echo, Socket};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What the last reply may take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same where a missing reply is no defect.
const BRIEF: Duration = Duration::from_secs(2);

/// The options of a ping.
#[derive(Clone, Debug)]
pub struct Ping {
    /// The destination.
    pub to: IpAddr,
    /// Number of requests, limited by the 16-bit sequence numbers.
    pub count: u16,
    /// Octets of data in each request.
    pub size: u32,
    /// Time between two requests.
    pub interval: Duration,
    /// Octets repeated to fill the data.
    pub pattern: Option<[u8; 8]>,
    /// Time to wait for the last reply. Only used up if a reply is missing.
    pub patience: Duration,
}

/// The result of a ping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pong {
    /// Requests sent, including those that the host's kernel refused.
    pub sent: u32,
    /// Replies received, without duplicates.
    pub received: u32,
    /// Duplicate replies.
    pub duplicates: u32,
    /// Mean round-trip time, if there was any reply.
    pub mean: Option<Duration>,
}

impl Ping {
    /// Ten requests of the usual size in 0.2 s.
    pub fn new(to: IpAddr) -> Self {
        Self {
            to,
            count: 10,
            size: 56,
            interval: Duration::from_millis(20),
            pattern: None,
            patience: PATIENCE,
        }
    }

    /// Sets the number of requests.
    pub fn count(mut self, count: u16) -> Self {
        self.count = count;
        self
    }

    /// Sets the octets of data in each request.
    pub fn size(mut self, size: u32) -> Self {
        self.size = size;
        self
    }

    /// Sets the data, so that a capture can be searched for it.
    pub fn pattern(mut self, octets: [u8; 8]) -> Self {
        self.pattern = Some(octets);
        self
    }

    /// For replies that should not come, or that are asked for again: waits for the last one two
    /// seconds instead of fifteen.
    pub fn brief(mut self) -> Self {
        self.patience = BRIEF;
        self
    }

    /// Sends from that namespace, and waits for the last reply. No reply is not an error.
    pub fn run(&self, from: &Namespace) -> Result<Pong> {
        let failed = || Error::io(format!("ping {} from {}", self.to, from.role()));
        let socket = from.enter(|| Socket::open(self.to))?.map_err(failed())?;
        self.exchange(&socket).map_err(failed())
    }

    fn exchange(&self, socket: &Socket) -> io::Result<Pong> {
        let data: Vec<u8> = match self.pattern {
            Some(pattern) => pattern.into_iter().cycle().take(self.size as usize).collect(),
            None => (0..=u8::MAX).cycle().take(self.size as usize).collect(),
        };
        let mut tally = Tally::default();
        let mut due = Instant::now();
        for number in 0..self.count {
            tally.sent.push(Instant::now());
            // A refused packet counts as lost.
            let _refused = socket.send(number, &data);
            // Late packets are not sent as a burst.
            due = (due + self.interval).max(Instant::now() + self.interval / 2);
            tally.receive(socket, due, false)?;
        }
        tally.receive(socket, Instant::now() + self.patience, true)?;
        Ok(tally.pong())
    }
}

/// What was sent and received so far.
#[derive(Default)]
struct Tally {
    sent: Vec<Instant>,
    trips: Vec<Duration>,
    answered: Vec<bool>,
    duplicates: u32,
}

impl Tally {
    /// Receives until that time; with `last`, until every request is answered.
    fn receive(&mut self, socket: &Socket, until: Instant, last: bool) -> io::Result<()> {
        while !(last && self.trips.len() == self.sent.len()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if let Some(echo) = socket.receive(left)? {
                self.note(echo);
            }
        }
        Ok(())
    }

    fn note(&mut self, echo: Echo) {
        let number = usize::from(echo.number);
        let Some(sent) = self.sent.get(number) else { return };
        self.answered.resize(self.sent.len(), false);
        if std::mem::replace(&mut self.answered[number], true) {
            self.duplicates += 1;
        } else {
            self.trips.push(echo.at.saturating_duration_since(*sent));
        }
    }

    fn pong(&self) -> Pong {
        let count = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
        let received = count(self.trips.len());
        let mean = (received > 0).then(|| self.trips.iter().sum::<Duration>() / received);
        Pong { sent: count(self.sent.len()), received, duplicates: self.duplicates, mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: &[u16]) -> Pong {
        let start = Instant::now();
        let mut tally = Tally { sent: vec![start; 3], ..Tally::default() };
        for number in numbers {
            tally.note(Echo { number: *number, at: start + Duration::from_millis(u64::from(*number) + 1) });
        }
        tally.pong()
    }

    #[test]
    fn each_request_is_answered_once() {
        let mean = Some(Duration::from_millis(2));
        assert_eq!(tally(&[2, 0, 0, 2, 2, 7]), Pong { sent: 3, received: 2, duplicates: 3, mean });
    }

    #[test]
    fn total_loss_has_no_mean() {
        assert_eq!(tally(&[]), Pong { sent: 3, received: 0, duplicates: 0, mean: None });
    }
}
