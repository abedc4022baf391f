//! Many initiators on one socket, a limited number of them active at the same time. Each has its
//! own loopback address, so that the responder's limits by source see what they would see in
//! practice.

use super::initiator::{Initiator, Place, Progress, Template, number_of};
use super::shape::Shape;
use crate::error::BenchError;
use nix::cmsg_space;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt, sockopt,
};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use testudo_ike::output::Path;

/// How long the swarm waits for an answer before it checks the clock.
const TICK_MS: u16 = 20;
const IKE_PORT: u16 = 500;

/// The socket and the active initiators.
pub(crate) struct Swarm {
    socket: UdpSocket,
    place: Place,
    template: Template,
    at_work: BTreeMap<u32, Initiator>,
    /// Initiators that have ended, if the caller wants them.
    ended: Option<Ended>,
    buffer: Vec<u8>,
}

/// Initiators that have come to an end.
#[derive(Default)]
pub(crate) struct Ended {
    /// Initiators that have reached their goal.
    pub(crate) done: Vec<(u32, Initiator)>,
    /// Initiators that have failed, with the reason.
    pub(crate) failed: Vec<(u32, String)>,
}

/// The result of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) time: Duration,
    /// Messages that were retransmitted.
    pub(crate) repeated: u64,
}

/// The result of a storm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch {
    pub(crate) time: Duration,
    /// How long the intended number of handshakes was in progress.
    pub(crate) at_full_width: Duration,
    begun: u32,
    /// Tunnels that were set up.
    pub(crate) up: u32,
}

