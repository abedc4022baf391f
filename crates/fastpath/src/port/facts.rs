//! What the kernel and the driver report about an interface, for readers that do not open it.

use crate::error::{Error, Result};
use crate::sys::ethtool::{self, Queues};
use crate::sys::{interface as asked, socket};

/// An interface of this host, in the current network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// True if it carries Ethernet frames.
    pub ethernet: bool,
    /// Largest IP packet that it takes.
    pub mtu: u32,
    /// Queues in use.
    pub queues: Queues,
    /// True if it is set up.
    pub up: bool,
    /// True if it has a carrier.
    pub link: bool,
    /// The driver's name, if it reports one.
    pub driver: Option<String>,
}

/// The facts about an interface. `None` if there is no interface of that name.
pub fn facts_of(interface: &str) -> Result<Option<Facts>> {
    let failed = |call| move |source| Error::Interface { interface: interface.to_owned(), call, source };
    let socket = socket::datagram().map_err(failed("socket(AF_INET)"))?;
    match asked::index(&socket, interface) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        answer => answer.map_err(failed("ioctl(SIOCGIFINDEX)"))?,
    };
    let flags = asked::flags(&socket, interface).map_err(failed("ioctl(SIOCGIFFLAGS)"))?;
    let address = asked::hardware_address(&socket, interface).map_err(failed("ioctl(SIOCGIFHWADDR)"))?;
    let mtu = asked::mtu(&socket, interface).map_err(failed("ioctl(SIOCGIFMTU)"))?;
    Ok(Some(Facts {
        ethernet: address.sa_family == libc::ARPHRD_ETHER,
        mtu: mtu as u32,
        queues: ethtool::queues(&socket, interface).map_err(failed("ioctl(ETHTOOL_GCHANNELS)"))?,
        up: flags & libc::IFF_UP != 0,
        link: ethtool::has_link(interface).unwrap_or(false),
        driver: ethtool::driver(&socket, interface).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_no_ethernet() {
        let facts = facts_of("lo").unwrap().expect("every host has one");
        assert!(!facts.ethernet && facts.mtu >= 1280, "{facts:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_no_error() {
        assert_eq!(facts_of("nosuch0").unwrap(), None);
        assert!(facts_of("a-name-of-17-octets").is_err());
    }
}
