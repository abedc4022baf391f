//! Hand-made frames that no well-behaved stack would send.

use crate::{Error, Namespace, Result};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, SockFlag, SockType, bind, socket};
use nix::unistd::write;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

/// ARP that says to all hosts of a link that an address is at this MAC address (RFC 5227 §3).
pub fn announcement(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let (kinds_and_request, address) = ([0, 1, 8, 0, 6, 4, 0, 1], address.octets());
    [&[0xff; 6][..], &mac, &[8, 6], &kinds_and_request, &mac, &address, &[0; 6], &address].concat()
}

/// Sends raw Ethernet frames out of one interface.
#[derive(Debug)]
pub struct Injector {
    socket: OwnedFd,
    address: [u8; 6],
}

impl Injector {
    /// Opens the interface of that namespace.
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Self> {
        let what = format!("open {interface} of {} for raw frames", namespace.role());
        let interface = interface.to_owned();
        namespace.enter(move || Self::open_here(&interface))?.map_err(|e| Error::io(what)(e.into()))
    }

    fn open_here(interface: &str) -> nix::Result<Self> {
        let link = getifaddrs()?
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| entry.address?.as_link_addr().copied())
            .ok_or(Errno::ENODEV)?;
        let address = LinkAddr::addr(&link).ok_or(Errno::ENODEV)?;
        // Protocol 0: it receives nothing.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &link)?;
        Ok(Self { socket, address })
    }

    /// The interface's own MAC address.
    pub fn address(&self) -> [u8; 6] {
        self.address
    }

    /// Sends one frame, Ethernet header included; waits while the interface's queue is full.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        loop {
            match write(&self.socket, frame) {
                Ok(_) => return Ok(()),
                Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => sleep(Duration::from_micros(100)),
                Err(e) => return Err(Error::io(format!("send a frame of {} octets", frame.len()))(e.into())),
            }
        }
    }
}
