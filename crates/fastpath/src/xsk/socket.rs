//! Setting up an AF_XDP socket: UMEM, the four rings, bind.

use super::{XskConfig, XskSocket};
use crate::error::{Error, Result};
use crate::frame::{EXTRA_HEADROOM, FrameMemory};
use crate::port::BURST;
use crate::ring::{Consumer, Offsets, Producer};
use crate::sys::lent_fd::LendingFd;
use crate::sys::mmap::Mapping;
use crate::sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Fewest and most entries of a ring. The kernel allows more; nothing here needs them.
const RING_SIZE_LIMITS: (u32, u32) = (64, 1 << 15);

pub(super) fn open(config: &XskConfig<'_>, memory: &FrameMemory) -> Result<XskSocket> {
    let at = |call| move |source| Error::Interface { interface: config.interface.to_owned(), call, source };
    check_sizes(config)?;
    let fd = socket::xdp().map_err(at("socket(AF_XDP)"))?;
    register(fd.as_fd(), memory).map_err(at("setsockopt(XDP_UMEM_REG)"))?;
    let rings = [
        ("setsockopt(XDP_UMEM_FILL_RING)", libc::XDP_UMEM_FILL_RING, config.fill_ring),
        ("setsockopt(XDP_UMEM_COMPLETION_RING)", libc::XDP_UMEM_COMPLETION_RING, config.tx_ring),
        ("setsockopt(XDP_RX_RING)", libc::XDP_RX_RING, config.rx_ring),
        ("setsockopt(XDP_TX_RING)", libc::XDP_TX_RING, config.tx_ring),
    ];
    for (call, option, size) in rings {
        socket::set(fd.as_fd(), libc::SOL_XDP, option, &size).map_err(at(call))?;
    }
    raise_tx_budget(fd.as_fd(), config.tx_ring);
    if config.busy_poll {
        poll_busily(fd.as_fd()).map_err(at("setsockopt(SO_PREFER_BUSY_POLL)"))?;
    }
    let (fill, rx, tx, completion) = map_rings(fd.as_fd(), config).map_err(at("mmap of rings"))?;
    let call = if config.scatter { "bind(AF_XDP, XDP_USE_SG: Linux 6.6 or later)" } else { "bind(AF_XDP)" };
    bind_patiently(fd.as_fd(), config).map_err(at(call))?;
    let fd = LendingFd::new(fd);
    Ok(XskSocket { fill, rx, tx, completion, tx_refused: 0, busy_poll: config.busy_poll, fd })
}

fn check_sizes(config: &XskConfig<'_>) -> Result<()> {
    let (least, most) = RING_SIZE_LIMITS;
    for found in [config.fill_ring, config.rx_ring, config.tx_ring] {
        if !found.is_power_of_two() || !(least..=most).contains(&found) {
            return Err(Error::RingSize { interface: config.interface.to_owned(), found, least, most });
        }
    }
    Ok(())
}

/// Registers the region as this socket's own UMEM. Several sockets register the same region: each
/// gets a FILL and a COMPLETION ring of its own, and a frame may be received on one socket and sent
/// on another.
fn register(fd: BorrowedFd<'_>, memory: &FrameMemory) -> io::Result<()> {
    let chunk = memory.chunk_size().octets();
    let region = libc::xdp_umem_reg {
        addr: memory.base().as_ptr() as u64,
        len: (memory.chunks() * chunk) as u64,
        chunk_size: chunk as u32,
        headroom: u32::from(EXTRA_HEADROOM),
        flags: 0,
        tx_metadata_len: 0,
    };
    socket::set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
}

/// In copy mode one `sendto` takes 32 packets by default. Kernels before 6.17 have no option for
/// it, which only costs some more calls.
fn raise_tx_budget(fd: BorrowedFd<'_>, tx_ring: u32) {
    let _ = socket::set(fd, libc::SOL_XDP, socket::XDP_MAX_TX_SKB_BUDGET, &tx_ring);
}

/// Makes the system calls of this socket poll the device, which should send no interrupts
/// meanwhile. One call processes a burst and does not wait. The worker decides how long to continue
/// polling, so any time above zero works.
fn poll_busily(fd: BorrowedFd<'_>) -> io::Result<()> {
    for (option, value) in [
        (socket::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, 1),
        (socket::SO_BUSY_POLL_BUDGET, BURST as libc::c_int),
    ] {
        socket::set(fd, libc::SOL_SOCKET, option, &value)?;
    }
    Ok(())
}

type Rings = (Producer<u64>, Consumer<libc::xdp_desc>, Producer<libc::xdp_desc>, Consumer<u64>);

#[allow(unsafe_code, reason = "the offsets are the kernel's word")]
fn map_rings(fd: BorrowedFd<'_>, config: &XskConfig<'_>) -> io::Result<Rings> {
    let offsets: libc::xdp_mmap_offsets = socket::get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    let fill = area::<u64>(fd, &offsets.fr, config.fill_ring, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t)?;
    let completion =
        area::<u64>(fd, &offsets.cr, config.tx_ring, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t)?;
    let rx = area::<libc::xdp_desc>(fd, &offsets.rx, config.rx_ring, libc::XDP_PGOFF_RX_RING)?;
    let tx = area::<libc::xdp_desc>(fd, &offsets.tx, config.tx_ring, libc::XDP_PGOFF_TX_RING)?;
    let misplaced = || io::Error::other("the kernel's ring offsets lead outside the ring");
    // SAFETY: the kernel keeps a ring of addresses (FILL, COMPLETION) or descriptors (RX, TX) at
    // each of these offsets. The socket was opened here, so our side has no other user.
    unsafe {
        Ok((
            Producer::in_mapping(fill.0, fill.1, config.fill_ring).ok_or_else(misplaced)?,
            Consumer::in_mapping(rx.0, rx.1, config.rx_ring).ok_or_else(misplaced)?,
            Producer::in_mapping(tx.0, tx.1, config.tx_ring).ok_or_else(misplaced)?,
            Consumer::in_mapping(completion.0, completion.1, config.tx_ring).ok_or_else(misplaced)?,
        ))
    }
}

/// Maps one ring of entries of type `T`.
fn area<T>(
    fd: BorrowedFd<'_>,
    at: &libc::xdp_ring_offset,
    size: u32,
    offset: libc::off_t,
) -> io::Result<(Mapping, Offsets)> {
    let len = at.desc as usize + size as usize * std::mem::size_of::<T>();
    let offsets = Offsets {
        producer: at.producer as usize,
        consumer: at.consumer as usize,
        flags: at.flags as usize,
        entries: at.desc as usize,
    };
    Ok((Mapping::of(fd, len, offset)?, offsets))
}

fn bind_patiently(fd: BorrowedFd<'_>, config: &XskConfig<'_>) -> io::Result<()> {
    let mode = if config.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    let scatter = if config.scatter { libc::XDP_USE_SG } else { 0 };
    let flags = mode | scatter | libc::XDP_USE_NEED_WAKEUP;
    let give_up = Instant::now() + config.patience;
    let is_called_off = || config.called_off.is_some_and(|flag| flag.load(Ordering::Relaxed));
    let waits = || Instant::now() < give_up && !is_called_off();
    loop {
        match socket::bind_xdp(fd, config.ifindex, config.queue, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && waits() => {
                sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}
