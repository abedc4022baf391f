//! The path to and from our own kernel.

use crate::tun::Tun;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use testudo_wire::offload::Offload;

/// A TUN as the worker sees it: one IP packet a call, never blocking. TCP may come and go in
/// segments of up to 64 kB.
pub trait HostPort {
    /// Reads the next packet that the kernel routes to us: its octets, and the work that the kernel
    /// left undone. `None` if there is no packet at the moment. A packet whose header contradicts
    /// itself is lost, with [`io::ErrorKind::InvalidData`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Offload)>>;

    /// Writes a packet to the kernel that lies in at most [`crate::tun::MAX_PIECES`] pieces.
    fn write(&mut self, offload: Offload, pieces: &[IoSlice<'_>]) -> io::Result<()>;

    /// A descriptor that is readable when there is a packet. `None` if waiting is not possible.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

impl HostPort for Tun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<(usize, Offload)>> {
        Tun::read(self, buffer)
    }

    fn write(&mut self, offload: Offload, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        if Tun::write(self, offload, pieces)? { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}
