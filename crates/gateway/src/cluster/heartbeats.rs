//! The UDP sockets of heartbeats and acknowledgements: one a link, bound to this node's address
//! there, so that each link proves itself.

use crate::config::ClusterSettings;
use crate::error::{Error, Result};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{IpFreebind, RcvBufForce, SndBufForce};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use testudo_cluster::group::Rosters;
use testudo_cluster::node::NodeId;

/// Octets that may wait in the socket of the first link, as the kernel counts them: a node that is
/// brought up to date may have a megabyte under way from each of the others.
const RECEIVE_BUFFER_OCTETS: usize = 8 << 20;

/// What a read of the sockets has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram of another node.
    Node {
        /// The link that it came by.
        link: u8,
        /// Octets.
        len: usize,
    },
    /// Nothing of use; more may wait. A stranger's datagram counts as a read, or strangers could
    /// keep us reading.
    Nothing,
}

/// Sockets by link, and where the other nodes are on each.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    links: Vec<UdpSocket>,
    /// The link whose turn it is: a flood on one link must not hide the others.
    at: Cell<usize>,
    others: BTreeMap<NodeId, Vec<SocketAddr>>,
    node: NodeId,
    port: u16,
}

impl Heartbeats {
    /// Opens a socket on every link; `mark` keeps its packets out of the protected routes. While
    /// interfaces are missing (`incomplete`) an address that this host does not have yet is
    /// allowed.
    pub(crate) fn open(
        settings: &ClusterSettings,
        rosters: &Rosters,
        mark: u32,
        incomplete: bool,
    ) -> Result<Self> {
        let own = settings.nodes.iter().find(|node| node.id == settings.node);
        let port = settings.heartbeat_port;
        let own = own.map(|node| at(&node.addresses, port)).unwrap_or_default();
        let open = |local: &SocketAddr| {
            let opened = match open(*local, mark, false) {
                Err(e) if incomplete && e.kind() == io::ErrorKind::AddrNotAvailable => {
                    tracing::warn!("{} is no address of this host yet; heartbeats wait for it", local.ip());
                    open(*local, mark, true)
                }
                opened => opened,
            };
            opened.map_err(|source| Error::HeartbeatPort { local: *local, source })
        };
        let links: Vec<UdpSocket> = own.iter().map(open).collect::<Result<_>>()?;
        links.first().into_iter().for_each(widen);
        let mut heartbeats =
            Self { links, at: Cell::new(0), others: BTreeMap::new(), node: settings.node, port };
        heartbeats.follow(rosters);
        Ok(heartbeats)
    }

    /// The nodes of the cluster are these from now on.
    pub(crate) fn follow(&mut self, rosters: &Rosters) {
        let others = rosters.nodes().into_iter().filter(|(node, _)| *node != self.node);
        self.others = others.map(|(node, addresses)| (node, at(addresses, self.port))).collect();
    }

    /// How many links there are.
    pub(crate) fn links(&self) -> u8 {
        // The configuration allows eight.
        self.links.len() as u8
    }

    /// For the poller.
    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.links.iter().map(|socket| socket.as_raw_fd())
    }

    /// The next datagram. `None`: there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<Received> {
        let count = self.links.len();
        (0..count).find_map(|_| {
            let link = self.at.get() % count;
            self.at.set(link + 1);
            match self.links.get(link)?.recv_from(buffer) {
                Ok((len, from)) if self.is_node(link, from) => {
                    // The configuration allows eight links.
                    Some(Received::Node { link: link as u8, len })
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
                // The kernel reports errors of earlier sends here, too, once each: the host of a
                // node that is down refuses datagrams.
                Ok(_) | Err(_) => Some(Received::Nothing),
            }
        })
    }

    fn is_node(&self, link: usize, from: SocketAddr) -> bool {
        self.others.values().any(|addresses| addresses.get(link) == Some(&from))
    }

    /// Sends to another node. A link that is down, or full, loses the datagram: the next heartbeat
    /// is near.
    pub(crate) fn send(&self, to: NodeId, link: u8, bytes: &[u8]) {
        let link = usize::from(link);
        let address = self.others.get(&to).and_then(|addresses| addresses.get(link));
        if let (Some(socket), Some(address)) = (self.links.get(link), address)
            && let Err(error) = socket.send_to(bytes, address)
        {
            tracing::trace!("no heartbeat to node {to} at {address}: {error}");
        }
    }
}

fn at(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
}

/// Makes room for the data that brings a node up to date, which takes the first link. The buffers
/// go beyond the host's limit where that is allowed.
fn widen(link: &UdpSocket) {
    let widened = setsockopt(link, RcvBufForce, &RECEIVE_BUFFER_OCTETS)
        .and_then(|()| setsockopt(link, SndBufForce, &RECEIVE_BUFFER_OCTETS));
    if let Err(error) = widened {
        tracing::debug!("cannot enlarge the socket buffers of the cluster link: {error}");
    }
}

