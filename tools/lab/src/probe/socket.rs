//! The receiving socket, and the content of a datagram.

use super::Arrival;
use aws_lc_rs::rand;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use nix::time::ClockId;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Buffer for datagrams that arrive while the thread has no CPU: about five seconds of one datagram
/// a millisecond, with the kernel's overhead.
const BUFFER: usize = 8 << 20;
/// How often it checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// Readings of two clocks closer together than this count as simultaneous.
const CLOSE: Duration = Duration::from_micros(20);
const HEADER: usize = 16;

/// Receives the datagrams of one run.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UdpSocket,
    run: u64,
}

impl Receiver {
    /// Opens it in the namespace of the calling thread.
    pub(super) fn open(address: SocketAddr, run: u64) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(LOOK))?;
        setsockopt(&socket, RcvBufForce, &BUFFER)?;
        // The kernel may start time stamps a moment later; until then the time of reading is used.
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        Ok(Self { socket, run })
    }

    /// The address to send to.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Receives until it is told to stop.
    pub(super) fn run(&self, stop: &AtomicBool) -> io::Result<Vec<Arrival>> {
        super::raise_priority();
        let mut arrivals = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            if let Some(arrival) = self.receive()? {
                arrivals.push(arrival);
            }
        }
        Ok(arrivals)
    }

    /// The next datagram; `None` after a timeout, or for a datagram of another run.
    fn receive(&self) -> io::Result<Option<Arrival>> {
        let mut bytes = [0; HEADER];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut control = nix::cmsg_space!(TimeSpec);
        let received =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty());
        let message = match received {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stamp = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
            _ => None,
        });
        let (length, stamp) = (message.bytes, stamp.ok_or(io::ErrorKind::InvalidData)?);
        let at = instant(stamp)?;
        Ok((length == HEADER).then(|| self.number(bytes)).flatten().map(|number| Arrival { number, at }))
    }

    fn number(&self, bytes: [u8; HEADER]) -> Option<u64> {
        let value = u128::from_be_bytes(bytes);
        ((value >> 64) as u64 == self.run).then_some(value as u64)
    }
}

/// The content of a datagram: the run, the number, zeros.
pub(super) fn datagram(run: u64, number: u64, octets: usize) -> Vec<u8> {
    let mut bytes = [run.to_be_bytes(), number.to_be_bytes()].concat();
    bytes.resize(octets.max(HEADER), 0);
    bytes
}

/// A number that no other run has.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| io::Error::other("no random octets"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Converts the kernel's time stamp, a time of day, to the clock of [`Instant`].
fn instant(stamp: TimeSpec) -> io::Result<Instant> {
    let (now, day) = both_clocks()?;
    let age = Duration::from(day).saturating_sub(Duration::from(stamp));
    Ok(now.checked_sub(age).unwrap_or(now))
}

/// Reads both clocks at the same time, as closely as the scheduler allows.
fn both_clocks() -> nix::Result<(Instant, TimeSpec)> {
    let mut read = (Instant::now(), ClockId::CLOCK_REALTIME.now()?);
    for _ in 0..3 {
        if read.0.elapsed() < CLOSE {
            break;
        }
        read = (Instant::now(), ClockId::CLOCK_REALTIME.now()?);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_time_of_the_kernel() {
        let receiver = Receiver::open("127.0.0.1:0".parse().unwrap(), 7).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let slack = Duration::from_millis(1);
        let in_time = |number| {
            let before = Instant::now();
            sender.send_to(&datagram(7, number, 160), receiver.address().unwrap()).unwrap();
            let after = Instant::now();
            // Read late: this must not change the times.
            std::thread::sleep(Duration::from_millis(60));
            let arrival = receiver.receive().unwrap().unwrap();
            assert_eq!(arrival.number, number);
            before - slack <= arrival.at && arrival.at <= after + slack
        };
        assert!((0..50).any(in_time));
    }

    #[test]
    fn datagrams_of_others_do_not_count() {
        let receiver = Receiver::open("[::1]:0".parse().unwrap(), 7).unwrap();
        let sender = UdpSocket::bind("[::1]:0").unwrap();
        for bytes in [&datagram(8, 1, 160)[..], &[7; 3], &[]] {
            sender.send_to(bytes, receiver.address().unwrap()).unwrap();
            assert_eq!(receiver.receive().unwrap(), None);
        }
        assert_eq!(receiver.receive().unwrap(), None);
    }
}
