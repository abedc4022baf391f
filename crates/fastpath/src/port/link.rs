//! What the kernel knows about an interface that a port needs: index, Ethernet address, MTU.

use crate::error::{Error, Result};
use crate::ethtool::{Queues, datagram_socket, driver, named, queues, speed};
use crate::mac::MacAddr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Facts about an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkSettings {
    pub(super) ifindex: u32,
    pub(super) mac: MacAddr,
    pub(super) mtu: u32,
    /// Queues in use.
    pub(super) queues: Queues,
}

/// Asks the kernel about an interface in the current network namespace.
pub(super) fn query(interface: &str) -> Result<LinkSettings> {
    let failed = |call| move |source| Error::Interface { interface: interface.to_owned(), call, source };
    let socket = datagram_socket().map_err(failed("socket(AF_INET)"))?;
    let ask = |call, request| ask_kernel(&socket, request, interface).map_err(failed(call));
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
    Ok(LinkSettings { ifindex: index as u32, mac: MacAddr([a, b, c, d, e, f]), mtu: mtu as u32, queues })
}

/// How many queues of an interface are in use, in the current network namespace.
pub fn queues_of(interface: &str) -> Result<Queues> {
    ask_driver(interface, "ioctl(ETHTOOL_GCHANNELS)", queues)
}

/// The speed of an interface in Mb/s, in the current network namespace. `None` while it has no
/// link, or if the driver does not tell.
pub fn speed_of(interface: &str) -> Result<Option<u32>> {
    ask_driver(interface, "ioctl(ETHTOOL_GSET)", speed)
}

/// The name of an interface's driver, in the current network namespace. `None` if the kernel does
/// not tell.
pub fn driver_of(interface: &str) -> Result<Option<String>> {
    ask_driver(interface, "ioctl(ETHTOOL_GDRVINFO)", driver)
}

/// Asks an interface's driver by a socket of its own.
fn ask_driver<T>(
    interface: &str,
    call: &'static str,
    question: impl FnOnce(&OwnedFd, &str) -> io::Result<T>,
) -> Result<T> {
    let failed = |call| move |source| Error::Interface { interface: interface.to_owned(), call, source };
    let socket = datagram_socket().map_err(failed("socket(AF_INET)"))?;
    question(&socket, interface).map_err(failed(call))
}

/// The answer to a request that reads the name of an interface and nothing else.
pub(super) fn ask_kernel(socket: &OwnedFd, request: libc::Ioctl, interface: &str) -> io::Result<libc::ifreq> {
    let mut ask = named(interface)?;
    // SAFETY: these requests read the name of and write to a live `ifreq`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut ask) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(ask) }
}
