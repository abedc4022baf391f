//! Whether the migration port can be reached in clear, around the Child SA.
//!
//! A TCP segment that opens a connection is sent with the mark of testudod's own packets: the
//! kernel does not route those into the TUN, so it leaves in clear. The destination's testudod has
//! to drop it, as its counters show, and no answer may come: neither through the SA nor in clear,
//! which the source's testudod would drop and count. The counters are of whole hosts, so what they
//! show may be another packet; an answer through the SA is certain.

use super::channel::Flow;
use super::vm::Side;
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use nix::unistd::geteuid;
use segment::Ports;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
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
/// How long an answer is waited for, and the counts: workers add up every two seconds.
const LIMIT: Duration = Duration::from_millis(2500);
const POLL: Duration = Duration::from_millis(50);
const DAEMON_LIMIT: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 16;
/// Beside the socket of the source's testudod, where only root may write.
const LOCK: &str = "migration-probe.lock";
/// Another command needs up to five seconds: sixty of them, one after the other.
const LOCK_LIMIT: Duration = Duration::from_secs(300);

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
    #[error("a packet came back in clear, perhaps the answer of {0} to one in clear that it did not drop")]
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
    #[error("{}: {error}", path.display())]
    Lock { path: PathBuf, error: io::Error },
    #[error("other commands have been trying for {} seconds: {}", LOCK_LIMIT.as_secs(), .0.display())]
    Busy(PathBuf),
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
/// answered. Only one command of a host tries at a time: many packets in clear are an alarm, which
/// cancels migrations.
pub(super) fn attempt([source, destination]: [(Side, &Path); 2], flow: Flow) -> Result<Clear, ClearError> {
    let attempt = || {
        let _alone = alone(source.1, LOCK_LIMIT)?;
        let [mut ours, mut theirs] = [Drops::begin(source)?, Drops::begin(destination)?];
        let opening = Opening::bind(flow)?;
        for _ in 0..TRIES {
            opening.send()?;
            if opening.is_answered(LIMIT)? {
                return Ok(Err(ClearError::Answered(flow.to)));
            }
            let [came, dropped] = [ours.have_grown()?, theirs.have_grown()?];
            if let Some(seen) = seen(came, dropped, flow.to) {
                return Ok(seen);
            }
        }
        Ok(Ok(Clear::Silent))
    };
    attempt().unwrap_or_else(|error: UntriedError| Ok(Clear::Untried(error.to_string())))
}

/// Waits until no other command of this host tries. Nobody but root can open the file: whoever
/// can, can keep all migrations from being examined.
fn alone(socket: &Path, limit: Duration) -> Result<File, UntriedError> {
    let path = socket.with_file_name(LOCK);
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    // A stranger's FIFO of that name would keep this waiting.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = options.custom_flags(flags.bits()).open(&path).and_then(only_ours);
    let file = match opened {
        Ok(file) => file,
        Err(error) => return Err(UntriedError::Lock { path, error }),
    };
    let until = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(POLL),
            Err(TryLockError::WouldBlock) => return Err(UntriedError::Busy(path)),
            Err(TryLockError::Error(error)) => return Err(UntriedError::Lock { path, error }),
        }
    }
}

/// Refuses what another user may have made, or may lock.
fn only_ours(file: File) -> io::Result<File> {
    let found = file.metadata()?;
    let is_ours = found.is_file() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    is_ours.then_some(file).ok_or_else(|| io::Error::other("a file of this user with mode 0600 was expected"))
}

