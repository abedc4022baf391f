//! A port over AF_XDP: one queue of one interface.

use super::join::Joiner;
use super::{Flushed, FrameBurst, Port, PortInfo, PortStatistics, link};
use crate::error::{Error, Result};
use crate::fib::PortIndex;
use crate::frame::{Frame, FrameMemory, FramePool, HEADROOM};
use crate::umem::{FrameDescriptor, Redeemed, Umem};
use crate::xsk::{Gauge, XskConfig, XskSocket};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Entries of a ring of the usual size, the largest that a gateway uses.
pub const RING_ENTRIES: u32 = 2048;

/// How to open an [`XdpPort`].
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// Number of the port within the instance.
    pub index: PortIndex,
    /// Name of the interface, in the network namespace of the calling thread.
    pub interface: String,
    /// Queue of the interface.
    pub queue: u32,
    /// Entries of the FILL and RX rings: packets that may wait for the worker. A power of two.
    pub rx_ring: u32,
    /// Entries of the TX and COMPLETION rings. A power of two.
    pub tx_ring: u32,
    /// The worker polls the device. Its interrupts stay off meanwhile, if the interface defers them
    /// (`napi_defer_hard_irqs`, `gro_flush_timeout`). Needs CAP_NET_ADMIN, and Linux 5.11.
    pub busy_poll: bool,
    /// Let the driver read and write frames itself. Fails where the driver cannot.
    pub zero_copy: bool,
    /// How long to wait for a queue that the kernel has not released yet. A thread for which others
    /// wait must not.
    pub patience: Duration,
    /// Ends that wait as soon as it is set.
    pub called_off: Option<Arc<AtomicBool>>,
}

/// A queue whose socket was closed just now is released by deferred work: EBUSY until then.
const REBIND_TIMEOUT: Duration = Duration::from_secs(3);

impl XdpConfig {
    /// Settings for queue 0 of an interface, with rings of the usual size, in copy mode.
    pub fn new(index: PortIndex, interface: &str) -> Self {
        Self {
            index,
            interface: interface.to_owned(),
            queue: 0,
            rx_ring: RING_ENTRIES,
            tx_ring: RING_ENTRIES,
            busy_poll: false,
            zero_copy: false,
            patience: REBIND_TIMEOUT,
            called_off: None,
        }
    }

    /// Bound on the frames that the port holds at a time. A pool should have as many for each of
    /// its ports, and some bursts. The FILL ring may be full while as many packets wait in the RX
    /// ring, and the TX ring while as many frames are with the device or in the COMPLETION ring.
    pub fn frames(&self) -> usize {
        2 * (self.rx_ring as usize + self.tx_ring as usize)
    }

    /// Bound on the jumbo frames that the port holds at a time, if its MTU needs them: each takes
    /// at least two descriptors of the TX ring.
    pub fn jumbo_frames(&self) -> usize {
        self.tx_ring as usize / 2
    }
}

/// One queue of an interface. Each other queue needs a port of its own: packets of a queue without
/// one are dropped. An XDP program must redirect received packets to the port's socket
/// ([`Port::fd`]).
#[derive(Debug)]
pub struct XdpPort {
    info: PortInfo,
    socket: XskSocket,
    umem: Umem,
    /// True if packets may lie in several chunks.
    scatter: bool,
    joiner: Joiner,
    /// Chunks queued to be sent that have not completed.
    in_flight: usize,
    /// Completions and received descriptors that named no chunk on loan, or left it.
    stray: u64,
}

impl XdpPort {
    /// Opens a socket on the interface and registers `memory` as its UMEM.
    pub fn open(config: &XdpConfig, memory: &Arc<FrameMemory>) -> Result<Self> {
        let link = link::query(&config.interface)?;
        let limit = memory.largest_mtu();
        let (Ok(mtu), true) = (u16::try_from(link.mtu), link.mtu <= limit) else {
            return Err(Error::MtuTooLarge {
                interface: config.interface.clone(),
                found: link.mtu,
                limit,
                chunk: memory.chunk_size().octets(),
            });
        };
        let name = config.interface.clone();
        if config.queue >= link.queues.receive {
            return Err(Error::Queue { interface: name, found: config.queue, queues: link.queues.receive });
        }
        let scatter = link.mtu > memory.chunk_size().largest_mtu();
        let wanted = XskConfig {
            interface: &config.interface,
            ifindex: link.ifindex,
            queue: config.queue,
            fill_ring: config.rx_ring,
            rx_ring: config.rx_ring,
            tx_ring: config.tx_ring,
            busy_poll: config.busy_poll,
            zero_copy: config.zero_copy,
            scatter,
            patience: config.patience,
            called_off: config.called_off.as_deref(),
        };
        let socket = XskSocket::open(&wanted, memory)?;
        let umem = Umem::new(Arc::clone(memory));
        // At most `JUMBO_MTU`.
        let limit = if scatter { limit } else { memory.chunk_size().largest_mtu() } as u16;
        let info = PortInfo { index: config.index, name, ifindex: link.ifindex, mac: link.mac, mtu, limit };
        Ok(Self { info, socket, umem, scatter, joiner: Joiner::default(), in_flight: 0, stray: 0 })
    }

    /// A reader of the kernel's loss counters below this port, for any thread.
    pub fn losses(&self) -> KernelLosses {
        KernelLosses(self.socket.gauge())
    }

