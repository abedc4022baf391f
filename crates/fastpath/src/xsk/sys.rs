//! The system calls of AF_XDP sockets, each as a function that cannot be called wrongly.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `setsockopt` of linux/if_xdp.h since Linux 6.17: packets that one `sendto` of copy mode takes.
pub(super) const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Of `asm-generic/socket.h`; since Linux 5.11.
pub(super) const SO_PREFER_BUSY_POLL: libc::c_int = 69;
pub(super) const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// A new AF_XDP socket.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain structures and numbers that the kernel takes as options: no padding that would leak, any bits valid.
///
/// # Safety
/// Only for types without pointers, valid for any bits, laid out as the kernel's.
pub(super) unsafe trait SocketOption {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_umem_reg {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_mmap_offsets {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_statistics {}
// SAFETY: a number.
unsafe impl SocketOption for u32 {}
// SAFETY: a number.
unsafe impl SocketOption for libc::c_int {}

/// Sets an option.
pub(super) fn set<T: SocketOption>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let pointer = std::ptr::from_ref(value).cast();
    // SAFETY: the kernel reads `size_of::<T>()` octets of a live value.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, pointer, size_of::<T>() as libc::socklen_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option. Fails if the kernel knows a shorter form of it than we do.
pub(super) fn get<T: SocketOption>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets into `value`.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if len as usize != size_of::<T>() {
        let text = format!("option {name} of {len} octets, expected {}", size_of::<T>());
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    // SAFETY: zeroed, then perhaps written by the kernel; `T` is valid for any bits.
    Ok(unsafe { value.assume_init() })
}

/// Binds the socket to a queue of an interface.
pub(super) fn bind(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let pointer = std::ptr::from_ref(&address).cast();
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` octets of a live address.
    let result = unsafe { libc::bind(fd.as_raw_fd(), pointer, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel look at the TX ring.
#[inline]
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sends no buffer and names no address.
    let result =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel look at the FILL ring, and poll the device if busy polling is on.
#[inline]
pub(super) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: receives into no buffer and asks for no address.
    let result = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
