//! Datagrams as fast as possible, from both hosts at the same time.

use super::site::Site;
use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};
use testudo_lab::topology::Side;
use testudo_lab::{Error, Result};

/// The port of RFC 863.
pub(super) const DISCARD: u16 = 9;
/// Octets of the headers of IPv4 and UDP.
const HEADERS: usize = 28;
/// Datagrams between two readings of the clock.
const TRAIN: u32 = 64;
/// Time between two checks whether datagrams are due.
const PAUSE: Duration = Duration::from_micros(50);

/// Datagrams that both hosts have received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    pub(crate) octets: u64,
    pub(crate) elapsed: Duration,
    /// Processor time of the senders, and of the kernel on their behalf.
    pub(super) cpu: Duration,
}

/// Sends packets of that many octets for that long, at a given rate from each host or as fast as
/// possible.
pub(crate) fn run(site: &Site, size: u16, length: Duration, pace: Option<f64>) -> Result<Flood> {
    let before = site.arrived()?;
    let begun = Instant::now();
    let from = |side: Side| site.host(side).enter(move || send(site.flows(side), size.into(), length, pace));
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| from(Side::One));
        let two = from(Side::Two);
        (one.join(), two)
    });
    let elapsed = begun.elapsed();
    let failed = |error: io::Error| Error::io("send datagrams")(error);
    let one = one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?.map_err(failed)?;
    let cpu = one + two?.map_err(failed)?;
    // Datagrams in transit.
    std::thread::sleep(Duration::from_millis(100));
    Ok(Flood { octets: site.arrived()? - before, elapsed, cpu })
}

/// Alternates between the sockets of the flows. Returns the thread's processor time.
fn send(
    flows: impl Iterator<Item = (IpAddr, IpAddr)>,
    size: usize,
    length: Duration,
    pace: Option<f64>,
) -> io::Result<Duration> {
    let before = used()?;
    let connect = |(from, to)| {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect((to, DISCARD)).map(|()| socket)
    };
    let sockets: Vec<UdpSocket> = flows.map(connect).collect::<io::Result<_>>()?;
    let mut turns = sockets.iter().cycle();
    let payload = vec![0x55; size.saturating_sub(HEADERS)];
    let (begun, mut sent) = (Instant::now(), 0.0);
    while begun.elapsed() < length {
        let due = pace.map_or(f64::from(TRAIN), |pace| begun.elapsed().as_secs_f64() * pace - sent);
        // Datagrams that are late are not sent at all.
        let count = due.clamp(0.0, f64::from(TRAIN)) as u32;
        for socket in turns.by_ref().take(count as usize) {
            match socket.send(&payload) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(pace) = pace {
            sent = (sent + f64::from(count)).max(begun.elapsed().as_secs_f64() * pace - f64::from(TRAIN));
            std::thread::sleep(PAUSE);
        }
    }
    Ok(used()?.saturating_sub(before))
}

/// A gateway's reply to an earlier datagram, after which the kernel fragments; or no buffer at the
/// moment. Datagrams that do not arrive do not count.
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMSGSIZE | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENOBUFS))
}

fn used() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let time = |value: TimeVal| Duration::new(value.tv_sec() as u64, value.tv_usec() as u32 * 1000);
    Ok(time(usage.user_time()) + time(usage.system_time()))
}
