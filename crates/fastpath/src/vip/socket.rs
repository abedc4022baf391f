//! A packet socket (packet(7)) of one port.

use crate::mac::MacAddr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use testudo_wire::ethernet::EtherType;

/// `struct sock_filter` of linux/filter.h: code, jumps if true and if false, operand.
const fn insn(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Sends frames, and receives those of one type.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket on the interface with that number; of IPv6 it receives only ICMPv6 messages of one kind.
    pub(super) fn open(ifindex: u32, kind: EtherType, icmpv6: Option<u8>) -> io::Result<Self> {
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers only. With protocol 0 nothing is received until it is bound.
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for us, and nobody else knows it.
        let this = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        if let Some(icmpv6) = icmpv6 {
            this.receive_only(icmpv6)?;
        }
        this.bind(ifindex, kind)?;
        Ok(this)
    }

    /// Everything else of IPv6 would cost a copy.
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
        let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    fn bind(&self, ifindex: u32, kind: EtherType) -> io::Result<()> {
        // SAFETY: zeroes are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = kind.0.to_be();
        address.sll_ifindex = ifindex as i32;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `size` octets of a live value.
        let result = unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), size) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Has the interface receive frames to this address, while the socket is open.
    pub(super) fn accept(&self, ifindex: u32, mac: MacAddr) -> io::Result<()> {
        let kind = if mac.is_group() { libc::PACKET_MR_MULTICAST } else { libc::PACKET_MR_UNICAST };
        let [a, b, c, d, e, f] = mac.0;
        let wanted = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: kind as u16,
            mr_alen: 6,
            mr_address: [a, b, c, d, e, f, 0, 0],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &wanted)
    }

    fn set<T>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        let (pointer, size) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
        // SAFETY: the kernel reads `size` octets of a live value, and the code that a program points to.
        let result = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, pointer, size) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The next frame, cut to the buffer. `None` if there is none.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        // SAFETY: the kernel writes at most the buffer's length.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(length) {
            Ok(length) => Ok(buffer.get(..length)),
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Sends a frame.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads the frame's octets.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
