//! Which network namespace this is.

use super::error::{FilterError, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Of the kernel's `asm-generic/socket.h`; neither libc nor nix has it.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The number of this network namespace, never given again until the machine restarts.
pub(super) fn cookie() -> Result<u64> {
    read_cookie().map_err(|source| FilterError::Path {
        path: "/proc/self/ns/net".into(),
        operation: "cannot read the cookie of the network namespace (Linux 5.14 or later)",
        source,
    })
}

fn read_cookie() -> std::io::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the pointers are those of a u64 and of its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(cookie) }
}
