//! Every frame that a node sends, seen where it enters the switch.

use super::{NODES, Side};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

/// A frame that a node has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub node: u8,
    pub side: Side,
    pub frame: Vec<u8>,
}

impl Sent {
    pub fn src_mac(&self) -> &[u8] {
        &self.frame[6..12]
    }

    fn kind(&self) -> u16 {
        u16::from_be_bytes([self.frame[12], self.frame[13]])
    }

    /// ARP: operation, the sender's MAC and IP address.
    pub fn arp(&self) -> Option<(u16, &[u8], IpAddr)> {
        let body = self.frame.get(14..42).filter(|_| self.kind() == 0x0806)?;
        let sender: [u8; 4] = body[14..18].try_into().ok()?;
        Some((u16::from_be_bytes([body[6], body[7]]), &body[8..14], Ipv4Addr::from(sender).into()))
    }

    /// Source, destination, protocol, and what is behind the IP header. Fragments but the first
    /// have no protocol.
    pub fn ip(&self) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
        let packet = self.frame.get(14..)?;
        let v4 = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]).into();
        let v6 =
            |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 octets")).into();
        match self.kind() {
            0x0800 => {
                let later = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
                Some((v4(12), v4(16), if later { 255 } else { packet[9] }, &packet[20..]))
            }
            0x86dd => match packet[6] {
                44 if u16::from_be_bytes([packet[42], packet[43]]) & 0xfff8 != 0 => {
                    Some((v6(8), v6(24), 255, &packet[48..]))
                }
                44 => Some((v6(8), v6(24), packet[40], &packet[48..])),
                next => Some((v6(8), v6(24), next, &packet[40..])),
            },
            _ => None,
        }
    }

    /// Source, destination, and the message.
    pub fn icmp(&self) -> Option<(IpAddr, IpAddr, &[u8])> {
        let (src, dst, proto, message) = self.ip()?;
        (proto == if src.is_ipv4() { 1 } else { 58 }).then_some((src, dst, message))
    }

    pub fn is_echo_reply(&self, from: IpAddr) -> bool {
        let kind = if from.is_ipv4() { 0 } else { 129 };
        self.icmp().is_some_and(|(src, _, message)| src == from && message[0] == kind)
    }

    /// Identifier and number of an echo reply from there: which request it answers.
    pub fn echo_reply(&self, from: IpAddr) -> Option<[u8; 4]> {
        let (_, _, message) = self.icmp().filter(|_| self.is_echo_reply(from))?;
        message.get(4..8)?.try_into().ok()
    }

    /// Destination address and port of a UDP datagram.
    pub fn udp(&self) -> Option<(IpAddr, u16)> {
        let (_, dst, proto, datagram) = self.ip()?;
        (proto == 17).then(|| Some((dst, port(datagram)?))).flatten()
    }

    /// Destination address and port of the UDP datagram whose time was exceeded.
    pub fn time_exceeded(&self) -> Option<(IpAddr, u16)> {
        let (_, _, message) = self.icmp()?;
        match (self.kind(), message[0]) {
            (0x0800, 11) => {
                let dst = Ipv4Addr::from(<[u8; 4]>::try_from(&message[24..28]).ok()?);
                Some((dst.into(), port(&message[28..])?))
            }
            (0x86dd, 3) => {
                let dst = Ipv6Addr::from(<[u8; 16]>::try_from(&message[32..48]).ok()?);
                Some((dst.into(), port(&message[48..])?))
            }
            _ => None,
        }
    }

    /// Neighbour Discovery: kind, source, target, and the MAC address of its option.
    pub fn nd(&self) -> Option<(u8, IpAddr, IpAddr, Option<&[u8]>)> {
        let (src, _, message) = self.icmp().filter(|(src, _, _)| src.is_ipv6())?;
        let target = <[u8; 16]>::try_from(message.get(8..24)?).ok()?;
        let option = message.get(24..32).map(|option| &option[2..]);
        matches!(message[0], 135 | 136).then_some((message[0], src, Ipv6Addr::from(target).into(), option))
    }
}

/// The destination port of UDP.
fn port(datagram: &[u8]) -> Option<u16> {
    datagram.get(2..4).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
}

/// The socket holds the frames until they are looked at.
pub(super) struct Capture {
    frames: Mutex<Vec<Sent>>,
    ports: BTreeMap<i32, (u8, Side)>,
    socket: OwnedFd,
}

impl Capture {
    /// Begins, in the calling thread's namespace. `port` names the switch's end of a node's cable.
    pub(super) fn start(port: &dyn Fn(u8, Side) -> String) -> Self {
        let mut ports = BTreeMap::new();
        for (node, side) in (1..=NODES).flat_map(|node| Side::BOTH.map(|side| (node, side))) {
            let ifindex = nix::net::if_::if_nametoindex(&*port(node, side)).expect("port");
            ports.insert(ifindex as i32, (node, side));
        }
        // SAFETY: takes numbers only.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from((libc::ETH_P_ALL as u16).to_be()))
        };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just opened, and without another owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let room: libc::c_int = 16 << 20;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel reads an integer.
        let result = unsafe {
            let value = (&raw const room).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, size)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Self { frames: Mutex::new(Vec::new()), ports, socket }
    }

    pub(super) fn count(&self) -> usize {
        self.since(0).len()
    }

    /// All frames but the first `before`.
    pub(super) fn since(&self, before: usize) -> Vec<Sent> {
        let mut frames = self.frames.lock().expect("nobody panics while it is held");
        while let Some(sent) = self.read() {
            frames.extend(sent);
        }
        frames[before..].to_vec()
    }

    /// Panics if a frame was lost: it might have been the second copy of something.
    pub(super) fn expect_complete(&self) {
        let mut statistics = [0u32; 2];
        let mut size = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` octets: packets and drops.
        let result = unsafe {
            let value = (&raw mut statistics).cast();
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                value,
                &raw mut size,
            )
        };
        assert_eq!((result, statistics[1]), (0, 0), "the capture has lost frames");
    }

    /// The next frame, which may be none of a node's. `None`: there is no other now.
    fn read(&self) -> Option<Option<Sent>> {
        let mut buffer = [0; 2048];
        // SAFETY: zeroes are a valid address.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel writes at most the lengths that are given.
        let length = unsafe {
            libc::recvfrom(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
                (&raw mut from).cast(),
                &raw mut size,
            )
        };
        let frame = usize::try_from(length).ok().and_then(|length| buffer.get(..length))?;
        let sender = self.ports.get(&from.sll_ifindex).filter(|_| from.sll_pkttype != libc::PACKET_OUTGOING);
        Some(sender.map(|(node, side)| Sent { node: *node, side: *side, frame: frame.to_vec() }))
    }
}
