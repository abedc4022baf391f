//! A raw ICMP socket that sends echo requests and recognises its own replies (RFC 792, RFC 4443
//! §4.1).

use aws_lc_rs::rand;
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use testudo_wire::checksum::Sum;

/// Type, code, checksum, identifier, sequence number.
const HEADER: usize = 8;
/// Larger than any reply.
const LARGEST: usize = 1 << 16;
/// Buffer for packets that arrive while the thread has no CPU.
const BUFFER: usize = 4 << 20;

/// A reply.
pub(super) struct Echo {
    /// The number of the request.
    pub(super) number: u16,
    /// When it was read.
    pub(super) at: Instant,
}

/// Sends requests to one host, with an identifier of its own.
pub(super) struct Socket {
    to: SocketAddr,
    socket: UdpSocket,
    identifier: [u8; 2],
}

impl Socket {
    /// Opens it in the namespace of the calling thread.
    pub(super) fn open(to: IpAddr) -> io::Result<Self> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&raw, RcvBufForce, &BUFFER)?;
        let mut identifier = [0; 2];
        rand::fill(&mut identifier).map_err(|_| io::Error::other("no random octets"))?;
        // The standard library has no type for raw sockets; that of UDP sockets fits.
        Ok(Self { to: SocketAddr::new(to, 0), socket: raw.into(), identifier })
    }

    /// Sends request `number`.
    pub(super) fn send(&self, number: u16, data: &[u8]) -> io::Result<()> {
        let request = if self.to.is_ipv4() { 8 } else { 128 };
        let mut packet = vec![request, 0, 0, 0];
        packet.extend(self.identifier);
        packet.extend(number.to_be_bytes());
        packet.extend(data);
        if self.to.is_ipv4() {
            // For ICMPv6 the kernel computes it.
            let sum = Sum::new().bytes(&packet).finish();
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        self.socket.send_to(&packet, self.to).map(drop)
    }

    /// The next reply to one of this socket's requests; `None` after a timeout or for another
    /// packet.
    pub(super) fn receive(&self, wait: Duration) -> io::Result<Option<Echo>> {
        self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        let mut packet = [0; LARGEST];
        let (len, from) = match self.socket.recv_from(&mut packet) {
            Ok(read) => read,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(e) => return Err(e),
        };
        let (at, packet) = (Instant::now(), &packet[..len]);
        let number = if from.ip() == self.to.ip() { self.number(packet) } else { None };
        Ok(number.map(|number| Echo { number, at }))
    }

    /// The number of the request that a packet answers, if it is one of this socket's.
    fn number(&self, packet: &[u8]) -> Option<u16> {
        let (reply, message) = if self.to.is_ipv4() {
            // Raw sockets of IPv4 deliver the IP header too.
            (0, packet.get(usize::from(packet.first()? & 15) * 4..)?)
        } else {
            (129, packet)
        };
        let header = message.get(..HEADER)?;
        let ours = header[..2] == [reply, 0] && header[4..6] == self.identifier;
        ours.then(|| u16::from_be_bytes([header[6], header[7]]))
    }
}
