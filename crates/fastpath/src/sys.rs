//! The system calls of this crate, each as a function that is safe to call. `unsafe` stays here,
//! and in [`frame`](crate::frame) and [`ring`](crate::ring), which hand memory out.

pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod interface;
pub(crate) mod lent_fd;
pub(crate) mod mmap;
pub(crate) mod socket;
pub(crate) mod thread;
pub(crate) mod tun;

use std::io;

/// Turns the result of a call that returns a negative number on failure, with the reason in
/// `errno`, into a `Result`.
fn done(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
