//! Hand-made frames that no well-behaved stack would send.

use crate::frames::checksum;
use crate::{Error, Namespace, Result};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt, socket,
};
use nix::unistd::write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// An advertisement is to replace the MAC address that is known (RFC 4861 §4.4).
pub const OVERRIDE: u8 = 0x20;
/// The same, and it answers a solicitation.
pub const ANSWER: u8 = 0x60;
/// All hosts of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A neighbour advertisement (RFC 4861 §4.4) from an address that is at this MAC address, to this
/// MAC and IP address.
pub fn advertisement(mac: [u8; 6], address: Ipv6Addr, to: ([u8; 6], Ipv6Addr), flags: u8) -> Vec<u8> {
    const ICMPV6: u8 = 58;
    let (to_mac, to) = to;
    let (from, to) = (address.octets(), to.octets());
    let mut message = [&[136, 0, 0, 0, flags, 0, 0, 0][..], &from, &[2, 1], &mac].concat();
    let len = message.len() as u8;
    let pseudo = [&from[..], &to, &[0, 0, 0, len, 0, 0, 0, ICMPV6], &message].concat();
    message[2..4].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let header = [&[0x60, 0, 0, 0, 0, len, ICMPV6, 255][..], &from, &to].concat();
    [&to_mac[..], &mac, &[0x86, 0xdd], &header, &message].concat()
}

/// Larger than any frame of the labs.
const MAX_FRAME: usize = 16 << 10;

/// ARP that says to all hosts of a link that an address is at this MAC address (RFC 5227 §3).
pub fn announcement(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let (kinds_and_request, address) = ([0, 1, 8, 0, 6, 4, 0, 1], address.octets());
    [&[0xff; 6][..], &mac, &[8, 6], &kinds_and_request, &mac, &address, &[0; 6], &address].concat()
}

fn link(interface: &str) -> nix::Result<LinkAddr> {
    let mut entries = getifaddrs()?.filter(|entry| entry.interface_name == interface);
    entries.find_map(|entry| entry.address?.as_link_addr().copied()).ok_or(Errno::ENODEV)
}

fn raw(link: &LinkAddr, protocol: Option<SockProtocol>) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, protocol)?;
    bind(socket.as_raw_fd(), link)?;
    Ok(socket)
}

/// Hears raw Ethernet frames that arrive at one interface.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
}

/// Frames that wait to be heard.
const LISTENER_OCTETS: usize = 8 << 20;
/// `PACKET_OUTGOING` of packet(7): this host has sent it.
const OUTGOING: u8 = 4;

impl Listener {
    /// Opens the interface of the namespace that this thread is in.
    pub fn open_here(interface: &str) -> Result<Self> {
        let open = || {
            let socket = raw(&link(interface)?, Some(SockProtocol::EthAll))?;
            setsockopt(&socket, RcvBufForce, &LISTENER_OCTETS)?;
            Ok(Self { socket })
        };
        open().map_err(|e: Errno| Error::io(format!("listen to raw frames at {interface}"))(e.into()))
    }

    /// The next frame, if one comes within that time.
    pub fn next(&self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; MAX_FRAME];
        let until = Instant::now() + limit;
        loop {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame) {
                Ok((_, Some(from))) if from.pkttype() == OUTGOING => {}
                Ok((len, _)) => {
                    frame.truncate(len);
                    return Ok(Some(frame));
                }
                Err(Errno::EAGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
                    let left = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
                    match poll(&mut ready, left) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(e) => return Err(Error::io("wait for a frame")(e.into())),
                    }
                }
                Err(Errno::EINTR) => {}
                Err(e) => return Err(Error::io("hear a frame")(e.into())),
            }
        }
    }
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
        let interface = interface.to_owned();
        namespace.enter(move || Self::open_here(&interface))?
    }

    /// Opens the interface of the namespace that this thread is in.
    pub fn open_here(interface: &str) -> Result<Self> {
        // No protocol: it receives nothing.
        let open = || {
            let link = link(interface)?;
            let address = LinkAddr::addr(&link).ok_or(Errno::ENODEV)?;
            Ok(Self { socket: raw(&link, None)?, address })
        };
        open().map_err(|e: Errno| Error::io(format!("open {interface} for raw frames"))(e.into()))
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
