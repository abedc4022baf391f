//! Where routers tell that a packet of ours was too large: the kernel's copies of such ICMP messages, and of no others.

use nix::libc;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use testudo_ipsec::pmtu::TooBig;

/// A router quotes 548 octets at most (RFC 1812 §4.3.2.3) or 1232 (RFC 4443 §3.2), and what is quoted first is enough.
const LARGEST: usize = 2048;
/// Messages of a socket in one turn.
const BURST: usize = 64;
/// And in a second. Who floods us with such messages must not keep IKE waiting, and routers say it again.
const EACH_SECOND: usize = 256;

/// One socket for each family that the kernel has.
pub(crate) struct IcmpSockets {
    sockets: Vec<IcmpSocket>,
}

struct IcmpSocket {
    socket: Socket,
    /// Reads a message as this socket gives it.
    read: fn(&[u8]) -> Option<TooBig>,
    /// Messages that it may take in this second.
    left: usize,
}

impl IcmpSockets {
    /// Opens them.
    pub(crate) fn open() -> Result<Self, String> {
        let failed = |e: io::Error| format!("cannot open a socket for ICMP: {e}");
        let ipv4 = open(Domain::IPV4, Protocol::ICMPV4, &ipv4_filter()).map_err(failed)?;
        let mut sockets = vec![IcmpSocket { socket: ipv4, read: TooBig::read_ipv4, left: EACH_SECOND }];
        match open(Domain::IPV6, Protocol::ICMPV6, &ipv6_filter()) {
            Ok(socket) => sockets.push(IcmpSocket { socket, read: TooBig::read_ipv6, left: EACH_SECOND }),
            // A kernel without IPv6 has no IPv6 paths.
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            Err(e) => return Err(failed(e)),
        }
        Ok(Self { sockets })
    }

    /// For the poller.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.sockets.iter().map(|one| one.socket.as_raw_fd())
    }

    /// A second is over. Look at them: a queue that was full then wakes nobody.
    pub(crate) fn refill(&mut self) {
        self.sockets.iter_mut().for_each(|one| one.left = EACH_SECOND);
    }

    /// What has come, up to a burst of each. The rest is read with what comes next.
    pub(crate) fn receive(&mut self, mut told: impl FnMut(&TooBig)) {
        let mut buffer = [0; LARGEST];
        for one in &mut self.sockets {
            for _ in 0..BURST.min(one.left) {
                let Ok(length) = (&mut &one.socket).read(&mut buffer) else { break };
                one.left -= 1;
                if let Some(found) = buffer.get(..length).and_then(one.read) {
                    told(&found);
                }
            }
        }
    }
}

fn open(domain: Domain, protocol: Protocol, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))?;
    socket.attach_filter(filter)?;
    // What came before the filter was there.
    while (&mut &socket).read(&mut [0; 1]).is_ok() {}
    Ok(socket)
}

// Classic BPF (linux/filter.h).
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const LOAD_BEHIND: u16 = 0x50;
const LOAD_AT: u16 = 0x30;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Type 3, code 4, behind the IPv4 header.
fn ipv4_filter() -> [SockFilter; 7] {
    [
        SockFilter::new(LOAD_HEADER_LENGTH, 0, 0, 0),
        SockFilter::new(LOAD_BEHIND, 0, 0, 0),
        SockFilter::new(IF_EQUAL, 0, 3, 3),
        SockFilter::new(LOAD_BEHIND, 0, 0, 1),
        SockFilter::new(IF_EQUAL, 0, 1, 4),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// Type 2. The IPv6 header does not come with it.
fn ipv6_filter() -> [SockFilter; 4] {
    [
        SockFilter::new(LOAD_AT, 0, 0, 0),
        SockFilter::new(IF_EQUAL, 0, 1, 2),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}
