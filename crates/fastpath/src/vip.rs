//! Virtual addresses (VIPs), which all nodes of a cluster have: answering for them and announcing
//! them on each link.
//!
//! A VIP is at the cluster's MAC address, so that every node receives what is sent to it. The
//! kernel must never say otherwise. So VIPs are on the loopback interface, and [`host`] keeps the
//! kernel from speaking ARP and Neighbour Discovery for them. The default host's [`Speaker`] does,
//! with the cluster's MAC as the sender in ARP and as the option in Neighbour Discovery.
//!
//! The *Ethernet* source of these frames, and of all others, is the port's own MAC. It cannot be a
//! group address. If it were the cluster's unicast address, a switch would learn a port for it and
//! stop flooding to the other nodes. Hosts learn neighbours from the packet, not from the frame. So
//! a switch that inspects ARP must not require the two to be equal.

pub(crate) mod arp;
pub mod host;
pub(crate) mod nd;
mod socket;

pub(crate) use socket::PacketSocket;

use crate::error::{Error, Result};
use crate::mac::MacAddr;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use testudo_wire::ethernet::EtherType;

/// Bound on the frames of a socket that are read in one turn. A host that asks for more at once has
/// to ask again.
const MAX_FRAMES_PER_TURN: usize = 64;
/// Longer than any ARP request or solicitation.
const MAX_QUESTION_LEN: usize = 256;

/// A link with VIPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipLink {
    /// Name of the interface.
    pub name: String,
    /// Number of the interface in the kernel.
    pub ifindex: u32,
    /// The port's own address.
    pub mac: MacAddr,
    /// The cluster's address on this link.
    pub cluster_mac: MacAddr,
    /// The VIPs that belong to this link.
    pub vips: BTreeSet<IpAddr>,
}

impl VipLink {
    fn has(&self, addr: IpAddr) -> bool {
        self.vips.contains(&addr)
    }

    fn failed(&self, call: &'static str) -> impl FnOnce(io::Error) -> Error {
        let interface = self.name.clone();
        move |source| Error::Interface { interface, call, source }
    }
}

/// Answers for the VIPs on all links while this node is the default host, and announces them.
#[derive(Debug)]
pub struct Speaker {
    links: Vec<Open>,
    default_host: bool,
    answered: u64,
}

#[derive(Debug)]
struct Open {
    link: VipLink,
    arp: PacketSocket,
    nd: PacketSocket,
    /// Keeps the membership in the solicited-node groups of the VIPs. `None` if there are no IPv6
    /// VIPs.
    _groups: Option<UdpSocket>,
}

impl Speaker {
    /// Listens on the links and has their interfaces receive frames to the cluster's MAC. Silent
    /// until this node is the default host.
    pub fn open(links: Vec<VipLink>) -> Result<Self> {
        let links = links.into_iter().map(Open::new).collect::<Result<_>>()?;
        Ok(Self { links, default_host: false, answered: 0 })
    }