    /// How many frames from the front of the burst find room in the TX ring.
    #[inline]
    fn sendable(&mut self, burst: &FrameBurst) -> usize {
        if !self.scatter {
            return burst.len().min(self.socket.tx.room(burst.len() as u32) as usize);
        }
        let wanted = burst.iter().map(|frame| self.umem.chunks_of(frame)).sum();
        let mut room = self.socket.tx.room(wanted);
        let fits = |frame: &&Frame| {
            let left = room.checked_sub(self.umem.chunks_of(frame));
            room = left.unwrap_or(0);
            left.is_some()
        };
        burst.iter().take_while(fits).count()
    }

    /// Moves the packet into one chunk, where only one may be sent: a small packet in a jumbo frame
    /// may lie across the end of a chunk.
    #[inline]
    fn in_one_chunk(&self, frame: &mut Frame) {
        if self.umem.chunks_of(frame) > 1 {
            let (start, len) = (usize::from(frame.start()), usize::from(frame.len()));
            frame.bytes_mut().copy_within(start..start + len, HEADROOM.into());
            // No packet is longer than the port's limit, which leaves room for it there.
            let fits = frame.set_extent(HEADROOM.into(), len);
            debug_assert!(fits && self.umem.chunks_of(frame) == 1);
        }
    }
}

impl Port for XdpPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    #[inline]
    fn rx(&mut self, burst: &mut FrameBurst, pool: &mut FramePool) {
        while burst.remaining_capacity() > 0 {
            let Some(descriptor) = self.socket.rx.take() else { break };
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            match self.umem.received(&descriptor, pool) {
                // The MTU of other ports leaves room for a trailer in every chunk.
                Some(frame) if !self.scatter => burst.push(frame),
                Some(frame) => burst.extend(self.joiner.add(frame, more, pool)),
                None => {
                    self.stray += 1;
                    self.joiner.spoil(more, pool);
                }
            }
        }
        self.socket.rx.release();
    }

    #[inline]
    fn tx(&mut self, burst: &mut FrameBurst) {
        let count = self.sendable(burst);
        for mut frame in burst.drain(..count) {
            if !self.scatter {
                self.in_one_chunk(&mut frame);
            }
            for FrameDescriptor { address, len, more } in self.umem.lend(frame) {
                let options = if more { libc::XDP_PKT_CONTD } else { 0 };
                let staged = self.socket.tx.stage(libc::xdp_desc { addr: address, len, options });
                debug_assert!(staged.is_ok(), "room was counted before");
                self.in_flight += 1;
            }
        }
    }

    #[inline]
    fn flush(&mut self) -> Flushed {
        self.socket.flush_tx()
    }

    #[inline]
    fn refill(&mut self, pool: &mut FramePool) {
        let wanted = self.socket.fill.size();
        for _ in 0..self.socket.fill.room(wanted) {
            let Some(frame) = pool.take() else { break };
            let staged = self.socket.fill.stage(self.umem.lend_empty(frame));
            debug_assert!(staged.is_ok(), "room was counted before");
        }
        self.socket.flush_fill();
    }

    #[inline]
    fn reclaim(&mut self, pool: &mut FramePool) {
        while let Some(address) = self.socket.completion.take() {
            match self.umem.redeem(address) {
                Redeemed::Stray => {
                    self.stray += 1;
                    continue;
                }
                Redeemed::Part => {}
                Redeemed::Frame(frame) => pool.give(frame),
            }
            self.in_flight -= 1;
        }
        self.socket.completion.release();
    }

    fn look(&mut self) {
        self.socket.look();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn statistics(&self) -> PortStatistics {
        let Ok(kernel) = self.socket.statistics() else { return PortStatistics::default() };
        PortStatistics {
            tx_refused: self.socket.tx_refused(),
            stray: self.stray,
            rx_not_joined: self.joiner.lost(),
            ..by_kernel(&kernel)
        }
    }

    fn held(&self) -> usize {
        self.umem.count()
    }

    /// Waits for frames on their way out: some devices send from the frame itself, and would send
    /// the next user's octets if the frame were reused too early. If they do not complete in time,
    /// all frames that the port holds are given up as lost.
    fn close(mut self, pool: &mut FramePool) {
        let give_up = Instant::now() + CLOSE_TIMEOUT;
        while self.in_flight != 0 && self.flush() != Flushed::Down && Instant::now() < give_up {
            self.reclaim(pool);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reclaim(pool);
        // The kernel takes nothing more from the ring once the socket is closed.
        let with_the_device = self.in_flight - self.socket.tx.outstanding() as usize;
        // Closing the socket ends receiving before it returns.
        drop(self.socket);
        self.joiner.close(pool);
        if with_the_device == 0 {
            self.umem.redeem_all(pool);
        }
    }
}

/// The kernel's loss counters below a port. The worker that owns the port publishes them about once
/// a second ([`Port::statistics`]); this reader has them at once.
#[derive(Clone, Debug)]
pub struct KernelLosses(Gauge);

impl KernelLosses {
    /// The losses now, with zero for the counts that the worker keeps itself. `None` once the port
    /// is closed.
    pub fn read(&self) -> Option<PortStatistics> {
        self.0.read().map(|kernel| by_kernel(&kernel))
    }
}

fn by_kernel(kernel: &libc::xdp_statistics) -> PortStatistics {
    PortStatistics {
        // The kernel's count of dropped packets includes those for which the FILL ring had no
        // frame.
        rx_dropped: kernel.rx_dropped.saturating_sub(kernel.rx_fill_ring_empty_descs),
        rx_ring_full: kernel.rx_ring_full,
        fill_ring_empty: kernel.rx_fill_ring_empty_descs,
        rx_invalid: kernel.rx_invalid_descs,
        tx_invalid: kernel.tx_invalid_descs,
        tx_ring_empty: kernel.tx_ring_empty_descs,
        ..PortStatistics::default()
    }
}

/// How long closing waits for frames to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
