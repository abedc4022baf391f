//! Processor time per packet of a running DPDK program.
//!
//! Each DPDK program answers queries on a socket, and reports how many packets its port has sent.
//! The processor time is the kernel's count for the process: other processes on the same core do
//! not count. The figure is the median of many short stretches, as for our own pipeline.

use super::error::{ProgramError, SecgwError};
use crate::stopwatch::{PerPacket, median};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_crypto::cycles;

/// Below `RUNTIME_DIRECTORY`.
const SOCKET: &str = "dpdk/rte/dpdk_telemetry.v2";
/// Requests the counters of the first port.
const QUESTION: &str = "/ethdev/stats";
/// Size of the longest answer, in octets.
const ANSWER: usize = 16 << 10;
/// Time limit until the first packet is sent: among other things the program waits for links.
const START: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(20);
/// Before the first stretch of a round: warms up caches and branch predictor.
const WARM_UP: Duration = Duration::from_millis(20);
/// The answers, some 50 us each, are negligible in it.
const STRETCH: Duration = Duration::from_millis(20);
/// Tolerated fraction of packets that were received and not sent, or of octets too many or too few.
const TOLERANCE: f64 = 0.02;

/// A program and its results. It is stopped except in its rounds, and ends when this is dropped.
pub(super) struct Meter {
    program: Program,
    socket: OwnedFd,
    /// The mean length that a sent packet should have.
    octets: f64,
    stretches: Vec<PerPacket>,
}

struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Its counters so far.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    time: Duration,
    received: u64,
    sent: u64,
    octets_sent: u64,
}

impl Meter {
    /// Starts a program, which may leave files in this directory, and waits until it sends.
    /// `octets` is the mean length that a sent packet should have.
    pub(super) fn start(command: &Command, dir: &Path, octets: f64) -> Result<Self, SecgwError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed =
            |error| SecgwError::Program { program: name.clone(), source: ProgramError::Start(error) };
        std::fs::create_dir(dir).map_err(failed)?;
        let mut program = Program::start(command, dir).map_err(failed)?;
        let socket = program.until_it_sends(dir).map_err(|error| program.failed(error))?;
        let meter = Self { program, socket, octets, stretches: Vec::new() };
        meter.signal(Signal::SIGSTOP)?;
        Ok(meter)
    }

    /// Lets it run for that long.
    pub(super) fn round(&mut self, time: Duration) -> Result<(), SecgwError> {
        self.signal(Signal::SIGCONT)?;
        let stretches = self.stretches(time).map_err(|error| self.program.failed(error))?;
        self.stretches.extend(stretches);
        self.signal(Signal::SIGSTOP)
    }

    /// Discards the rounds so far.
    pub(super) fn reset(&mut self) {
        self.stretches.clear();
    }

    /// The median of all stretches.
    pub(super) fn median(&self) -> Result<PerPacket, SecgwError> {
        let ns = median(self.stretches.iter().map(|stretch| stretch.ns));
        let cycles = median(self.stretches.iter().filter_map(|stretch| stretch.cycles));
        ns.map(|ns| PerPacket { ns, cycles }).ok_or_else(|| self.program.failed(ProgramError::Unmeasured))
    }

    fn stretches(&self, time: Duration) -> Result<Vec<PerPacket>, ProgramError> {
        sleep(WARM_UP);
        let (start, cycles_before) = (Instant::now(), cycles::now());
        let mut counts = vec![self.program.counts(&self.socket)?];
        while start.elapsed() < time || counts.len() < 2 {
            sleep(STRETCH);
            counts.push(self.program.counts(&self.socket)?);
        }
        let passed = start.elapsed().as_nanos() as f64;
        let cycles = cycles_before.zip(cycles::now()).map(|(before, after)| (after - before) as f64);
        is_whole(&counts, self.octets)?;
        let of = |ns| PerPacket { ns, cycles: cycles.map(|cycles| ns * cycles / passed) };
        Ok(per_packet(&counts).map(of).collect())
    }

    fn signal(&self, signal: Signal) -> Result<(), SecgwError> {
        kill(self.program.pid(), signal).map_err(|error| self.program.failed(ProgramError::Signal(error)))
    }
}

