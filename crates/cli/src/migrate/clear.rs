//! Whether the migration port can be reached in clear, around the Child SA.
//!
//! A TCP segment that opens a connection is sent with the mark of testudod's own packets: the
//! kernel does not route those into the TUN, so it leaves in clear. The destination's testudod has
//! to drop it, as its counters show, and no answer may come: neither through the SA nor in clear,
//! which the source's testudod would drop and count.

use super::channel::Flow;
use super::meter::{Meter, MeterError};
use super::vm::Side;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use segment::Ports;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::counters::Counters;
use testudo_vici::mark::MARK;
use testudo_vici::message::Message;

mod segment;

const COMMAND: &str = "testudo-counters";
/// Where testudod counts what came in clear and must be protected: its filter, or a worker.
const DROPS: [&str; 2] = ["filter_drop_clear_inbound", "clear_but_protected"];
/// A single packet may get lost. Four within a second raise an alarm.
const TRIES: u32 = 2;
/// How long an answer, or the count, may take: workers add up every two seconds.
const LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
const DAEMON_LIMIT: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 16;

/// What became of a packet in clear.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Clear {
    /// The destination's testudod has dropped it.
    Dropped,
    /// It was not answered, and the destination's testudod has not seen it.
    Silent,
    /// Why none could be sent.
    Untried(String),
}

/// Why the migration port is not known to be shut.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClearError {
    #[error("{0} has answered a packet that came in clear")]
    Answered(SocketAddr),
    #[error("a packet came back in clear, perhaps the answer of {0} to one in clear")]
    AnsweredInClear(SocketAddr),
}

/// Why none could be sent.
#[derive(Debug, thiserror::Error)]
enum UntriedError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Nix(#[from] nix::Error),
    #[error("testudod of the {side}: {error}")]
    Daemon { side: Side, error: Error },
    #[error("testudod of the source: {0}")]
    Meter(#[from] MeterError),
    #[error("it was led into the Child SA in spite of its mark {MARK:#x}")]
    Led,
}

impl Clear {
    /// Behind what the probe has found.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Dropped => "one in clear was dropped at the destination".to_owned(),
            Self::Silent => {
                "one in clear got no answer, and the destination's testudod did not see it".to_owned()
            }
            Self::Untried(why) => format!("none could be tried in clear: {why}"),
        }
    }
}

/// Tries it. Nobody listens at the port yet, so whatever reaches the destination's kernel is
/// answered.
pub(super) fn attempt(
    meter: &mut Meter,
    [source, destination]: [(Side, &Path); 2],
    flow: Flow,
) -> Result<Clear, ClearError> {
    let mut knock = || {
        let [mut ours, mut theirs] = [Drops::begin(source)?, Drops::begin(destination)?];
        let door = Door::open(flow)?;
        meter.begin()?;
        let end = knock(&door, &mut ours, &mut theirs)?;
        if matches!(end, Err(ClearError::Answered(_))) && is_led(meter)? {
            return Err(UntriedError::Led);
        }
        Ok(end)
    };
    knock().unwrap_or_else(|error: UntriedError| Ok(Clear::Untried(error.to_string())))
}

fn knock(
    door: &Door,
    ours: &mut Drops,
    theirs: &mut Drops,
) -> Result<Result<Clear, ClearError>, UntriedError> {
    let to = door.flow.to;
    for _ in 0..TRIES {
        door.knock()?;
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            let is_dropped = theirs.have_grown()?;
            if door.is_answered()? {
                return Ok(Err(ClearError::Answered(to)));
            }
            if ours.have_grown()? {
                return Ok(Err(ClearError::AnsweredInClear(to)));
            }
            if is_dropped {
                return Ok(Ok(Clear::Dropped));
            }
        }
    }
    Ok(Ok(Clear::Silent))
}

/// Whether the Child SA has carried anything since the meter's begin.
fn is_led(meter: &mut Meter) -> Result<bool, MeterError> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if meter.read()?.outbound > 0 {
            return Ok(true);
        }
        sleep(POLL);
    }
    Ok(false)
}

