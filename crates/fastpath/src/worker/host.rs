//! The way to and from our own kernel.

use crate::frame::{FramePool, HEADROOM};
use crate::port::FrameBurst;
use crate::tun::Tun;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A TUN as the worker sees it: whole IP packets, one a call, never blocking.
pub trait HostPort {
    /// Reads the next packet that the kernel routes to us. `None` if there is none at the moment.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>>;

    /// Gives the kernel a packet.
    fn write(&mut self, packet: &[u8]) -> io::Result<()>;

    /// Readable when there is a packet. `None` if one cannot wait for it.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

impl HostPort for Tun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        Tun::read(self, buffer)
    }

    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        if Tun::write(self, packet)? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

/// Reads packets into frames of the pool until the burst is full or there are no more.
pub(super) fn read_burst<H: HostPort>(host: &mut H, pool: &mut FramePool, burst: &mut FrameBurst) {
    while !burst.is_full() {
        let Some(mut frame) = pool.take() else { return };
        let start = usize::from(HEADROOM);
        let read = host.read(&mut frame.bytes_mut()[start..]);
        match read {
            Ok(Some(len)) if frame.set_extent(start, len) => burst.push(frame),
            // Nothing there; or an error, which the next turn will meet again or not.
            _ => {
                pool.give(frame);
                return;
            }
        }
    }
}
