//! What the kernel reports about an interface by ioctl (netdevice(7)), in the current network
//! namespace.

use super::done;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A request about this interface.
pub(crate) fn named(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is numbers and arrays of numbers, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays zero: the name ends inside the array.
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "name longer than 15 octets"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// The number of the interface.
pub(crate) fn index(socket: &OwnedFd, interface: &str) -> io::Result<libc::c_int> {
    let answer = ask(socket, libc::SIOCGIFINDEX, interface)?;
    // SAFETY: the kernel has filled this member, a plain number.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

/// The hardware address and its kind.
pub(crate) fn hardware_address(socket: &OwnedFd, interface: &str) -> io::Result<libc::sockaddr> {
    let answer = ask(socket, libc::SIOCGIFHWADDR, interface)?;
    // SAFETY: the kernel has filled this member, plain numbers.
    Ok(unsafe { answer.ifr_ifru.ifru_hwaddr })
}

/// The MTU.
pub(crate) fn mtu(socket: &OwnedFd, interface: &str) -> io::Result<libc::c_int> {
    let answer = ask(socket, libc::SIOCGIFMTU, interface)?;
    // SAFETY: the kernel has filled this member, a plain number.
    Ok(unsafe { answer.ifr_ifru.ifru_mtu })
}

/// The flags: `IFF_UP` and the like.
pub(crate) fn flags(socket: &OwnedFd, interface: &str) -> io::Result<libc::c_int> {
    let answer = ask(socket, libc::SIOCGIFFLAGS, interface)?;
    // SAFETY: the kernel has filled this member, a plain number.
    Ok(unsafe { answer.ifr_ifru.ifru_flags }.into())
}

/// The answer to a request that reads only the name of an interface.
fn ask(socket: &OwnedFd, request: libc::Ioctl, interface: &str) -> io::Result<libc::ifreq> {
    let mut answer = named(interface)?;
    // SAFETY: these requests read the name in a live `ifreq` and write to it.
    done(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut answer) })?;
    Ok(answer)
}