/// What a testudod drops from one moment on because it came in clear.
struct Drops {
    side: Side,
    client: Client,
    before: u64,
}

impl Drops {
    fn begin((side, socket): (Side, &Path)) -> Result<Self, UntriedError> {
        let begin = || {
            let mut client = Client::connect_within(socket, DAEMON_LIMIT)?;
            let before = dropped(&mut client)?;
            Ok(Self { side, client, before })
        };
        begin().map_err(|error| UntriedError::Daemon { side, error })
    }

    fn have_grown(&mut self) -> Result<bool, UntriedError> {
        let now = dropped(&mut self.client);
        let now = now.map_err(|error| UntriedError::Daemon { side: self.side, error })?;
        Ok(now > self.before)
    }
}

fn dropped(client: &mut Client) -> Result<u64, Error> {
    let counters = Counters::from_message(&client.request(COMMAND, Message::new())?)?;
    let clear = counters.drops.iter().filter(|(name, _)| DROPS.contains(&name.as_str()));
    Ok(clear.map(|(_, count)| count).sum())
}

/// The sockets for one flow, in clear.
struct Door {
    flow: Flow,
    ports: Ports,
    /// Sends in clear.
    out: UdpSocket,
    /// Hears all TCP from the destination, however it has come.
    ear: UdpSocket,
    /// Keeps other programs from using the port. It does not listen.
    _kept: TcpListener,
}

impl Door {
    /// Opens them. That takes the capabilities CAP_NET_RAW and CAP_NET_ADMIN.
    fn open(flow: Flow) -> Result<Self, UntriedError> {
        let from = SocketAddr::new(flow.from, 0);
        let kept = TcpListener::from(open(from, SockType::Stream)?);
        let [out, ear] = [open(from, SockType::Raw)?, open(from, SockType::Raw)?];
        setsockopt(&out, sockopt::Mark, &MARK)?;
        // The standard library has no type for raw sockets; that of UDP sockets fits.
        let ear = UdpSocket::from(ear);
        ear.set_read_timeout(Some(POLL))?;
        let ports = Ports { ours: kept.local_addr()?.port(), theirs: flow.to.port() };
        Ok(Self { flow, ports, out: out.into(), ear, _kept: kept })
    }

    fn knock(&self) -> Result<(), io::Error> {
        let segment = self.ports.segment(self.flow.from, self.flow.to.ip());
        self.out.send_to(&segment, SocketAddr::new(self.flow.to.ip(), 0)).map(drop)
    }

    /// Whether an answer has come, or comes at once.
    fn is_answered(&self) -> io::Result<bool> {
        let until = Instant::now() + POLL;
        let mut packet = [0; LARGEST];
        while Instant::now() < until {
            match self.ear.recv_from(&mut packet) {
                Ok((len, from)) => {
                    let answers = packet.get(..len).is_some_and(|packet| self.answers(packet));
                    if from.ip() == self.flow.to.ip() && answers {
                        return Ok(true);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn answers(&self, packet: &[u8]) -> bool {
        let header = match self.flow.from {
            // Raw sockets of IPv4 deliver the IP header too.
            IpAddr::V4(_) => packet.first().map_or(0, |first| usize::from(first & 15) * 4),
            IpAddr::V6(_) => 0,
        };
        packet.get(header..).is_some_and(|segment| self.ports.is_answer(segment))
    }
}

/// A TCP socket of this kind, bound to an address of this host.
fn open(from: SocketAddr, kind: SockType) -> Result<OwnedFd, nix::Error> {
    let family = if from.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing protects what a host sends itself.
    #[test]
    fn a_port_that_is_reached_in_clear_answers() {
        for address in ["127.0.0.1", "::1"] {
            let from: IpAddr = address.parse().unwrap();
            let free = TcpListener::bind((from, 0)).unwrap().local_addr().unwrap();
            let door = Door::open(Flow { from, to: free }).unwrap();
            assert!(!door.is_answered().unwrap(), "nobody has knocked");
            door.knock().unwrap();
            let begun = Instant::now();
            while !door.is_answered().unwrap() {
                assert!(begun.elapsed() < 10 * LIMIT, "{address}");
            }
        }
    }
}
