//! Which network namespace this is.

use super::error::{FilterError, Result};
use crate::sys::socket::{self, SO_NETNS_COOKIE};
use std::net::UdpSocket;
use std::os::fd::AsFd;

/// The cookie of this network namespace. The kernel does not reuse it until the machine restarts.
pub(super) fn cookie() -> Result<u64> {
    read_cookie().map_err(|source| FilterError::Path {
        path: "/proc/self/ns/net".into(),
        operation: "cannot read the cookie of the network namespace (Linux 5.14 or later)",
        source,
    })
}

fn read_cookie() -> std::io::Result<u64> {
    let asked = UdpSocket::bind("0.0.0.0:0")?;
    socket::get(asked.as_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE)
}
