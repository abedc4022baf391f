//! Sockets on which the kernel copies to us the ICMP messages by which routers say that a packet of
//! ours was too large. Other messages do not come here.
//!
//! Anybody may send them. A message that quotes neither ESP, AH nor ESP in UDP never leaves the
//! kernel. A message is believed if it quotes a packet that was sent. Messages that are believed
//! have a budget of their own, which forged ones cannot use up. When one of the budgets is used up,
//! nothing is read until the second is over.

use crate::error::{Error, Result};
use nix::libc;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use testudo_ipsec::pmtu::TooBig;

/// A router quotes 548 octets at most (RFC 1812 §4.3.2.3) or 1232 (RFC 4443 §3.2), and what is
/// quoted first is enough.
const MAX_MESSAGE_OCTETS: usize = 2048;
/// Messages of a socket in one turn.
const MAX_MESSAGES_PER_TURN: usize = 64;
/// Messages in a second that are believed: each may concern all SAs of a path, and other nodes.
/// Routers repeat theirs.
const MAX_BELIEVED_PER_SECOND: usize = 1024;
/// Messages in a second that are not believed. Each costs about a microsecond, and so a flood a few
/// hundredths of a processor.
const MAX_DISBELIEVED_PER_SECOND: usize = 1 << 14;

/// One socket for each family that the kernel has.
pub(crate) struct IcmpSockets {
    sockets: Vec<IcmpSocket>,
}

struct IcmpSocket {
    socket: Socket,
    /// Reads a message as this socket gives it.
    read: fn(&[u8]) -> Option<TooBig>,
    /// Messages that it may still take in this second: those that are believed, and the others.
    left: (usize, usize),
}

impl IcmpSockets {
    /// Opens them.
    pub(crate) fn open() -> Result<Self> {
        let failed = || Error::io("open a socket for ICMP");
        let ipv4 = open(Domain::IPV4, Protocol::ICMPV4, &ipv4_filter()).map_err(failed())?;
        let mut sockets = vec![IcmpSocket::new(ipv4, TooBig::read_ipv4)];
        match open(Domain::IPV6, Protocol::ICMPV6, &ipv6_filter()) {
            Ok(socket) => sockets.push(IcmpSocket::new(socket, TooBig::read_ipv6)),
            // A kernel without IPv6 has no IPv6 paths.
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            Err(e) => return Err(failed()(e)),
        }
        Ok(Self { sockets })
    }

    /// For the poller.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.sockets.iter().map(|one| one.socket.as_raw_fd())
    }

    /// A second is over. The caller must look at the sockets then: a queue that was full wakes
    /// nobody.
    pub(crate) fn refill(&mut self) {
        self.sockets
            .iter_mut()
            .for_each(|one| one.left = (MAX_BELIEVED_PER_SECOND, MAX_DISBELIEVED_PER_SECOND));
    }

    /// Reads messages, up to a burst of each socket. `told` says whether a message is believed.
    /// True if more may wait that can be read in this second.
    pub(crate) fn receive(&mut self, mut told: impl FnMut(&TooBig) -> bool) -> bool {
        let mut more = false;
        for one in &mut self.sockets {
            more |= one.receive(&mut told);
        }
        more
    }
}

impl IcmpSocket {
    fn new(socket: Socket, read: fn(&[u8]) -> Option<TooBig>) -> Self {
        Self { socket, read, left: (MAX_BELIEVED_PER_SECOND, MAX_DISBELIEVED_PER_SECOND) }
    }

    fn receive(&mut self, mut told: impl FnMut(&TooBig) -> bool) -> bool {
        let mut buffer = [0; MAX_MESSAGE_OCTETS];
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let (believed, disbelieved) = &mut self.left;
            if *believed == 0 || *disbelieved == 0 {
                return false;
            }
            let Ok(length) = (&mut &self.socket).read(&mut buffer) else { return false };
            let found = buffer.get(..length).and_then(self.read);
            let left = if found.is_some_and(|found| told(&found)) { believed } else { disbelieved };
            *left -= 1;
        }
        true
    }
}

fn open(domain: Domain, protocol: Protocol, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))?;
    // SO_ATTACH_FILTER.
    socket.attach_filter(filter)?;
    // Drops what came before the filter was attached.
    while (&mut &socket).read(&mut [0; 1]).is_ok() {}
    Ok(socket)
}

// Classic BPF (linux/filter.h). A load from behind the end of a message refuses it.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const LOAD_BEHIND: u16 = 0x50;
const LOAD_TWO_BEHIND: u16 = 0x48;
const LOAD_AT: u16 = 0x30;
const LOAD_TWO_AT: u16 = 0x28;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Quoted protocols (the IANA's registry).
const ESP: u32 = 50;
const AH: u32 = 51;
const UDP: u32 = 17;
const FRAGMENT: u32 = 44;
/// The port that ESP in UDP comes from (RFC 3948 §2.1). IKE fits its messages by itself (RFC 7383).
const NAT_PORT: u32 = 4500;

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code, jt, jf, k)
}

/// Type 3, code 4, behind the IPv4 header; and in the quoted IPv4 header, which has no options,
/// ESP, AH, or UDP from our port.
fn ipv4_filter() -> [SockFilter; 15] {
    [
        step(LOAD_HEADER_LENGTH, 0, 0, 0),
        step(LOAD_BEHIND, 0, 0, 0),
        step(IF_EQUAL, 0, 11, 3),
        step(LOAD_BEHIND, 0, 0, 1),
        step(IF_EQUAL, 0, 9, 4),
        step(LOAD_BEHIND, 0, 0, 8),
        step(IF_EQUAL, 0, 7, 0x45),
        step(LOAD_BEHIND, 0, 0, 8 + 9),
        step(IF_EQUAL, 4, 0, ESP),
        step(IF_EQUAL, 3, 0, AH),
        step(IF_EQUAL, 0, 3, UDP),
        step(LOAD_TWO_BEHIND, 0, 0, 8 + 20),
        step(IF_EQUAL, 0, 1, NAT_PORT),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}

/// Type 2; and in the quoted IPv6 header the same, or behind a Fragment header. The IPv6 header of
/// the message does not come with it.
fn ipv6_filter() -> [SockFilter; 17] {
    [
        step(LOAD_AT, 0, 0, 0),
        step(IF_EQUAL, 0, 14, 2),
        step(LOAD_AT, 0, 0, 8 + 6),
        step(IF_EQUAL, 11, 0, ESP),
        step(IF_EQUAL, 10, 0, AH),
        step(IF_EQUAL, 7, 0, UDP),
        step(IF_EQUAL, 0, 9, FRAGMENT),
        step(LOAD_AT, 0, 0, 8 + 40),
        step(IF_EQUAL, 6, 0, ESP),
        step(IF_EQUAL, 5, 0, AH),
        step(IF_EQUAL, 0, 5, UDP),
        step(LOAD_TWO_AT, 0, 0, 8 + 40 + 8),
        step(IF_EQUAL, 2, 3, NAT_PORT),
        step(LOAD_TWO_AT, 0, 0, 8 + 40),
        step(IF_EQUAL, 0, 1, NAT_PORT),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests;