    /// Descriptors that are readable when there is something to answer.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().flat_map(Open::descriptors)
    }

    /// Makes this node the default host, or ends that.
    pub fn set_default_host(&mut self, default_host: bool) {
        self.default_host = default_host;
    }

    /// Follows interfaces that have come, gone or changed their addresses: listens on exactly these
    /// links. The default host announces the VIPs on each new link. Returns the descriptors to wait
    /// for there. A link that fails is tried again with the next call.
    pub fn follow(&mut self, links: Vec<VipLink>) -> (Vec<BorrowedFd<'_>>, Result<()>) {
        self.links.retain(|open| links.contains(&open.link));
        let (before, mut result) = (self.links.len(), Ok(()));
        for link in links {
            if self.links.iter().any(|open| open.link == link) {
                continue;
            }
            match Open::new(link) {
                Ok(open) => self.links.push(open),
                Err(error) => result = Err(error),
            }
        }
        let fresh = self.links.get(before..).unwrap_or_default();
        if self.default_host {
            result = fresh.iter().try_for_each(Open::announce).and(result);
        }
        (fresh.iter().flat_map(Open::descriptors).collect(), result)
    }

    /// Reads the questions that have come and answers them, if this node is the default host. An
    /// answer that cannot be sent will be asked for again.
    pub fn answer(&mut self) -> Result<()> {
        for open in &self.links {
            for (socket, answer) in [(&open.arp, arp::answer as Answer), (&open.nd, nd::answer)] {
                for _ in 0..MAX_FRAMES_PER_TURN {
                    let mut buffer = [0; MAX_QUESTION_LEN];
                    let frame = socket.receive(&mut buffer);
                    // The link may be down for a while.
                    let Some(frame) =
                        frame.or_else(passing).map_err(open.link.failed("receiving ARP or ND"))?
                    else {
                        break;
                    };
                    let reply = if self.default_host { answer(&open.link, frame) } else { None };
                    if let Some(reply) = reply {
                        socket
                            .send(&reply)
                            .or_else(passing)
                            .map_err(open.link.failed("answering ARP or ND"))?;
                        self.answered += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of answered questions.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Announces the VIPs on the links by gratuitous ARP and unsolicited advertisements. The
    /// default host does so when it becomes one.
    pub fn announce(&self) -> Result<()> {
        self.links.iter().try_for_each(Open::announce)
    }
}

type Answer = fn(&VipLink, &[u8]) -> Option<Vec<u8>>;

/// Turns the errors of a link that is down, or has no room at the moment, into success.
fn passing<T: Default>(error: io::Error) -> io::Result<T> {
    match error.raw_os_error() {
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => {
            Ok(T::default())
        }
        _ => Err(error),
    }
}

impl Open {
    fn new(link: VipLink) -> Result<Self> {
        let failed = |call| link.failed(call);
        let arp =
            PacketSocket::open(link.ifindex, EtherType::ARP, None).map_err(failed("listening for ARP"))?;
        let nd = PacketSocket::open(link.ifindex, EtherType::IPV6, Some(nd::SOLICITATION));
        let nd = nd.map_err(failed("listening for Neighbour Discovery"))?;
        let accepted = arp.accept(link.ifindex, link.cluster_mac);
        accepted.map_err(failed("receiving what is for the cluster's MAC address"))?;
        let asked: Vec<Ipv6Addr> = link.vips.iter().filter_map(v6).map(nd::solicited_node).collect();
        let groups = (!asked.is_empty()).then(|| join(link.ifindex, &asked)).transpose();
        let groups = groups.map_err(failed("joining the groups of its IPv6 virtual addresses"))?;
        Ok(Self { link, arp, nd, _groups: groups })
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.arp.as_fd(), self.nd.as_fd()]
    }

    fn announce(&self) -> Result<()> {
        for vip in &self.link.vips {
            let sent = match vip {
                IpAddr::V4(vip) => self.arp.send(&arp::announcement(&self.link, *vip)),
                IpAddr::V6(vip) => self.nd.send(&nd::announcement(&self.link, *vip)),
            };
            sent.or_else(passing).map_err(self.link.failed("announcing a virtual address"))?;
        }
        Ok(())
    }
}

fn v6(addr: &IpAddr) -> Option<Ipv6Addr> {
    match addr {
        IpAddr::V6(addr) => Some(*addr),
        IpAddr::V4(_) => None,
    }
}

/// Joins the groups through the kernel, so that switches that snoop MLD learn of it.
fn join(ifindex: u32, groups: &[Ipv6Addr]) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    // Two addresses may share one group.
    for group in groups.iter().collect::<BTreeSet<_>>() {
        socket.join_multicast_v6(group, ifindex)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    pub(super) const CLUSTER: [u8; 6] = [3, 0, 0, 0, 0, 9];
    pub(super) const VIP: [u8; 4] = [192, 0, 2, 1];
    pub(super) const VIP6: &str = "2001:db8:1::1";

    pub(super) fn link() -> VipLink {
        VipLink {
            name: "outer0".to_owned(),
            ifindex: 2,
            mac: MacAddr(OWN),
            cluster_mac: MacAddr(CLUSTER),
            vips: [IpAddr::from(VIP), VIP6.parse().unwrap()].into(),
        }
    }
}
