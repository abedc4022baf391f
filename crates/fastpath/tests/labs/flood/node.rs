//! A node: the filter with a table of shards, and the responder for the VIPs.

use super::{BEYOND, BEYOND6, Side, vips};
use crate::hosts::{PATIENCE, sysctl};
use crate::support::ip;
use crate::support::namespace::Namespace;
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{self, ClusterFilter, Filter, FilterPort, Instance, KeptShards};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::vip::{Speaker, VipLink, host};

/// The same on all nodes.
pub const KEY: [u64; 2] = [7, 11];

type Order = Box<dyn FnOnce(&mut Filter, &mut Speaker) + Send>;

pub struct Node {
    pub number: u8,
    namespace: Arc<Namespace>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub(super) fn start(test: &str, number: u8, namespace: Arc<Namespace>, cluster_mac: MacAddr) -> Self {
        let instance = Instance::new(&format!("ttfl-{test}-{number}-{}", std::process::id())).expect("name");
        let (orders, received) = channel();
        let place = Arc::clone(&namespace);
        let thread = std::thread::spawn(move || {
            place.enter();
            let (filter, speaker) = set_up(&instance, number, cluster_mac);
            run(filter, speaker, &received);
            filter::cleanup(&instance).expect("cleanup");
        });
        let this = Self { number, namespace, orders: Some(orders), thread: Some(thread) };
        this.order(|_, _| ());
        this
    }

    /// Has the node do something, and waits until it is done.
    pub fn order(&self, work: impl FnOnce(&mut Filter, &mut Speaker) + Send + 'static) {
        let (tell, told) = channel();
        let order: Order = Box::new(move |filter, speaker| {
            work(filter, speaker);
            tell.send(()).expect("the test waits");
        });
        self.orders.as_ref().expect("it runs").send(order).expect("the node lives");
        told.recv().expect("the node does what it is told");
    }

    /// The shards that the node keeps from now on, without a deadline.
    pub fn keep(&self, shards: [u64; 4], default_host: bool) {
        self.order(move |filter, speaker| {
            filter
                .set_shards(KeptShards {
                    packets: shards,
                    ike: shards,
                    default_host,
                    ..KeptShards::default()
                })
                .expect("shares");
            filter.set_fence(u64::MAX).expect("fence");
            speaker.set_default_host(default_host);
        });
    }

    /// A socket on all of the node's addresses.
    pub fn listen(&self, port: u16) -> UdpSocket {
        self.namespace.run(|| {
            let socket = UdpSocket::bind(("0.0.0.0", port)).expect("socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
            socket
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut filter: Filter, mut speaker: Speaker, orders: &Receiver<Order>) {
    loop {
        match orders.recv_timeout(Duration::from_millis(2)) {
            Ok(order) => order(&mut filter, &mut speaker),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        speaker.answer().expect("answer");
    }
}

fn set_up(instance: &Instance, number: u8, cluster_mac: MacAddr) -> (Filter, Speaker) {
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        sysctl(setting, "1");
    }
    // Every one of many errors is to be seen.
    for setting in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
        sysctl(setting, "0");
    }
    ip(&format!("route add {BEYOND} via 192.0.2.2"));
    ip(&format!("-6 route add {BEYOND6} via 2001:db8:1::2"));
    let links: Vec<_> = Side::BOTH.map(|side| link(side, number, cluster_mac)).into();
    links.iter().for_each(|link| host::silence(&link.name).expect("sysctl"));
    let vips: BTreeSet<IpAddr> = vips().collect();
    host::set_addresses(&vips, &BTreeSet::new()).expect("virtual addresses");

    let mut filter = Filter::open(instance).expect("filter");
    filter.set_cluster(Some(&ClusterFilter { vips, key: KEY, routed: false })).expect("cluster");
    for (index, link) in (0..).map(PortIndex).zip(&links) {
        let port = FilterPort {
            index,
            name: link.name.clone(),
            ifindex: link.ifindex,
            mac: link.mac,
            cluster_mac: Some(cluster_mac),
            check_source: true,
            allow_generic: false,
        };
        filter.attach(&port).expect("attach");
    }
    (filter, Speaker::open(links).expect("speaker"))
}

fn link(side: Side, number: u8, cluster_mac: MacAddr) -> VipLink {
    let name = format!("{}{number}", side.name());
    let ifindex = nix::net::if_::if_nametoindex(&*name).expect("interface");
    let mac = own_mac(&name);
    let vips = side.vips().map(|vip| vip.parse().expect(vip)).into();
    VipLink { name, ifindex, mac, cluster_mac, vips }
}

/// As the kernel says; /sys shows another namespace's interfaces.
fn own_mac(name: &str) -> MacAddr {
    let output = std::process::Command::new("ip").args(["-o", "link", "show", name]).output().expect("ip");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = text.split("link/ether ").nth(1).expect("an Ethernet interface");
    mac(after.split_whitespace().next().expect("a MAC address")).expect("a MAC address")
}

fn mac(text: &str) -> Option<MacAddr> {
    let octets: Option<Vec<u8>> = text.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    Some(MacAddr(octets?.try_into().ok()?))
}
