//! Three hosts in a row: a client, the gateway under test, and the outside, where nothing may
//! arrive in clear.
//!
//! The gateway's kernel forwards, and its main table has a route to every prefix, so that without
//! Testudo everything would arrive.
#![allow(unreachable_pub)]

use crate::support::namespace::Namespace;
use crate::support::{ip, receive};
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

/// On the client's link.
pub const CLIENT: &str = "172.16.0.7";
/// The gateway's address on the outer link.
pub const GATEWAY: &str = "192.0.2.1";
/// An address outside that is to be protected.
pub const PROTECTED: &str = "10.2.0.5";
pub const PROTECTED_PREFIX: &str = "10.2.0.0/16";
/// An address outside that is not.
pub const OPEN: &str = "10.3.0.5";
pub const PROTECTED6: &str = "2001:db8:2::5";
pub const PROTECTED6_PREFIX: &str = "2001:db8:2::/48";
pub const OPEN6: &str = "2001:db8:3::5";
/// The gateway's interfaces.
pub const INNER: &str = "inner0";
pub const OUTER: &str = "outer0";

const PORT: u16 = 7007;
/// Time limit for expected arrivals, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time after which an unexpected packet would have arrived.
pub const SILENCE: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Hosts {
    pub client: Namespace,
    pub gateway: Namespace,
    pub outside: Namespace,
    listeners: Vec<(IpAddr, UdpSocket)>,
}

impl Hosts {
    pub fn new() -> Self {
        let (client, gateway, outside) = (Namespace::new(), Namespace::new(), Namespace::new());
        gateway.run(|| {
            sysctl("ipv4/ip_forward", "1");
            sysctl("ipv6/conf/all/forwarding", "1");
            for (own, others, host, address) in
                [(INNER, "client0", &client, "172.16.0.7/24"), (OUTER, "out0", &outside, "192.0.2.2/24")]
            {
                ip(&format!("link add {own} type veth peer name {others}"));
                sysctl(&format!("ipv6/conf/{own}/accept_dad"), "0");
                ip(&format!("link set {own} up"));
                host.take(others, address);
                host.run(|| {
                    sysctl("ipv4/conf/all/rp_filter", "0");
                    sysctl(&format!("ipv6/conf/{others}/accept_dad"), "0");
                    sysctl(&format!("ipv6/conf/{others}/disable_ipv6"), "0");
                });
            }
            ip("address add 172.16.0.1/24 dev inner0");
            ip("address add 2001:db8:a::1/64 dev inner0 nodad");
            ip("address add 192.0.2.1/24 dev outer0");
            ip("address add 2001:db8:1::1/64 dev outer0 nodad");
            for prefix in ["10.2.0.0/16", "10.3.0.0/16"] {
                ip(&format!("route add {prefix} via 192.0.2.2"));
            }
            for prefix in [PROTECTED6_PREFIX, "2001:db8:3::/48"] {
                ip(&format!("-6 route add {prefix} via 2001:db8:1::2"));
            }
        });
        client.run(|| {
            ip("address add 2001:db8:a::7/64 dev client0 nodad");
            ip("route add default via 172.16.0.1");
            ip("-6 route add default via 2001:db8:a::1");
        });
        let listeners = outside.run(|| {
            ip("address add 2001:db8:1::2/64 dev out0 nodad");
            ip("route add default via 192.0.2.1");
            ip("-6 route add default via 2001:db8:1::1");
            let addresses = [PROTECTED, OPEN, PROTECTED6, OPEN6];
            addresses.map(|addr| (addr.parse().unwrap(), listen(addr))).into()
        });
        Self { client, gateway, outside, listeners }
    }

    /// Sends from a host to an address outside, and looks whether it arrives there.
    pub fn arrives(&self, from: &Namespace, to: &str) -> bool {
        self.send(from, to, PATIENCE)
    }

    /// Sends from a host to an address outside, and looks whether nothing arrives there.
    pub fn stays_in(&self, from: &Namespace, to: &str) -> bool {
        !self.send(from, to, SILENCE)
    }

    fn send(&self, from: &Namespace, to: &str, patience: Duration) -> bool {
        let to: IpAddr = to.parse().expect(to);
        let text = format!("{:?}", Instant::now());
        from.run(|| {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).expect("socket");
            // That the kernel refuses to send is one way of not arriving.
            let _ = socket.send_to(text.as_bytes(), (to, PORT));
        });
        self.hears_within(to, &text, patience)
    }

    /// True if the text arrives at one of the outside's addresses.
    pub fn hears(&self, at: &str, text: &str) -> bool {
        self.hears_within(at.parse().expect(at), text, PATIENCE)
    }

    fn hears_within(&self, at: IpAddr, text: &str, patience: Duration) -> bool {
        let (_, listener) = self.listeners.iter().find(|(addr, _)| *addr == at).expect("an address outside");
        let end = Instant::now() + patience;
        let mut buffer = [0; 256];
        while Instant::now() < end {
            match receive(listener, &mut buffer) {
                Ok((length, _)) if &buffer[..length] == text.as_bytes() => return true,
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => panic!("listening on {at}: {e}"),
            }
        }
        false
    }
}

/// Makes an address one's own, and listens there.
fn listen(addr: &str) -> UdpSocket {
    let addr: IpAddr = addr.parse().expect(addr);
    ip(&format!("address add {addr} dev lo"));
    let deadline = Instant::now() + PATIENCE;
    // An IPv6 address can be bound to only after duplicate address detection.
    let socket = loop {
        match UdpSocket::bind((addr, PORT)) {
            Ok(socket) => break socket,
            Err(e) => assert!(Instant::now() < deadline, "bind {addr}: {e}"),
        }
    };
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("timeout");
    socket
}

pub fn sysctl(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
