//! Packets from the kernel: read one at a time, large TCP segments cut into frames.

use super::counters::WorkerCounters;
use super::drops::WorkerDrop;
use super::host::HostPort;
use super::route::AddressKey;
use crate::frame::{FramePool, HEADROOM};
use crate::port::{BURST, FrameBurst};
use std::io::ErrorKind;
use testudo_wire::offload::{Cutter, Offload, complete};

/// Octets of the largest packet that a kernel makes.
const MAX_KERNEL_PACKET_LEN: usize = 1 << 16;

/// What is still to be put into frames.
#[derive(Debug)]
enum Work {
    /// A packet of this length.
    Packet(usize),
    /// The rest of a large segment, and whether a part of it is in frames already.
    Segments { cutter: Cutter, begun: bool },
}

/// The packet that was read last, until all of it is in frames.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    work: Option<Work>,
}

impl Inbox {
    /// An inbox with room for a packet, if there is a host port.
    pub(super) fn new(has_host: bool) -> Self {
        Self { buffer: vec![0; if has_host { MAX_KERNEL_PACKET_LEN } else { 0 }].into(), work: None }
    }

    /// True if a packet waits for frames.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.work.is_some()
    }

    /// Reads packets into frames of the pool until the burst is full, there are no more packets, or
    /// no frame is free; in the last case the kernel keeps the rest.
    pub(super) fn fill<H: HostPort>(
        &mut self,
        host: &mut H,
        pool: &mut FramePool,
        counters: &WorkerCounters,
        burst: &mut FrameBurst,
    ) {
        while !burst.is_full() {
            if self.work.is_none() {
                self.work = self.read(host, counters);
            }
            let Some(work) = self.work.take() else { return };
            match put(work, &self.buffer, pool, counters, burst) {
                Put::Done => {}
                Put::More(work) => self.work = Some(work),
                Put::Wait(work) => {
                    self.work = Some(work);
                    return;
                }
            }
        }
    }

    /// Reads a packet, and does the work that the kernel left undone. Gives up after a burst of
    /// packets that are dropped: the ports must be polled too.
    fn read<H: HostPort>(&mut self, host: &mut H, counters: &WorkerCounters) -> Option<Work> {
        for _ in 0..BURST {
            let read = match host.read(&mut self.buffer) {
                Ok(None) => return None,
                Ok(Some((len, offload))) => prepare(&mut self.buffer[..len], offload),
                Err(error) if error.kind() == ErrorKind::InvalidData => Err(WorkerDrop::BadOffload),
                // If the error persists, the next turn meets it again.
                Err(_) => return None,
            };
            match read {
                Ok(work) => return Some(work),
                Err(reason) => {
                    counters.from_tun.add(1);
                    counters.count_drop(reason);
                }
            }
        }
        None
    }
}

fn prepare(packet: &mut [u8], offload: Offload) -> Result<Work, WorkerDrop> {
    // It ends on this link whatever the SPD says, and must not bring up a tunnel for everything.
    if AddressKey::source(packet).is_some_and(AddressKey::is_unspecified) {
        return Err(WorkerDrop::NoSource);
    }
    match offload {
        Offload::None => {}
        Offload::Checksum { start, offset } => {
            complete(packet, start, offset).map_err(|_| WorkerDrop::BadOffload)?;
        }
        Offload::Tcp { size, .. } => {
            let cutter = Cutter::new(packet, size).map_err(|_| WorkerDrop::BadOffload)?;
            return Ok(Work::Segments { cutter, begun: false });
        }
    }
    Ok(Work::Packet(packet.len()))
}

/// The result of putting something into a frame.
enum Put {
    Done,
    More(Work),
    /// No frame is free now.
    Wait(Work),
}

/// Puts a packet, or the next segment, into a frame.
#[inline]
fn put(
    work: Work,
    buffer: &[u8],
    pool: &mut FramePool,
    counters: &WorkerCounters,
    burst: &mut FrameBurst,
) -> Put {
    let (len, begun) = match &work {
        Work::Packet(len) => (*len, false),
        Work::Segments { cutter, begun } => match cutter.next_len() {
            Some(len) => (len, *begun),
            None => return Put::Done,
        },
    };
    // Segments beyond the first count as packets that splitting adds.
    let count = || if begun { counters.split.add(1) } else { counters.from_tun.add(1) };
    if len > pool.memory().largest_mtu() as usize {
        // All that is left of a large segment is counted as one packet.
        count();
        counters.count_drop(WorkerDrop::NoFrame);
        return Put::Done;
    }
    let Some(mut frame) = pool.take_for(len) else { return Put::Wait(work) };
    count();
    let start = usize::from(HEADROOM);
    let written = match work {
        Work::Packet(len) => frame.fill(&buffer[..len]).then_some(Put::Done),
        Work::Segments { mut cutter, .. } => {
            let written = cutter.write_next(buffer, &mut frame.bytes_mut()[start..]);
            let fits = matches!(written, Ok(Some(len)) if frame.set_extent(start, len));
            fits.then_some(match cutter.next_len() {
                Some(_) => Put::More(Work::Segments { cutter, begun: true }),
                None => Put::Done,
            })
        }
    };
    match written {
        Some(next) => {
            burst.push(frame);
            next
        }
        None => {
            pool.give(frame);
            counters.count_drop(WorkerDrop::BadOffload);
            Put::Done
        }
    }
}