impl Swarm {
    /// Opens the socket. To be called inside the responder's namespace.
    pub(crate) fn open(shape: Shape, place: Place) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Socket { source };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, place.port)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let options = setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)
            .and_then(|()| setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)));
        options.map_err(|errno| failed(errno.into()))?;
        Ok(Self {
            socket,
            place,
            template: Template::new(shape, place)?,
            at_work: BTreeMap::new(),
            ended: None,
            buffer: vec![0; 65_536],
        })
    }

    /// Prepares initiators before the measurement.
    pub(crate) fn prepare(&self, numbers: std::ops::Range<u32>) -> Result<Vec<(u32, Initiator)>, BenchError> {
        numbers.map(|number| Ok((number, Initiator::new(&self.template, number)?))).collect()
    }

    /// Runs the initiators of the channel until the time is over, always `width` at the same time
    /// if there are enough.
    pub(crate) fn run_until(
        &mut self,
        prepared: &Receiver<(u32, Initiator)>,
        width: usize,
        over: &AtomicBool,
    ) -> Result<Stretch, BenchError> {
        let start = Instant::now();
        let mut stretch = Stretch::default();
        let mut last_up = start;
        while !over.load(Ordering::Relaxed) {
            while self.at_work.len() < width {
                let Ok((number, initiator)) = prepared.try_recv() else { break };
                stretch.begun += 1;
                self.at_work.insert(number, initiator);
                self.step(number)?;
            }
            let (waits_since, is_full) = (Instant::now(), self.at_work.len() >= width);
            if self.receive_all()? {
                last_up = Instant::now();
            } else {
                self.look_at_clock()?;
            }
            if is_full {
                stretch.at_full_width += waits_since.elapsed();
            }
            if last_up.elapsed() > Initiator::PATIENCE {
                return Err(BenchError::Silent { waiting: self.at_work.len() });
            }
        }
        stretch.time = start.elapsed();
        stretch.up = stretch.begun.saturating_sub(self.at_work.len() as u32);
        Ok(stretch)
    }

    /// Runs all of them to their end, at most `width` at the same time. Their state is dropped as
    /// soon as they are up; the responder keeps its own.
    pub(crate) fn run(
        &mut self,
        initiators: Vec<(u32, Initiator)>,
        width: usize,
    ) -> Result<Round, BenchError> {
        let start = Instant::now();
        let mut repeated = 0;
        let mut waiting = initiators.into_iter();
        let mut last_up = start;
        loop {
            self.set_to_work(&mut waiting, width)?;
            if self.at_work.is_empty() {
                return Ok(Round { time: last_up - start, repeated });
            }
            if self.receive_all()? {
                last_up = Instant::now();
            } else {
                repeated += self.look_at_clock()?;
            }
            if last_up.elapsed() > Initiator::PATIENCE {
                return Err(BenchError::Silent { waiting: self.at_work.len() });
            }
        }
    }

    /// Runs all of them, at most `width` at the same time, until they have reached their goal, have
    /// failed, or `limit` has passed. Calls `look` repeatedly with those that have ended. The rest
    /// counts as failed.
    pub(crate) fn follow(
        &mut self,
        initiators: Vec<(u32, Initiator)>,
        width: usize,
        limit: Duration,
        mut look: impl FnMut(&Ended) -> Result<(), BenchError>,
    ) -> Result<Ended, BenchError> {
        let start = Instant::now();
        self.ended = Some(Ended::default());
        let mut waiting = initiators.into_iter();
        loop {
            self.set_to_work(&mut waiting, width)?;
            if self.at_work.is_empty() || start.elapsed() > limit {
                break;
            }
            // Also while others are answered: an initiator without an answer must retransmit.
            self.receive_all()?;
            self.look_at_clock()?;
            self.ended.as_ref().map_or(Ok(()), &mut look)?;
        }
        let mut ended = self.ended.take().unwrap_or_default();
        let late = std::mem::take(&mut self.at_work).into_keys().chain(waiting.map(|(number, _)| number));
        ended.failed.extend(late.map(|number| (number, format!("not done after {limit:?}"))));
        Ok(ended)
    }

    /// Starts further ones, up to `width` in total.
    fn set_to_work(
        &mut self,
        waiting: &mut impl Iterator<Item = (u32, Initiator)>,
        width: usize,
    ) -> Result<(), BenchError> {
        while self.at_work.len() < width {
            let Some((number, initiator)) = waiting.next() else { break };
            self.at_work.insert(number, initiator);
            self.step(number)?;
        }
        Ok(())
    }

    /// Receives waiting messages, or waits for one for a short time. Returns true if there was any.
    fn receive_all(&mut self) -> Result<bool, BenchError> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // Even if it was interrupted: the socket shows what there is.
        let _ = poll(&mut fds, PollTimeout::from(TICK_MS));
        let mut any = false;
        while let Some((number, path, len)) = self.receive()? {
            any = true;
            if let Some(initiator) = self.at_work.get_mut(&number) {
                initiator.receive(path, self.buffer.get(..len).unwrap_or_default());
                self.step(number)?;
            }
        }
        Ok(any)
    }

    fn look_at_clock(&mut self) -> Result<u64, BenchError> {
        let due = self.at_work.iter_mut().filter_map(|(n, i)| i.look_at_clock().then_some(*n));
        let due: Vec<u32> = due.collect();
        due.iter().try_for_each(|number| self.step(*number))?;
        Ok(due.len() as u64)
    }

    /// Lets an initiator send, and drops it when it is up.
    fn step(&mut self, number: u32) -> Result<(), BenchError> {
        let Some(initiator) = self.at_work.get_mut(&number) else { return Ok(()) };
        let socket = &self.socket;
        let mut failure = None;
        let progress = initiator.run(|path, bytes| {
            if let Err(error) = send(socket, path, bytes) {
                failure = Some(error);
            }
        });
        match (progress, failure) {
            (_, Some(source)) => Err(BenchError::Socket { source: source.into() }),
            (Progress::Failed(reason), _) => {
                let ended =
                    self.ended.as_mut().ok_or_else(|| BenchError::Refused { reason: reason.clone() })?;
                ended.failed.push((number, reason));
                self.at_work.remove(&number);
                Ok(())
            }
            (Progress::Done, _) => {
                let done = self.at_work.remove(&number);
                if let Some(ended) = &mut self.ended {
                    ended.done.extend(done.map(|initiator| (number, initiator)));
                }
                Ok(())
            }
            (Progress::Waiting, _) => Ok(()),
        }
    }

    fn receive(&mut self) -> Result<Option<(u32, Path, usize)>, BenchError> {
        let mut space = cmsg_space!(libc::in_pktinfo);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), MsgFlags::empty()) {
            Err(nix::errno::Errno::EAGAIN) => return Ok(None),
            result => result.map_err(|errno| BenchError::Socket { source: errno.into() })?,
        };
        let controls = message.cmsgs().map_err(|errno| BenchError::Socket { source: errno.into() })?;
        let local = controls.into_iter().find_map(|control| match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(u32::from_be(info.ipi_addr.s_addr)),
            _ => None,
        });
        let local = Ipv4Addr::from_bits(local.unwrap_or_default());
        let path = Path {
            local: SocketAddr::new(local.into(), self.place.port),
            remote: SocketAddr::new(self.place.responder.into(), IKE_PORT),
        };
        Ok(Some((number_of(local), path, message.bytes)))
    }
}

/// Sends from the path's local address.
fn send(socket: &UdpSocket, path: Path, bytes: &[u8]) -> nix::Result<()> {
    let (IpAddr::V4(local), SocketAddr::V4(remote)) = (path.local.ip(), path.remote) else { return Ok(()) };
    let none = libc::in_addr { s_addr: 0 };
    let source = libc::in_addr { s_addr: local.to_bits().to_be() };
    let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: none };
    let parts = [IoSlice::new(bytes)];
    let control = [ControlMessage::Ipv4PacketInfo(&info)];
    let to = SockaddrIn::from(remote);
    match sendmsg(socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), Some(&to)) {
        // Counts as lost: it will be retransmitted.
        Ok(_) | Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ENOBUFS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