/// `absent`: the address may come later.
fn open(local: SocketAddr, mark: u32, absent: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    socket.set_mark(mark)?;
    if absent {
        // For both families: the kernel keeps one flag for them.
        setsockopt(&socket, IpFreebind, &true)?;
    }
    socket.bind(&local.into())?;
    Ok(socket.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::roster::configured;
    use super::*;
    use crate::config::{ClusterMac, NodeSettings, Timers};
    use std::time::{Duration, Instant};
    use testudo_cluster::group::{Ingress, NoQuorum, QuorumRule};

    pub(in super::super) fn settings(node: u32, port: u16) -> ClusterSettings {
        let id = |number| NodeId::new(number).unwrap();
        let addresses = |node: u32| (0..2).map(|link| IpAddr::from([127, 9, link, node as u8])).collect();
        ClusterSettings {
            node: id(node),
            nodes: (1..=2).map(|n| NodeSettings { id: id(n), addresses: addresses(n) }).collect(),
            key: "/key".into(),
            group: String::new(),
            vips: Vec::new(),
            mac: ClusterMac::Group,
            no_quorum: NoQuorum::Forward,
            quorum: QuorumRule::Majority,
            ingress: Ingress::Flood,
            announce_table: None,
            withdraw: Duration::ZERO,
            follow_traffic: true,
            replicate_config: true,
            protocol: 0,
            timers: Timers {
                heartbeat: Duration::ZERO,
                fence: Duration::ZERO,
                suspicion_min: Duration::ZERO,
                suspicion_max: Duration::ZERO,
            },
            heartbeat_port: port,
            state: "/state".into(),
            message_id_sync: false,
            generation: None,
            key_place: String::new(),
            nodes_place: "t.toml:9: cluster.nodes".into(),
        }
    }

    fn open_all(settings: &ClusterSettings, incomplete: bool) -> Result<Heartbeats> {
        Heartbeats::open(settings, &configured(settings), 7, incomplete)
    }

    /// Two nodes, and their port: one that was free on the first address, if it is so on the
    /// others.
    fn nodes() -> ([Heartbeats; 2], u16) {
        let attempt = || {
            let free = UdpSocket::bind("127.9.0.1:0").unwrap().local_addr().unwrap().port();
            let open = |node| open_all(&settings(node, free), false);
            Ok(([open(1)?, open(2)?], free))
        };
        let mut attempts = (0..100).map(|_| attempt());
        attempts.find(Result::is_ok).unwrap_or_else(attempt).unwrap_or_else(|e: Error| panic!("{e}"))
    }

    fn receive(heartbeats: &Heartbeats) -> Option<(u8, Vec<u8>)> {
        let (mut buffer, start) = ([0; 64], Instant::now());
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(Received::Node { link, len }) = heartbeats.receive(&mut buffer) {
                return Some((link, buffer[..len].to_vec()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    #[test]
    fn heartbeats_go_by_their_link_and_strangers_are_not_heard() {
        let ([one, two], port) = nodes();
        let stranger = UdpSocket::bind("127.9.1.77:0").unwrap();
        stranger.send_to(b"forged", ("127.9.1.2", port)).unwrap();
        one.send(NodeId::new(2).unwrap(), 1, b"second");
        assert_eq!(receive(&two), Some((1, b"second".to_vec())));
        two.send(NodeId::new(1).unwrap(), 0, b"first");
        assert_eq!(receive(&one), Some((0, b"first".to_vec())));
        assert_eq!(two.receive(&mut [0; 64]), None);
    }

    #[test]
    fn a_node_that_is_added_is_heard_and_one_that_is_removed_is_not() {
        let ([mut one, two], port) = nodes();
        let mut rosters = configured(&settings(1, port));
        let two_at = rosters.settled.nodes.remove(&NodeId::new(2).unwrap()).unwrap();
        one.follow(&rosters);
        two.send(NodeId::new(1).unwrap(), 1, b"removed");
        one.send(NodeId::new(2).unwrap(), 1, b"nowhere");
        let begun = Instant::now();
        while one.receive(&mut [0; 64]).is_none() && begun.elapsed() < Duration::from_secs(60) {}
        rosters.settled.nodes.insert(NodeId::new(2).unwrap(), two_at);
        one.follow(&rosters);
        two.send(NodeId::new(1).unwrap(), 1, b"added");
        one.send(NodeId::new(2).unwrap(), 0, b"to the added one");
        assert_eq!(receive(&one), Some((1, b"added".to_vec())));
        assert_eq!(receive(&two), Some((0, b"to the added one".to_vec())));
    }

    #[test]
    fn a_flood_of_strangers_on_one_link_does_not_hide_the_others() {
        let ([one, two], port) = nodes();
        let stranger = UdpSocket::bind("127.9.0.77:0").unwrap();
        for _ in 0..50 {
            stranger.send_to(b"forged", ("127.9.0.2", port)).unwrap();
        }
        one.send(NodeId::new(2).unwrap(), 1, b"heartbeat");
        let looks: Vec<_> = std::iter::from_fn(|| two.receive(&mut [0; 64])).take(100).collect();
        let heard = looks.iter().position(|found| *found == Received::Node { link: 1, len: 9 });
        assert!(heard.is_some_and(|at| at <= 2), "{looks:?}");
        assert_eq!(looks.len(), 51, "each stranger's datagram counts as a look");
    }

    #[test]
    fn an_address_of_another_host_is_named() {
        let mut elsewhere = settings(1, 5406);
        elsewhere.nodes[0].addresses[1] = "192.0.2.77".parse().unwrap();
        let error = open_all(&elsewhere, false).unwrap_err().to_string();
        assert!(error.starts_with("cannot open UDP 192.0.2.77:5406 for heartbeats"), "{error}");
        assert!(error.ends_with("(is it an address of this host?)"), "{error}");
    }

    #[test]
    fn while_interfaces_are_missing_their_addresses_are_waited_for() {
        for absent in ["192.0.2.77", "2001:db8::77"] {
            let mut elsewhere = settings(1, 0);
            elsewhere.nodes[0].addresses[1] = absent.parse().unwrap();
            elsewhere.nodes[1].addresses[1] = absent.parse().unwrap();
            let heartbeats = open_all(&elsewhere, true).unwrap();
            // Nothing leaves, and nothing breaks.
            heartbeats.send(NodeId::new(2).unwrap(), 1, b"heartbeat");
            assert_eq!(heartbeats.links(), 2);
        }
    }
}
