//! The system calls of this crate, each as a function that cannot be called wrongly. `unsafe` stays
//! here, and in [`frame`](crate::frame) and [`ring`](crate::ring), which hand memory out.

pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod interface;
pub(crate) mod lent_fd;
pub(crate) mod mmap;
pub(crate) mod socket;
pub(crate) mod thread;
pub(crate) mod tun;

use std::io;

/// What a call says that answers a negative number, and the reason in `errno`, if it fails.
fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
