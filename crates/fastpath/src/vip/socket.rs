//! A packet socket (packet(7)) of one port.

use crate::mac::MacAddr;
use crate::sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use testudo_wire::ethernet::EtherType;

/// `struct sock_filter` of linux/filter.h: code, jumps if true and if false, operand.
const fn insn(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Sends frames, and receives those of one type.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket on the interface with this number. Of IPv6 it receives only ICMPv6 messages
    /// of the given type.
    pub(crate) fn open(ifindex: u32, kind: EtherType, icmpv6: Option<u8>) -> io::Result<Self> {
        let this = Self(socket::packet()?);
        if let Some(icmpv6) = icmpv6 {
            this.receive_only(icmpv6)?;
        }
        socket::bind_packet(this.as_fd(), ifindex, kind.0)?;
        Ok(this)
    }

    /// Filters in the kernel, because every other IPv6 packet would cost a copy.
    fn receive_only(&self, icmpv6: u8) -> io::Result<()> {
        const LOAD_OCTET: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
        const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
        let mut code = [
            insn(LOAD_OCTET, 0, 0, 14 + 6),
            insn(IF_EQUAL, 0, 3, libc::IPPROTO_ICMPV6 as u32),
            insn(LOAD_OCTET, 0, 0, 14 + 40),
            insn(IF_EQUAL, 0, 1, u32::from(icmpv6)),
            insn(RETURN, 0, 0, u32::from(u16::MAX)),
            insn(RETURN, 0, 0, 0),
        ];
        socket::attach_filter(self.as_fd(), &mut code)
    }

    /// Has the interface receive frames to this address while the socket is open.
    pub(super) fn accept(&self, ifindex: u32, mac: MacAddr) -> io::Result<()> {
        let kind = if mac.is_group() { libc::PACKET_MR_MULTICAST } else { libc::PACKET_MR_UNICAST };
        let [a, b, c, d, e, f] = mac.0;
        let wanted = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: kind as u16,
            mr_alen: 6,
            mr_address: [a, b, c, d, e, f, 0, 0],
        };
        socket::set(self.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wanted)
    }

    /// The next frame, cut to the buffer. `None` if there is none.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match socket::receive(self.as_fd(), buffer) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        socket::send(self.as_fd(), frame)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
