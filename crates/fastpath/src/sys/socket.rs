//! The system calls of AF_XDP and packet sockets, and of a socket for interface requests.

use super::done;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Packets that one `sendto` of copy mode takes: `setsockopt` of linux/if_xdp.h since Linux 6.17.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// From `asm-generic/socket.h`; since Linux 5.11.
pub(crate) const SO_PREFER_BUSY_POLL: libc::c_int = 69;
pub(crate) const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// From `asm-generic/socket.h`; since Linux 5.14.
pub(crate) const SO_NETNS_COOKIE: libc::c_int = 71;

/// A new AF_XDP socket.
pub(crate) fn xdp() -> io::Result<OwnedFd> {
    socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC)
}

/// A new non-blocking packet socket. It receives nothing until it is bound.
pub(crate) fn packet() -> io::Result<OwnedFd> {
    socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
}

/// A socket for ioctls about interfaces.
pub(crate) fn datagram() -> io::Result<OwnedFd> {
    socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)
}

fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(family, kind, 0) };
    done(fd)?;
    // SAFETY: the kernel has just opened the descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Plain structures and numbers that the kernel takes as options: no padding that would leak, any
/// bits valid.
///
/// # Safety
/// Only for types without pointers, valid for any bits, laid out as the kernel defines them.
pub(crate) unsafe trait SocketOption {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_umem_reg {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_mmap_offsets {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::xdp_statistics {}
// SAFETY: numbers only, `repr(C)`.
unsafe impl SocketOption for libc::packet_mreq {}
// SAFETY: a number.
unsafe impl SocketOption for u32 {}
// SAFETY: a number.
unsafe impl SocketOption for u64 {}
// SAFETY: a number.
unsafe impl SocketOption for libc::c_int {}

/// Sets an option.
pub(crate) fn set<T: SocketOption>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let pointer = std::ptr::from_ref(value).cast();
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `size_of::<T>()` octets of a live value.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, pointer, len) })
}

/// Reads an option. Fails if the kernel knows a shorter form of the structure.
pub(crate) fn get<T: SocketOption>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` octets into `value`.
    done(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) })?;
    if len as usize != size_of::<T>() {
        let text = format!("option {name} of {len} octets, expected {}", size_of::<T>());
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    // SAFETY: zeroed, then perhaps written by the kernel; `T` is valid for any bits.
    Ok(unsafe { value.assume_init() })
}

/// Has a socket receive only what a classic BPF program accepts.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, code: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(code.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
    let (pointer, size) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the kernel reads a live value, and the `len` instructions that it points to.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, pointer, size) })
}

/// Binds an AF_XDP socket to a queue of an interface.
pub(crate) fn bind_xdp(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` octets of a live address.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Binds a packet socket to an interface: it receives frames of this EtherType.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, ifindex: u32, ethertype: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` octets of a live address.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Receives a message, cut to the buffer. Returns its length.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Sends a message.
pub(crate) fn send(fd: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads the message's octets.
    let sent = unsafe { libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel read the TX ring.
#[inline]
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: sends no buffer and names no address.
    let result =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel read the FILL ring, and poll the device if busy polling is on.
#[inline]
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
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
