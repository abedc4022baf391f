//! What the kernel knows about an interface that a port needs: index, Ethernet address, MTU.

use crate::error::{Error, Result};
use crate::mac::MacAddr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Facts about an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    pub(super) mac: MacAddr,
    pub(super) mtu: u32,
    /// Receive queues in use.
    pub(super) queues: u32,
}

/// Asks the kernel about an interface in the current network namespace.
pub(super) fn query(interface: &str) -> Result<Link> {
    let failed = |call| move |source| Error::Interface { interface: interface.to_owned(), call, source };
    let socket = datagram_socket().map_err(failed("socket(AF_INET)"))?;
    let ask = |call, request| ioctl(&socket, request, interface).map_err(failed(call));
    let index = ask("ioctl(SIOCGIFINDEX)", libc::SIOCGIFINDEX)?;
    let address = ask("ioctl(SIOCGIFHWADDR)", libc::SIOCGIFHWADDR)?;
    let mtu = ask("ioctl(SIOCGIFMTU)", libc::SIOCGIFMTU)?;
    // SAFETY: the kernel has filled the member that each of the three requests names; all are plain numbers.
    let (index, address, mtu) =
        unsafe { (index.ifr_ifru.ifru_ifindex, address.ifr_ifru.ifru_hwaddr, mtu.ifr_ifru.ifru_mtu) };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(Error::NotEthernet { interface: interface.to_owned(), found: address.sa_family });
    }
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|octet| octet as u8);
    let queues = queues(&socket, interface).map_err(failed("ioctl(ETHTOOL_GCHANNELS)"))?;
    Ok(Link { ifindex: index as u32, mac: MacAddr([a, b, c, d, e, f]), mtu: mtu as u32, queues })
}

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// How many receive queues are in use. A driver that cannot tell has one.
fn queues(socket: &OwnedFd, interface: &str) -> io::Result<u32> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut ask = named(interface)?;
    ask.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the request reads the name, and the command where `ifru_data` points; it writes a live `Channels` there.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut ask) };
    if result >= 0 {
        return Ok(channels.rx.saturating_add(channels.combined));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) { Ok(1) } else { Err(error) }
}

fn datagram_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ioctl(socket: &OwnedFd, request: libc::Ioctl, interface: &str) -> io::Result<libc::ifreq> {
    let mut ask = named(interface)?;
    // SAFETY: these requests read the name of and write to a live `ifreq`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut ask) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(ask) }
}

/// A question about that interface.
fn named(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is numbers and arrays of numbers, for which zeroes are valid.
    let mut ask: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays zero: the name ends inside the array.
    if interface.len() >= ask.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "name longer than 15 octets"));
    }
    for (to, from) in ask.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(ask)
}
