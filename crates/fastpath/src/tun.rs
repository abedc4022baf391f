//! The host TUN: the path between the workers and the kernel's stack.
//!
//! An AF_XDP socket cannot give a packet back to the kernel. So one TUN carries the packets that a
//! worker finds to be the kernel's, and those that the kernel itself sends to protected prefixes.
//! The interface is persistent: while no daemon reads it, the kernel drops packets that are routed
//! there, which is part of failing closed.
//!
//! Each worker has a queue of its own. The kernel sends the packets of a flow by the queue by which
//! the flow's last one came, or by a hash.

mod error;
mod settings;

pub use error::{Result, TunError};

use crate::netlink::{Connection, bring_up, dropped_sending, ifindex_of};
use crate::sys::{ethtool, tun as call};
use arrayvec::ArrayVec;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use testudo_wire::offload::{HEADER, Offload};

/// Bound on the pieces of a packet for the kernel.
pub const MAX_PIECES: usize = 65;

const MULTI_QUEUE: libc::c_int = libc::IFF_MULTI_QUEUE;
const ATTACH_FAILED: &str = "cannot make it, or attach to it";

/// Checksums, and segmentation of TCP over IPv4 and IPv6 (TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6).
const OFFLOADS: libc::c_int = 0x07;

/// An attached queue of the TUN. Each read and write is one whole IP packet.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    ifindex: u32,
}

impl Tun {
    /// Makes the TUN, or attaches to the one of an earlier run, and brings it up.
    pub fn open(name: &str, mtu: u16) -> Result<Self> {
        // Checked before a TUN exists that would outlive the refusal.
        settings::check_reverse_path()?;
        let file = attach_alone(name)?;
        let failed = |operation| TunError::because(name, operation);
        offload(name, &file)?;
        settings::apply(name)?;
        let ifindex = ifindex_of(name)?;
        bring_up(&mut Connection::open()?, name, ifindex, mtu.into())?;
        // Last, so that a failure before it leaves no new TUN behind.
        call::set_persistent(&file, true).map_err(failed("cannot make it persistent"))?;
        Ok(Self { file, name: name.to_owned(), ifindex })
    }

    /// Makes a TUN that ends with this process, and brings it up. Nobody is to read what the kernel
    /// sends there.
    pub fn open_for_process(name: &str, mtu: u16) -> Result<Self> {
        let file = attach(name, 0)?;
        settings::apply(name)?;
        let ifindex = ifindex_of(name)?;
        bring_up(&mut Connection::open()?, name, ifindex, mtu.into())?;
        Ok(Self { file, name: name.to_owned(), ifindex })
    }

    /// Opens one more queue of the TUN.
    pub fn another(&self) -> Result<Self> {
        let file = attach(&self.name, MULTI_QUEUE)?;
        Ok(Self { file, name: self.name.clone(), ifindex: self.ifindex })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of the interface in the kernel.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Reads the next packet that the kernel sends: its octets, and the work that the kernel left
    /// undone. `None` if there is none. A packet longer than `buffer` is cut.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Offload)>> {
        let mut header = [0; HEADER];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
        let Some(read) = would_block((&self.file).read_vectored(&mut parts))? else { return Ok(None) };
        let len = read.checked_sub(HEADER).ok_or(io::ErrorKind::UnexpectedEof)?;
        match Offload::parse(&header) {
            Ok(offload) => Ok(Some((len, offload))),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Writes a packet to the kernel that lies in at most [`MAX_PIECES`] pieces. Returns false if
    /// the kernel has no room at the moment.
    #[inline]
    pub fn write(&self, offload: Offload, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        let header = offload.to_bytes();
        let mut parts: ArrayVec<IoSlice<'_>, { MAX_PIECES + 1 }> = ArrayVec::new();
        parts.push(IoSlice::new(&header));
        parts.try_extend_from_slice(pieces).map_err(|_| io::ErrorKind::InvalidInput)?;
        would_block((&self.file).write_vectored(&parts)).map(|written| written.is_some())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sets the largest packet that the kernel may send through a TUN.
pub fn set_mtu(name: &str, mtu: u16) -> Result<()> {
    Ok(bring_up(&mut Connection::open()?, name, ifindex_of(name)?, mtu.into())?)
}

/// Packets for which the kernel has found no room in the queues of a TUN since the interface exists:
/// nobody had read those before them.
pub fn overflows(name: &str) -> Result<u64> {
    Ok(dropped_sending(&mut Connection::open()?, name, ifindex_of(name)?)?)
}

/// Removes a TUN. Returns false if there is none. Fails if the interface of this name is no TUN, or
/// is in use.
pub fn remove(name: &str) -> Result<bool> {
    if nix::net::if_::if_nametoindex(name).is_err() {
        return Ok(false);
    }
    let file = attach_alone(name)?;
    let_go(name, &file)?;
    Ok(true)
}

/// Makes the TUN end with its last descriptor.
fn let_go(name: &str, file: &File) -> Result<()> {
    call::set_persistent(file, false).map_err(TunError::because(name, "cannot remove it"))
}

/// Has the kernel leave to us the work of a network card.
fn offload(name: &str, file: &File) -> Result<()> {
    let set = || {
        call::set_header_len(file, HEADER)?;
        call::set_offloads(file, OFFLOADS)
    };
    set().map_err(TunError::because(name, "cannot set its offloads"))
}

/// Attaches to a TUN that no other process has.
fn attach_alone(name: &str) -> Result<File> {
    // The driver would give us one more queue beside another process's. A TUN has a carrier while a
    // process has it.
    let is_in_use = ethtool::has_link(name).unwrap_or(false);
    let attached = match attach(name, MULTI_QUEUE) {
        Err(TunError::Device { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            // Earlier versions left a TUN with a single queue. It has to be removed. Packets that
            // are routed into it are unreachable until there is another, so none leaves in clear.
            let_go(name, &attach(name, 0)?)?;
            attach(name, MULTI_QUEUE)
        }
        attached => attached,
    };
    let busy = || TunError::because(name, ATTACH_FAILED)(io::Error::from_raw_os_error(libc::EBUSY));
    attached.and_then(|file| if is_in_use { Err(busy()) } else { Ok(file) })
}

fn attach(name: &str, queues: libc::c_int) -> Result<File> {
    check_name(name)?;
    let failed = |operation| TunError::because(name, operation);
    let driver = call::Unattached::open().map_err(failed("cannot open /dev/net/tun"))?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues;
    driver.attach(name, flags).map_err(failed(ATTACH_FAILED))
}

/// Refuses a name that no interface can have.
fn check_name(name: &str) -> Result<()> {
    let bad = |c: char| c == '/' || c == ':' || c == '%' || c.is_whitespace() || !c.is_ascii_graphic();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.chars().any(bad) || name.starts_with('.') {
        return Err(TunError::Name { found: name.to_owned() });
    }
    Ok(())
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
            let error = check_name(name).expect_err(name);
            assert!(error.to_string().contains("expected 1 to 15"), "{error}");
        }
        assert!(check_name("testudo0").is_ok());
        assert!(check_name("fifteen-letters").is_ok());
    }
}
