//! A stream of numbered UDP datagrams, one a millisecond, to measure outages.
//!
//! Sender and receiver are threads of this process, so that all times are of one clock. The time of
//! an arrival is when the receiver's kernel got the datagram, not when the thread reads it. The
//! sender notes when it really sent each datagram, so that its own pauses are not attributed to the
//! network.

mod reordering;
mod socket;
mod takeover;
#[cfg(test)]
mod tests;
mod trace;

pub use reordering::Reordering;
pub use takeover::Takeover;
pub use trace::{Arrival, Outage, Summary, Trace};

use crate::worker::{Worker, raise_priority, stay_on_this_cpu};
use crate::{Error, Namespace, Result, wait_until};
use socket::Receiver;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The usual time between two datagrams.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Octets of data in a datagram: about those of a voice call.
const OCTETS: usize = 160;
/// Time for datagrams still in transit after the last one: the network may hold them until it knows
/// a neighbour's address.
const SETTLE: Duration = Duration::from_millis(500);

/// A running probe, in one direction.
#[derive(Debug)]
pub struct Probe {
    interval: Duration,
    sent: Arc<AtomicU64>,
    sender: Worker<Vec<Instant>>,
    receiver: Worker<io::Result<Vec<Arrival>>>,
}

impl Probe {
    /// Sends from one namespace to an address of the other, one datagram per `interval`.
    pub fn start(from: &Namespace, to: &Namespace, address: IpAddr, interval: Duration) -> Result<Self> {
        let open = || Error::io(format!("open the sockets of a probe from {} to {}", from.role(), to.role()));
        // Distinguishes its datagrams from those of an earlier probe on the same port.
        let run = socket::random().map_err(open())?;
        let receiver = to.enter(move || Receiver::open(SocketAddr::new(address, 0), run))?.map_err(open())?;
        let target = receiver.address().map_err(open())?;
        let sender = from.enter(move || open_sender(target))?.map_err(open())?;
        let sent = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&sent);
        let work = move |stop: &AtomicBool| send(&sender, target, run, interval, &told, stop);
        Ok(Self {
            interval,
            sent,
            receiver: Worker::start("probe-receiver", move |stop| receiver.run(stop))?,
            sender: Worker::start("probe-sender", work)?,
        })
    }

    /// Waits until that many more datagrams have been sent: on a busy machine this takes longer
    /// than as many intervals.
    pub fn await_sent(&self, more: u64, limit: Duration) -> Result<()> {
        let all = self.sent.load(Ordering::Relaxed) + more;
        wait_until(&format!("{more} more datagrams of a probe"), limit, || {
            let sent = self.sent.load(Ordering::Relaxed);
            Ok(if sent >= all { Ok(()) } else { Err(format!("{sent} of {all}")) })
        })
    }

    /// Ends it, and waits for datagrams in transit.
    pub fn stop(self) -> Result<Trace> {
        let sent = self.sender.stop();
        sleep(SETTLE);
        Ok(Trace::new(self.interval, sent, received(self.receiver)?))
    }

    /// The same; then something happens that may bring datagrams once more. Also returns how many
    /// of those that had arrived did so again.
    pub fn stop_after(self, happen: impl FnOnce() -> Result<()>) -> Result<(Trace, u64)> {
        let sent = self.sender.stop();
        sleep(SETTLE);
        let until = Instant::now();
        happen()?;
        sleep(SETTLE);
        Ok(Trace::until(until, self.interval, sent, received(self.receiver)?))
    }
}

fn received(receiver: Worker<io::Result<Vec<Arrival>>>) -> Result<Vec<Arrival>> {
    receiver.stop().map_err(Error::io("receive the datagrams of a probe"))
}

/// Not connected: so errors from routers are not reported to it, and unsendable datagrams count as
/// lost.
fn open_sender(target: SocketAddr) -> io::Result<UdpSocket> {
    let any = match target {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends until told to stop; returns when each datagram was sent.
fn send(
    socket: &UdpSocket,
    target: SocketAddr,
    run: u64,
    interval: Duration,
    told: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<Instant> {
    raise_priority();
    stay_on_this_cpu();
    let mut sent = Vec::new();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        sleep(due.saturating_duration_since(Instant::now()));
        let datagram = socket::datagram(run, sent.len() as u64, OCTETS);
        let now = Instant::now();
        sent.push(now);
        // Refused without a route or buffer: lost, and counted as such because it does not arrive.
        let _refused = socket.send_to(&datagram, target);
        told.store(sent.len() as u64, Ordering::Relaxed);
        // Datagrams that are late are not sent at all, because a burst would not be normal
        // traffic. It always sleeps: if sending takes long, a thread of its priority would leave no
        // CPU time to others.
        due = (due + interval).max(Instant::now() + interval / 2);
    }
    sent
}
