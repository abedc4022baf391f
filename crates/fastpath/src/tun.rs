//! The host TUN: the way between the workers and the kernel's stack.
//!
//! An AF_XDP socket cannot give a packet back to the kernel, so one TUN carries what a worker finds to be the
//! kernel's, and what the kernel itself sends to protected prefixes. The interface is persistent: while no daemon
//! reads it, the kernel drops what is routed there, and that is part of failing closed.

mod error;
mod settings;

pub use error::{Result, TunError};

use crate::netlink::{Connection, bring_up, ifindex_of};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const DEVICE: &str = "/dev/net/tun";

nix::ioctl_write_ptr_bad!(
    /// Makes the TUN, or attaches to it.
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);
nix::ioctl_write_int_bad!(
    /// Makes the TUN outlive the process, or not.
    set_persistent,
    nix::request_code_write!(b'T', 203, size_of::<libc::c_int>())
);

/// An attached TUN. Each read and write is one whole IP packet.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    ifindex: u32,
}

impl Tun {
    /// Makes the TUN, or attaches to the one that an earlier run left; then brings it up.
    pub fn open(name: &str, mtu: u16) -> Result<Self> {
        // Before there is a TUN that would outlive the refusal.
        settings::check_reverse_path()?;
        let file = attach(name)?;
        let failed = |operation| TunError::because(name, operation);
        // SAFETY: the descriptor is a TUN's, and the argument is a number.
        unsafe { set_persistent(file.as_raw_fd(), 1) }
            .map_err(|e| failed("cannot make it persistent")(e.into()))?;
        settings::apply(name)?;
        let ifindex = ifindex_of(name)?;
        bring_up(&mut Connection::open()?, name, ifindex, mtu.into())?;
        Ok(Self { file, name: name.to_owned(), ifindex })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the interface in the kernel.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The next packet that the kernel sends. `None` if there is none. A packet longer than `buffer` is cut.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        would_block((&self.file).read(buffer))
    }

    /// Gives a packet to the kernel. False if it has no room just now.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> io::Result<bool> {
        would_block((&self.file).write(packet)).map(|written| written.is_some())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Removes a TUN. False if there is none. An interface of that name that is no TUN, or is in use, is an error.
pub fn remove(name: &str) -> Result<bool> {
    if nix::net::if_::if_nametoindex(name).is_err() {
        return Ok(false);
    }
    let file = attach(name)?;
    // SAFETY: the descriptor is a TUN's, and the argument is a number.
    unsafe { set_persistent(file.as_raw_fd(), 0) }
        .map_err(|e| TunError::because(name, "cannot remove it")(e.into()))?;
    Ok(true)
}

fn attach(name: &str) -> Result<File> {
    let request = interface_request(name)?;
    let failed = |operation| TunError::because(name, operation);
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let fd = nix::fcntl::open(DEVICE, flags, Mode::empty())
        .map_err(|e| failed("cannot open /dev/net/tun")(e.into()))?;
    // SAFETY: the descriptor is that of the TUN driver, and the request outlives the call.
    unsafe { set_interface(fd.as_raw_fd(), &raw const request) }
        .map_err(|e| failed("cannot make it, or attach to it")(e.into()))?;
    Ok(File::from(fd))
}

fn interface_request(name: &str) -> Result<libc::ifreq> {
    let bad = |c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace() || !c.is_ascii_graphic();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.chars().any(bad) || name.starts_with('.') {
        return Err(TunError::Name { found: name.to_owned() });
    }
    // SAFETY: all zeroes is a valid ifreq: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    Ok(request)
}

fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_interface_name_is_refused() {
        for name in ["", "a/b", "..", ".", "a b", "tun%d", "a:b", "sixteen-letters-"] {
            let error = interface_request(name).map(|_| ()).expect_err(name);
            assert!(error.to_string().contains("expected 1 to 15"), "{error}");
        }
        assert!(interface_request("testudo0").is_ok());
        assert!(interface_request("fifteen-letters").is_ok());
    }
}
