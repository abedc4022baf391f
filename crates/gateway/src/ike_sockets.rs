//! The UDP sockets of IKE: ports 500 and 4500, IPv4 and IPv6, with the local address of every
//! datagram.
//!
//! The XDP filter passes IKE alone to these sockets; ESP never gets here. On port 4500 the four
//! zero octets of the non-ESP marker (RFC 3948 §2.2) are added and removed here, so that the
//! protocol crate never sees them.

use crate::error::{Error, Result};
use nix::cmsg_space;
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg,
    sendmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use testudo_ike::output::Path;

/// The well-known ports of IKE (RFC 7296 §2 and §2.23).
pub(crate) const IKE_PORT: u16 = 500;
/// The port of IKE and ESP with NAT traversal.
pub(crate) const NAT_PORT: u16 = 4500;

const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// A burst of handshakes must survive until the control thread gets to it.
const RECEIVE_BUFFER_OCTETS: usize = 4 << 20;

/// Messages taken from one socket before the others have their turn, so that a flood on one does
/// not hide them.
const MAX_MESSAGES_PER_TURN: usize = 16;

struct IkeSocket {
    socket: Socket,
    port: u16,
    is_ipv4: bool,
}

/// All sockets that the kernel lets us have.
pub(crate) struct IkeSockets {
    sockets: Vec<IkeSocket>,
    /// The socket whose turn it is.
    at: Cell<usize>,
    /// Reads that are left of its turn. A read that finds nothing counts, for it is a system call
    /// too.
    left: Cell<usize>,
}

impl IkeSockets {
    /// Opens ports 500 and 4500; `mark` keeps their packets out of the protected routes.
    pub(crate) fn open(mark: u32) -> Result<Self> {
        let mut sockets = Vec::new();
        for port in [IKE_PORT, NAT_PORT] {
            for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
                let local = SocketAddr::new(any, port);
                match open(local, mark) {
                    Ok(socket) => sockets.push(IkeSocket { socket, port, is_ipv4: any.is_ipv4() }),
                    // A kernel without IPv6 has no IPv6 peers.
                    Err(e) if any.is_ipv6() && e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                    Err(source) => return Err(Error::IkePort { local, source }),
                }
            }
        }
        Ok(Self { sockets, at: Cell::new(0), left: Cell::new(MAX_MESSAGES_PER_TURN) })
    }

    /// For the poller.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.sockets.iter().map(|s| s.socket.as_raw_fd())
    }

    /// The next IKE message of any socket, marker taken off: its path and where in the buffer it
    /// lies.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<(Path, Range<usize>)> {
        // One look more than there are sockets: the first may fall at the end of a turn that was
        // used up.
        (0..=self.sockets.len()).find_map(|_| {
            let received = match self.left.get() {
                0 => None,
                left => {
                    self.left.set(left - 1);
                    self.sockets.get(self.at.get())?.receive(buffer)
                }
            };
            if received.is_none() {
                self.at.set((self.at.get() + 1) % self.sockets.len().max(1));
                self.left.set(MAX_MESSAGES_PER_TURN);
            }
            received
        })
    }

    /// Sends an IKE message from `path.local`, the marker put on where the port asks for it.
    pub(crate) fn send(&self, path: Path, bytes: &[u8]) -> io::Result<()> {
        let marker: &[u8] = if path.local.port() == NAT_PORT { &NON_ESP_MARKER } else { &[] };
        self.serving(path.local)?.send(path, &[IoSlice::new(marker), IoSlice::new(bytes)])
    }

    /// Sends a NAT keepalive (RFC 3948 §2.3).
    pub(crate) fn send_keepalive(&self, path: Path) -> io::Result<()> {
        self.serving(path.local)?.send(path, &[IoSlice::new(&[0xff])])
    }

    fn serving(&self, local: SocketAddr) -> io::Result<&IkeSocket> {
        let serves = |s: &&IkeSocket| s.port == local.port() && s.is_ipv4 == local.is_ipv4();
        self.sockets
            .iter()
            .find(serves)
            .ok_or_else(|| io::Error::other(format!("no socket is bound to {local}")))
    }
}

