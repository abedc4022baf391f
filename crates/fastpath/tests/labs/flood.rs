//! Three nodes with the same addresses between two bridged links, a client on the inner link, a
//! peer on the outer one, and a capture of every frame that a node sends.
#![allow(unreachable_pub)]

mod capture;
mod node;

pub use capture::Sent;
pub use node::{KEY, Node};

use crate::hosts::{SILENCE, sysctl};
use crate::support::ip;
use crate::support::namespace::Namespace;
use capture::Capture;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_fastpath::mac::MacAddr;

pub const NODES: u8 = 3;
pub const INNER_VIP: &str = "172.16.0.1";
pub const INNER_VIP6: &str = "2001:db8:a::1";
pub const OUTER_VIP: &str = "192.0.2.1";
pub const OUTER_VIP6: &str = "2001:db8:1::1";
/// Behind the peer.
pub const BEYOND: &str = "198.18.0.0/16";
pub const BEYOND6: &str = "2001:db8:3::/48";

/// The two links of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Inner,
    Outer,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Inner, Self::Outer];

    pub fn name(self) -> &'static str {
        match self {
            Self::Inner => "in",
            Self::Outer => "out",
        }
    }

    pub fn vips(self) -> [&'static str; 2] {
        match self {
            Self::Inner => [INNER_VIP, INNER_VIP6],
            Self::Outer => [OUTER_VIP, OUTER_VIP6],
        }
    }

    /// A host's addresses on the link.
    fn addresses(self, host: u8) -> [String; 2] {
        match self {
            Self::Inner => [format!("172.16.0.{host}/24"), format!("2001:db8:a::{host}/64")],
            Self::Outer => [format!("192.0.2.{host}/24"), format!("2001:db8:1::{host}/64")],
        }
    }
}

/// All VIPs.
pub fn vips() -> impl Iterator<Item = IpAddr> {
    Side::BOTH.into_iter().flat_map(Side::vips).map(|vip| vip.parse().expect(vip))
}

pub struct Flood {
    _switch: Namespace,
    pub client: Namespace,
    _peer: Namespace,
    pub nodes: Vec<Node>,
    pub cluster_mac: MacAddr,
    capture: Capture,
}

impl Flood {
    /// Nodes that keep nothing yet, behind this MAC address.
    pub fn new(test: &str, cluster_mac: MacAddr) -> Self {
        let (switch, client, peer) = (Namespace::new(), Namespace::new(), Namespace::new());
        let namespaces: Vec<_> = (1..=NODES).map(|_| Arc::new(Namespace::new())).collect();
        switch.run(|| {
            for side in Side::BOTH {
                ip(&format!("link add {} type bridge", side.name()));
                sysctl(&format!("ipv6/conf/{}/disable_ipv6", side.name()), "1");
                ip(&format!("link set {} up", side.name()));
            }
            plug(Side::Inner, "client", &client, 7);
            plug(Side::Outer, "peer", &peer, 2);
            for (number, namespace) in (1..).zip(&namespaces) {
                for side in Side::BOTH {
                    plug(side, &format!("{}{number}", side.name()), namespace, 10 + number);
                }
            }
        });
        client.run(|| {
            ip(&format!("route add default via {INNER_VIP}"));
            ip(&format!("-6 route add default via {INNER_VIP6}"));
        });
        peer.run(|| {
            ip(&format!("route add default via {OUTER_VIP}"));
            ip(&format!("-6 route add default via {OUTER_VIP6}"));
            ip(&format!("route add local {BEYOND} dev lo"));
            ip(&format!("-6 route add local {BEYOND6} dev lo"));
        });
        let capture =
            switch.run(|| Capture::start(&|number, side: Side| format!("s-{}{number}", side.name())));
        let nodes =
            (1..).zip(namespaces).map(|(number, ns)| Node::start(test, number, ns, cluster_mac)).collect();
        Self { _switch: switch, client, _peer: peer, nodes, cluster_mac, capture }
    }

    /// The frames that nodes have sent while something was done, until those are there that are
    /// waited for, and shortly after. `None` if they do not come in time.
    pub fn sent_during(
        &self,
        work: impl FnOnce(),
        complete: impl Fn(&[Sent]) -> bool,
        patience: Duration,
    ) -> Option<Vec<Sent>> {
        let (before, end) = (self.capture.count(), Instant::now() + patience);
        work();
        while !complete(&self.capture.since(before)) {
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // A duplicate would arrive at once; this is long for it, and short for a test.
        std::thread::sleep(SILENCE);
        Some(self.capture.since(before))
    }

    /// All that nodes have sent so far.
    pub fn sent(&self) -> Vec<Sent> {
        let sent = self.capture.since(0);
        self.capture.expect_complete();
        sent
    }

    /// One echo request from the client: true if it is answered within `seconds`.
    pub fn ping(&self, options: &str, to: &str, seconds: u32) -> bool {
        self.client.run(|| {
            let arguments = format!("-n -c 1 -W {seconds} {options} {to}");
            let output = Command::new("ping").args(arguments.split_whitespace()).output().expect("ping");
            output.status.success()
        })
    }

    /// Sends one datagram from the client to each address, with this TTL.
    pub fn send(&self, to: &[IpAddr], port: u16, ttl: u32, data: &[u8]) {
        self.client.run(|| {
            for addr in to {
                let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any).expect("socket");
                set_ttl(&socket, *addr, ttl);
                socket.send_to(data, (*addr, port)).expect("send");
            }
        });
    }

    /// The client's entry for the MAC address of its router.
    pub fn neighbour(&self, addr: &str) -> String {
        self.client.run(|| {
            let output = Command::new("ip").args(["neigh", "show", addr]).output().expect("ip");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }
}

fn set_ttl(socket: &UdpSocket, to: IpAddr, ttl: u32) {
    use std::os::fd::AsRawFd;
    let value = ttl as libc::c_int;
    let (level, name) = match to {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads an integer.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A cable from a bridge to a host, which gets an interface of that name.
fn plug(side: Side, name: &str, host: &Namespace, number: u8) {
    let port = format!("s-{name}");
    ip(&format!("link add {name} type veth peer name {port}"));
    sysctl(&format!("ipv6/conf/{port}/disable_ipv6"), "1");
    ip(&format!("link set {port} master {} up", side.name()));
    let [v4, v6] = side.addresses(number);
    host.take(name, &v4);
    host.run(|| {
        sysctl("ipv4/conf/all/rp_filter", "0");
        sysctl("ipv4/conf/default/rp_filter", "0");
        sysctl(&format!("ipv4/conf/{name}/rp_filter"), "0");
        sysctl(&format!("ipv6/conf/{name}/accept_dad"), "0");
        sysctl(&format!("ipv6/conf/{name}/disable_ipv6"), "0");
        ip(&format!("address add {v6} dev {name} nodad"));
    });
}