impl Program {
    fn start(command: &Command, dir: &Path) -> std::io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = dir.join("log");
        let output = File::create(&log)?;
        // If this process were killed, the program would stay stopped and keep its memory.
        let mut guarded = Command::new("setpriv");
        guarded.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
        guarded.env("RUNTIME_DIRECTORY", dir).stdin(Stdio::piped());
        guarded.stderr(output.try_clone()?).stdout(output);
        Ok(Self { name, child: guarded.spawn()?, log })
    }

    fn until_it_sends(&mut self, dir: &Path) -> Result<OwnedFd, ProgramError> {
        let start = Instant::now();
        loop {
            let socket = ask_at(&dir.join(SOCKET));
            if let Ok(socket) = socket
                && self.counts(&socket).is_ok_and(|counts| counts.sent > 0)
            {
                return Ok(socket);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(ProgramError::Ended { status, last_line: self.last_line() });
            }
            if start.elapsed() > START {
                return Err(ProgramError::Silent { limit: START, last_line: self.last_line() });
            }
            sleep(RETRY);
        }
    }

    /// The last line of its output.
    fn last_line(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").trim().to_owned()
    }

    fn counts(&self, socket: &OwnedFd) -> Result<Counts, ProgramError> {
        let failed = ProgramError::Unanswered;
        send(socket.as_raw_fd(), format!("{QUESTION},0").as_bytes(), MsgFlags::MSG_NOSIGNAL)
            .map_err(failed)?;
        let mut answer = [0; ANSWER];
        let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(failed)?;
        let clock = clock_getcpuclockid(self.pid()).map_err(failed)?;
        let time = Duration::from(clock.now().map_err(failed)?);
        let answer = answer.get(..len).unwrap_or_default();
        let unknown = || ProgramError::Answer { answer: String::from_utf8_lossy(answer).into_owned() };
        counts(answer, time).ok_or_else(unknown)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn failed(&self, source: ProgramError) -> SecgwError {
        SecgwError::Program { program: self.name.clone(), source }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection whose greeting has been read.
fn ask_at(path: &Path) -> nix::Result<OwnedFd> {
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, ReceiveTimeout, &TimeVal::seconds(5))?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    recv(fd.as_raw_fd(), &mut [0; ANSWER], MsgFlags::empty())?;
    Ok(fd)
}

/// Parses an answer. `None` while the port does not exist.
fn counts(answer: &[u8], time: Duration) -> Option<Counts> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let count = |name: &str| answer.get(QUESTION)?.get(name)?.as_u64();
    Some(Counts {
        time,
        received: count("ipackets")?,
        sent: count("opackets")?,
        octets_sent: count("obytes")?,
    })
}

/// Nanoseconds per packet of each stretch.
fn per_packet(counts: &[Counts]) -> impl Iterator<Item = f64> {
    let stretches = counts.iter().zip(counts.iter().skip(1));
    stretches.filter(|(before, after)| after.sent > before.sent).map(|(before, after)| {
        (after.time - before.time).as_nanos() as f64 / (after.sent - before.sent) as f64
    })
}

/// Checks that received packets were sent, with the expected length.
fn is_whole(counts: &[Counts], octets: f64) -> Result<(), ProgramError> {
    let [first, .., last] = counts else { return Err(ProgramError::TooShort) };
    let (received, sent) = (last.received - first.received, last.sent - first.sent);
    if (sent as f64) < received as f64 * (1.0 - TOLERANCE) {
        return Err(ProgramError::Lost { sent, received });
    }
    let found = (last.octets_sent - first.octets_sent) as f64 / sent as f64;
    if (found / octets - 1.0).abs() > TOLERANCE {
        return Err(ProgramError::FrameLength { found, expected: octets });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64, received: u64, sent: u64) -> Counts {
        Counts { time: Duration::from_micros(micros), received, sent, octets_sent: 100 * sent }
    }

    #[test]
    fn counters_are_read_from_answers() {
        let answer =
            br#"{"/ethdev/stats":{"ipackets":7,"opackets":5,"ibytes":700,"obytes":500,"q_ipackets":[7]}}"#;
        assert_eq!(counts(answer, Duration::from_micros(3)), Some(at(3, 7, 5)));
        for other in [&br#"{"/ethdev/stats":null}"#[..], b"{}", b""] {
            assert_eq!(counts(other, Duration::ZERO), None);
        }
    }

    #[test]
    fn stretches_without_packets_do_not_count() {
        let counts = [at(0, 0, 0), at(900, 1000, 1000), at(1100, 2000, 2000), at(1400, 2000, 2000)];
        assert_eq!(per_packet(&counts).collect::<Vec<_>>(), [900.0, 200.0]);
        assert_eq!(per_packet(&[]).count(), 0);
    }

    #[test]
    fn lost_and_unchanged_packets_are_noticed() {
        let flaw = |counts: &[Counts], octets| is_whole(counts, octets).err().map(|flaw| flaw.to_string());
        assert_eq!(flaw(&[at(0, 50, 0), at(9, 1050, 990)], 100.0), None);
        let lost = flaw(&[at(0, 0, 0), at(9, 1000, 500)], 100.0);
        assert_eq!(lost.as_deref(), Some("500 packets sent of 1000"));
        let other = flaw(&[at(0, 0, 0), at(9, 1000, 1000)], 154.0);
        assert_eq!(other.as_deref(), Some("frames of 100 octets, expected 154"));
    }

    #[test]
    fn a_program_that_ends_is_quoted() {
        let dir = tempfile::tempdir().expect("a directory");
        let start = |command: &Command, name| {
            let error = Meter::start(command, &dir.path().join(name), 0.0).err();
            error.expect("it does not send").to_string()
        };
        let mut command = Command::new("sh");
        command.args(["-c", "echo EAL: no memory; exit 3"]);
        assert_eq!(start(&command, "a"), "sh: exit status: 3: EAL: no memory");
        let error = start(&Command::new("/nowhere/testpmd"), "b");
        assert!(error.starts_with("/nowhere/testpmd: ") && error.contains("No such file"), "{error}");
    }
}
