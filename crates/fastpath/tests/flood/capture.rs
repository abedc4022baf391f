//! Every frame that a node sends, seen where it enters the switch.

use super::{NODES, Side};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

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

    /// Source, destination, protocol, and what is behind the IP header. Fragments but the first have no protocol.
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

    /// The destination of the packet whose time was exceeded.
    pub fn time_exceeded(&self) -> Option<IpAddr> {
        let (_, _, message) = self.icmp()?;
        match (self.kind(), message[0]) {
            (0x0800, 11) => Some(Ipv4Addr::from(<[u8; 4]>::try_from(&message[24..28]).ok()?).into()),
            (0x86dd, 3) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(&message[32..48]).ok()?).into()),
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

pub(super) struct Capture {
    frames: Arc<Mutex<Vec<Sent>>>,
    socket: Arc<OwnedFd>,
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
        // SAFETY: just opened, and nobody else knows it.
        let socket = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let room: libc::c_int = 16 << 20;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel reads an integer.
        let result = unsafe {
            let value = (&raw const room).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, size)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        let frames = Arc::new(Mutex::new(Vec::new()));
        let capture = Self { frames: Arc::clone(&frames), socket: Arc::clone(&socket) };
        std::thread::spawn(move || {
            // Ends with the test: then nobody else has the frames.
            while Arc::strong_count(&frames) > 1 {
                read(&socket, &ports, &frames);
            }
        });
        capture
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn since(&self, before: usize) -> Vec<Sent> {
        self.lock()[before..].to_vec()
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

    fn lock(&self) -> MutexGuard<'_, Vec<Sent>> {
        self.frames.lock().expect("the capture goes on")
    }
}

fn read(socket: &OwnedFd, ports: &BTreeMap<i32, (u8, Side)>, frames: &Mutex<Vec<Sent>>) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    if unsafe { libc::poll(&raw mut poll, 1, 50) } <= 0 {
        return;
    }
    let mut buffer = [0; 2048];
    // SAFETY: zeroes are a valid address.
    let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the lengths that are given.
    let length = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut from).cast(),
            &raw mut size,
        )
    };
    let Some(frame) = usize::try_from(length).ok().and_then(|length| buffer.get(..length)) else { return };
    if let Some((node, side)) =
        ports.get(&from.sll_ifindex).filter(|_| from.sll_pkttype != libc::PACKET_OUTGOING)
    {
        frames.lock().expect("the test reads").push(Sent { node: *node, side: *side, frame: frame.to_vec() });
    }
}