fn open(local: SocketAddr, mark: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_mark(mark)?;
    let room = make_room(&socket, RECEIVE_BUFFER_OCTETS)?;
    if room < RECEIVE_BUFFER_OCTETS {
        tracing::warn!(
            "UDP {local} has room for {room} octets, expected {RECEIVE_BUFFER_OCTETS}: messages may be lost in a storm"
        );
    }
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Makes the receive buffer `wanted` octets large, also beyond net.core.rmem_max, which is small on
/// many machines. Returns how large it is: without CAP_NET_ADMIN the limit holds.
fn make_room(socket: &Socket, wanted: usize) -> io::Result<usize> {
    if setsockopt(socket, sockopt::RcvBufForce, &wanted).is_err() {
        socket.set_recv_buffer_size(wanted)?;
    }
    // The kernel shows twice what was asked for, half of it for its own needs (socket(7)).
    Ok(socket.recv_buffer_size()? / 2)
}

impl IkeSocket {
    /// `None` when nothing waits; a datagram that is no IKE message is skipped.
    fn receive(&self, buffer: &mut [u8]) -> Option<(Path, Range<usize>)> {
        let skip = if self.port == NAT_PORT { NON_ESP_MARKER.len() } else { 0 };
        loop {
            match self.receive_raw(buffer) {
                Ok(Some((path, len))) => return Some((path, skip..len)),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                // The kernel reports an error once; datagrams may wait behind it.
                Err(error) => tracing::warn!("cannot receive on UDP port {}: {error}", self.port),
            }
        }
    }

    fn receive_raw(&self, buffer: &mut [u8]) -> io::Result<Option<(Path, usize)>> {
        let mut space = cmsg_space!(libc::in6_pktinfo);
        let mut parts = [IoSliceMut::new(buffer)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::empty(),
        )?;
        let len = message.bytes;
        let truncated = message.flags.contains(MsgFlags::MSG_TRUNC);
        let local = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
            }
            _ => None,
        });
        let remote = message.address.and_then(|a| to_std(&a));
        let marked =
            self.port != NAT_PORT || (len >= NON_ESP_MARKER.len() && parts[0].starts_with(&NON_ESP_MARKER));
        Ok(match (local, remote) {
            (Some(local), Some(remote)) if marked && !truncated => {
                Some((Path { local: SocketAddr::new(local, self.port), remote }, len))
            }
            _ => None,
        })
    }

    fn send(&self, path: Path, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::empty();
        match (path.local.ip(), path.remote) {
            (IpAddr::V4(local), SocketAddr::V4(remote)) => {
                let source = libc::in_addr { s_addr: u32::from(local).to_be() };
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: source,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                sendmsg(fd, parts, &control, flags, Some(&SockaddrIn::from(remote)))?;
            }
            (IpAddr::V6(local), SocketAddr::V6(remote)) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: local.octets() },
                    ipi6_ifindex: 0,
                };
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                sendmsg(fd, parts, &control, flags, Some(&SockaddrIn6::from(remote)))?;
            }
            (local, remote) => {
                return Err(io::Error::other(format!(
                    "cannot send from {local} to {remote}: families differ"
                )));
            }
        }
        Ok(())
    }
}

fn to_std(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port()));
    }
    address.as_sockaddr_in6().map(|v6| SocketAddr::new(IpAddr::V6(v6.ip()), v6.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_buffer_is_not_bounded_by_the_system_wide_limit() {
        let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let wanted = limit.trim().parse::<usize>().unwrap() * 2;
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        assert_eq!(make_room(&socket, wanted).unwrap(), wanted, "rmem_max is {limit}");
    }
}
