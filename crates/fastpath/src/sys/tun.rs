//! The ioctls of the TUN driver (linux/if_tun.h).

use super::interface;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const DEVICE: &str = "/dev/net/tun";

nix::ioctl_write_ptr_bad!(
    /// Makes the TUN, or attaches to it.
    set_interface,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);
nix::ioctl_write_int_bad!(
    /// Makes the TUN outlive the process, or not.
    set_persist,
    nix::request_code_write!(b'T', 203, size_of::<libc::c_int>())
);
nix::ioctl_write_int_bad!(
    /// Sets the work that the kernel may leave to us.
    set_offload,
    nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>())
);
nix::ioctl_write_ptr_bad!(
    /// Sets the octets of the header before each packet.
    set_header_size,
    nix::request_code_write!(b'T', 216, size_of::<libc::c_int>()),
    libc::c_int
);

/// A descriptor of the TUN driver that is not attached to a TUN yet.
#[derive(Debug)]
pub(crate) struct Unattached(OwnedFd);

impl Unattached {
    /// Opens the driver, non-blocking.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(DEVICE, flags, Mode::empty())?))
    }

    /// Makes the TUN of this name, or attaches to it. `flags` are those of TUNSETIFF.
    pub(crate) fn attach(self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let mut request = interface::named(name)?;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor is that of the TUN driver, and the request outlives the call.
        unsafe { set_interface(self.0.as_raw_fd(), &raw const request) }?;
        Ok(File::from(self.0))
    }
}

/// Sets whether a TUN outlives the process.
pub(crate) fn set_persistent(tun: &File, is_persistent: bool) -> io::Result<()> {
    // SAFETY: the argument is a number.
    unsafe { set_persist(tun.as_raw_fd(), is_persistent.into()) }?;
    Ok(())
}

/// Sets the work that the kernel may leave to us: TUN_F_CSUM and the like.
pub(crate) fn set_offloads(tun: &File, offloads: libc::c_int) -> io::Result<()> {
    // SAFETY: the argument is a number.
    unsafe { set_offload(tun.as_raw_fd(), offloads) }?;
    Ok(())
}

/// Sets the octets of the header before each packet.
pub(crate) fn set_header_len(tun: &File, octets: usize) -> io::Result<()> {
    let octets = libc::c_int::try_from(octets).map_err(io::Error::other)?;
    // SAFETY: the number outlives the call.
    unsafe { set_header_size(tun.as_raw_fd(), &raw const octets) }?;
    Ok(())
}
