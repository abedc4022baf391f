//! The facts about an interface that a port needs: index, Ethernet address, MTU.

use crate::error::{Error, Result};
use crate::mac::MacAddr;
use crate::sys::ethtool::{Queues, driver, queues, speed};
use crate::sys::{interface as asked, socket};
use std::io;
use std::os::fd::OwnedFd;

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
    let socket = socket::datagram().map_err(failed("socket(AF_INET)"))?;
    let index = asked::index(&socket, interface).map_err(failed("ioctl(SIOCGIFINDEX)"))?;
    let address = asked::hardware_address(&socket, interface).map_err(failed("ioctl(SIOCGIFHWADDR)"))?;
    let mtu = asked::mtu(&socket, interface).map_err(failed("ioctl(SIOCGIFMTU)"))?;
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(Error::NotEthernet { interface: interface.to_owned(), found: address.sa_family });
    }
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|octet| octet as u8);
    let queues = queues(&socket, interface).map_err(failed("ioctl(ETHTOOL_GCHANNELS)"))?;
    Ok(LinkSettings { ifindex: index as u32, mac: MacAddr([a, b, c, d, e, f]), mtu: mtu as u32, queues })
}

/// The queues of an interface in use, in the current network namespace.
pub fn queues_of(interface: &str) -> Result<Queues> {
    ask_driver(interface, "ioctl(ETHTOOL_GCHANNELS)", queues)
}

/// The speed of an interface in Mb/s, in the current network namespace. `None` while it has no
/// link, or if the driver does not report it.
pub fn speed_of(interface: &str) -> Result<Option<u32>> {
    ask_driver(interface, "ioctl(ETHTOOL_GSET)", speed)
}

/// The name of an interface's driver, in the current network namespace. `None` if the kernel does
/// not report it.
pub fn driver_of(interface: &str) -> Result<Option<String>> {
    ask_driver(interface, "ioctl(ETHTOOL_GDRVINFO)", driver)
}

/// Asks an interface's driver through a new socket.
fn ask_driver<T>(
    interface: &str,
    call: &'static str,
    question: impl FnOnce(&OwnedFd, &str) -> io::Result<T>,
) -> Result<T> {
    let failed = |call| move |source| Error::Interface { interface: interface.to_owned(), call, source };
    let socket = socket::datagram().map_err(failed("socket(AF_INET)"))?;
    question(&socket, interface).map_err(failed(call))
}