/// What both testudods have dropped of clear text while no answer was heard. Another packet at the
/// source alone refuses nothing: the destination's testudod has to have missed ours.
fn seen(came: bool, dropped: bool, to: SocketAddr) -> Option<Result<Clear, ClearError>> {
    match (came, dropped) {
        (_, true) => Some(Ok(Clear::Dropped)),
        (true, false) => Some(Err(ClearError::AnsweredInClear(to))),
        (false, false) => None,
    }
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

/// The sockets for a connection that is asked for in clear.
struct Opening {
    flow: Flow,
    ports: Ports,
    /// Sends in clear.
    out: UdpSocket,
    /// Gets all TCP from the destination, however it has come.
    answers: UdpSocket,
    /// Keeps other programs from using the port. It does not listen.
    _kept: TcpListener,
}

impl Opening {
    /// Opens them. That takes the capabilities CAP_NET_RAW and CAP_NET_ADMIN.
    fn bind(flow: Flow) -> Result<Self, UntriedError> {
        let from = SocketAddr::new(flow.from, 0);
        let kept = TcpListener::from(open(from, SockType::Stream)?);
        let [out, answers] = [open(from, SockType::Raw)?, open(from, SockType::Raw)?];
        setsockopt(&out, sockopt::Mark, &MARK)?;
        // The standard library has no type for raw sockets; that of UDP sockets fits.
        let answers = UdpSocket::from(answers);
        answers.connect(SocketAddr::new(flow.to.ip(), 0))?;
        answers.set_read_timeout(Some(POLL))?;
        let ports = Ports { ours: kept.local_addr()?.port(), theirs: flow.to.port() };
        Ok(Self { flow, ports, out: out.into(), answers, _kept: kept })
    }

    fn send(&self) -> Result<(), io::Error> {
        let segment = self.ports.segment(self.flow.from, self.flow.to.ip());
        self.out.send_to(&segment, SocketAddr::new(self.flow.to.ip(), 0)).map(drop)
    }

    /// Whether an answer comes within this time.
    fn is_answered(&self, limit: Duration) -> io::Result<bool> {
        let until = Instant::now() + limit;
        let mut packet = [0; LARGEST];
        loop {
            match self.answers.recv(&mut packet) {
                Ok(len) if packet.get(..len).is_some_and(|packet| self.is_answer(packet)) => return Ok(true),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() > until {
                return Ok(false);
            }
        }
    }

    fn is_answer(&self, packet: &[u8]) -> bool {
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
    use super::super::scripted;
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    /// Nothing protects what a host sends itself.
    #[test]
    fn a_port_that_is_reached_in_clear_answers() {
        for address in ["127.0.0.1", "::1"] {
            let from: IpAddr = address.parse().unwrap();
            let free = TcpListener::bind((from, 0)).unwrap().local_addr().unwrap();
            let opening = Opening::bind(Flow { from, to: free }).unwrap();
            assert!(!opening.is_answered(POLL).unwrap(), "nothing was sent");
            opening.send().unwrap();
            assert!(opening.is_answered(10 * LIMIT).unwrap(), "{address}");
        }
    }

    /// And that refuses the migration, whatever is counted.
    #[test]
    fn an_answer_refuses() {
        let to = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let counters = || Some(Counters::default().to_message());
        let many = || std::iter::repeat_with(counters).take(3).collect();
        let [(_one, ours), (_other, theirs)] = [(); 2].map(|()| scripted::daemon(COMMAND, many(), |_| ()));
        let daemons = [(Side::Source, &*ours), (Side::Destination, &*theirs)];
        let found = attempt(daemons, Flow { from: to.ip(), to });
        assert!(matches!(found, Err(ClearError::Answered(answered)) if answered == to), "{found:?}");
    }

    /// A command that never ends does not keep the others waiting for ever, and nobody but the
    /// owner can open the file.
    #[test]
    fn one_tries_at_a_time_and_the_others_wait_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("vici.sock");
        let first = alone(&socket, Duration::ZERO).unwrap();
        assert_eq!(first.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let busy = alone(&socket, 2 * POLL).unwrap_err().to_string();
        assert!(busy.starts_with("other commands have been trying for 300 seconds: "), "{busy}");
        drop(first);
        // A process that another test begins may hold a copy of it for a moment.
        alone(&socket, LOCK_LIMIT).unwrap();
        let missing = alone(&dir.path().join("none/vici.sock"), Duration::ZERO).unwrap_err().to_string();
        assert!(missing.contains("none/migration-probe.lock: "), "{missing}");
        std::fs::set_permissions(dir.path().join(LOCK), Permissions::from_mode(0o644)).unwrap();
        let strange = alone(&socket, Duration::ZERO).unwrap_err().to_string();
        assert!(strange.ends_with("a file of this user with mode 0600 was expected"), "{strange}");
    }

    #[test]
    fn what_only_the_source_has_dropped_refuses() {
        let to = "192.0.2.2:49152".parse().unwrap();
        assert!(matches!(seen(true, true, to), Some(Ok(Clear::Dropped))));
        assert!(matches!(seen(false, true, to), Some(Ok(Clear::Dropped))));
        assert!(matches!(seen(true, false, to), Some(Err(ClearError::AnsweredInClear(_)))));
        assert!(seen(false, false, to).is_none());
    }
}
