//! Echo requests of a given size, which nobody on the path may fragment (RFC 792, RFC 4443 §4.1).

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use testudo_wire::checksum::Sum;

/// Type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const LARGEST: usize = 1 << 16;
/// How often a size is tried: a single packet may get lost.
const TRIES: u16 = 3;
/// Requests of a size follow each other after this part of the time that each may take.
const PACE: u32 = 10;
/// What sendto(2) says of a packet that is larger than the interface's MTU.
const TOO_LARGE: i32 = nix::libc::EMSGSIZE;

/// A socket for one destination.
pub(super) struct Echo {
    to: SocketAddr,
    socket: UdpSocket,
    identifier: [u8; 2],
    /// The number of the last request.
    last: Cell<u16>,
}

impl Echo {
    /// Opens it. That takes the capability CAP_NET_RAW.
    pub(super) fn open(to: IpAddr) -> io::Result<Self> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        // Neither this host nor a router fragments, and what is known of the path does not count.
        match to {
            IpAddr::V4(_) => set_ip_mtu_discover(&raw, Ipv4PathMtuDiscovery::PROBE)?,
            IpAddr::V6(_) => set_ipv6_mtu_discover(&raw, Ipv6PathMtuDiscovery::PROBE)?,
        }
        let [low, high, ..] = std::process::id().to_le_bytes();
        // The standard library has no type for raw sockets; that of UDP sockets fits.
        Ok(Self {
            to: SocketAddr::new(to, 0),
            socket: raw.into(),
            identifier: [high, low],
            last: Cell::new(0),
        })
    }

    /// Whether one of several requests in packets of so many octets is answered within that time.
    /// They follow each other quickly: on a silent path the time passes once, not for each.
    pub(super) fn passes(&self, size: u16, limit: Duration) -> io::Result<bool> {
        let first = self.last.get().wrapping_add(1);
        for left in (0..TRIES).rev() {
            if !self.send(size)? {
                return Ok(false);
            }
            if self.awaits(first, if left == 0 { limit } else { limit / PACE })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends a request. False if it is larger than the interface's MTU.
    fn send(&self, size: u16) -> io::Result<bool> {
        let number = self.last.get().wrapping_add(1);
        self.last.set(number);
        match self.socket.send_to(&self.request(number, size), self.to) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(TOO_LARGE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a request from this number on is answered within that time.
    fn awaits(&self, first: u16, limit: Duration) -> io::Result<bool> {
        let until = Instant::now() + limit;
        let mut packet = [0; LARGEST];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv_from(&mut packet) {
                Ok((len, from)) => {
                    let answered = packet.get(..len).and_then(|packet| self.answered(packet));
                    let is_new = |number: u16| number.wrapping_sub(first) < TRIES;
                    if from.ip() == self.to.ip() && answered.is_some_and(is_new) {
                        return Ok(true);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn request(&self, number: u16, size: u16) -> Vec<u8> {
        let (kind, header) = if self.to.is_ipv4() { (8, IPV4_HEADER) } else { (128, IPV6_HEADER) };
        let mut message = vec![kind, 0, 0, 0];
        message.extend(self.identifier);
        message.extend(number.to_be_bytes());
        message.resize(usize::from(size).saturating_sub(header).max(HEADER), 0);
        // For ICMPv6 the kernel computes it.
        let checksum = Sum::new().bytes(&message).finish();
        if self.to.is_ipv4()
            && let Some(sum) = message.get_mut(2..4)
        {
            sum.copy_from_slice(&checksum.to_be_bytes());
        }
        message
    }

    /// The number of the request that a packet answers, if it is one of this socket's.
    fn answered(&self, packet: &[u8]) -> Option<u16> {
        let (reply, message) = if self.to.is_ipv4() {
            // Raw sockets of IPv4 deliver the IP header too.
            (0, packet.get(usize::from(packet.first()? & 15) * 4..)?)
        } else {
            (129, packet)
        };
        let [kind, 0, _, _, high, low, number @ ..] = message.first_chunk::<HEADER>()? else { return None };
        let ours = *kind == reply && [*high, *low] == self.identifier;
        ours.then(|| u16::from_be_bytes(*number))
    }
}
