//! client — left gateway — right gateway — server, over veth pairs, with a worker and a real IPsec
//! pipeline in each gateway and one Child SA pair between them. No IKE: the keys are fixed.

use super::ip;
use super::namespace::Namespace;
use super::redirect::Redirect;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use testudo_base::spi::{SenderId, Spi};
use testudo_crypto::Library;
use testudo_fastpath::fib::{Fib, NextHop, Out, PortIndex, Route};
use testudo_fastpath::filter::{Class, STAMP_MAGIC};
use testudo_fastpath::frame::{ChunkSize, FramePool};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Worker, WorkerConfig, WorkerHandle};
use testudo_ipsec::dataplane::{Command as Change, Config, Dataplane, LocalAddrs, PolicyBlock};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};

pub const CLIENT: &str = "10.1.0.2";
pub const SERVER: &str = "10.2.0.2";

/// One gateway.
#[derive(Debug)]
pub struct Gateway {
    pub namespace: Namespace,
    pub worker: WorkerHandle,
    /// The counters of the SPD and SAs of the worker.
    pub pipeline: Arc<testudo_ipsec::dataplane::Counters>,
    _redirects: [Redirect; 2],
}

/// The whole line.
#[derive(Debug)]
pub struct Tunnel {
    pub client: Namespace,
    pub left: Gateway,
    pub right: Gateway,
    pub server: Namespace,
}

/// Options of the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub worker: WorkerConfig,
    pub rx_ring: u32,
    pub tx_ring: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { worker: WorkerConfig::new(0), rx_ring: 2048, tx_ring: 2048 }
    }
}

impl Tunnel {
    /// Builds the line and starts the workers.
    pub fn new(options: Options) -> Self {
        let [client, left, right, server] = std::array::from_fn(|_| Namespace::new());
        Namespace::new().run(|| {
            for (one, other) in [("cli", "lan1"), ("wan1", "wan2"), ("lan2", "srv")] {
                ip(&format!("link add {one} type veth peer name {other}"));
            }
            client.take("cli", "10.1.0.2/24");
            left.take("lan1", "10.1.0.1/24");
            left.take("wan1", "192.0.2.1/24");
            right.take("wan2", "192.0.2.2/24");
            right.take("lan2", "10.2.0.1/24");
            server.take("srv", "10.2.0.2/24");
        });
        let client_mac = client.run(|| end_host("cli", "10.1.0.1"));
        let server_mac = server.run(|| end_host("srv", "10.2.0.1"));
        let wan1 = left.run(|| mac_of("wan1"));
        let wan2 = right.run(|| mac_of("wan2"));
        let params = params();
        let left = gateway(left, options, ["lan1", "wan1"], &params, [client_mac, wan2]);
        let right = gateway(right, options, ["lan2", "wan2"], &params.mirrored(), [server_mac, wan1]);
        Self { client, left, right, server }
    }
}

/// Routes everything to the gateway, with checksums filled in. Returns the MAC address.
pub(super) fn end_host(interface: &str, gateway: &str) -> MacAddr {
    ip(&format!("route add default via {gateway}"));
    let offload = Command::new("ethtool").args(["-K", interface, "tx", "off"]).output().expect("ethtool");
    assert!(offload.status.success(), "ethtool: {}", String::from_utf8_lossy(&offload.stderr));
    mac_of(interface)
}

/// By netlink rather than /sys, which shows the namespace of the process that mounted it.
pub(super) fn mac_of(interface: &str) -> MacAddr {
    let output = Command::new("ip").args(["-o", "link", "show", interface]).output().expect("ip");
    let text = String::from_utf8(output.stdout).unwrap();
    let octets = text.split("link/ether ").nth(1).and_then(|rest| rest.get(..17)).expect("MAC address");
    let octets: Vec<u8> = octets.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    MacAddr(octets.try_into().unwrap())
}

fn gateway(
    namespace: Namespace,
    options: Options,
    interfaces: [&str; 2],
    params: &ChildSaParams,
    neighbours: [MacAddr; 2],
) -> Gateway {
    let (worker, pipeline, redirects) = namespace.run(|| {
        let frames = 2 * (options.rx_ring + options.tx_ring) as usize + 1024;
        let pool = FramePool::new(frames, ChunkSize::K2).unwrap();
        let mut redirects = Vec::new();
        let classes = [Class::Protect, Class::Esp];
        let ports: Vec<XdpPort> = (0..2usize)
            .map(|place| {
                let config = XdpConfig {
                    rx_ring: options.rx_ring,
                    tx_ring: options.tx_ring,
                    busy_poll: !options.worker.busy_poll.is_zero(),
                    ..XdpConfig::new(PortIndex(place as u16), interfaces[place])
                };
                let port = XdpPort::open(&config, pool.memory()).unwrap();
                let stamp = [STAMP_MAGIC, classes[place] as u8, place as u8, 0];
                let redirect = Redirect::attach(port.info().ifindex, stamp);
                redirect.set(0, port.fd().unwrap());
                redirects.push(redirect);
                port
            })
            .collect();
        let fib = Arc::new(fib(&ports, params, neighbours));
        let plane = dataplane(params);
        let pipeline = Arc::clone(plane.counters());
        let worker = Worker::new(options.worker, ports, None::<Tun>, pool, fib, plane).unwrap();
        (WorkerHandle::spawn(worker).unwrap(), pipeline, redirects)
    });
    Gateway { namespace, worker, pipeline, _redirects: redirects.try_into().unwrap() }
}

/// The clear side on port 0, the peer on port 1.
fn fib(ports: &[XdpPort], params: &ChildSaParams, [host, peer]: [MacAddr; 2]) -> Fib {
    let builder = ports.iter().fold(Fib::builder(), |builder, port| builder.port(super::port::link(port)));
    let hop = |port| Route::Forward(NextHop { out: Out::Port(PortIndex(port)), gateway: None, mtu: 1500 });
    let host_addr = if params.spi_in == LEFT { CLIENT } else { SERVER };
    let lan = if params.spi_in == LEFT { "10.1.0.0/24" } else { "10.2.0.0/24" };
    builder
        .route(lan.parse().unwrap(), hop(0))
        .route("192.0.2.0/24".parse().unwrap(), hop(1))
        .neighbour(PortIndex(0), host_addr.parse().unwrap(), host)
        .neighbour(PortIndex(1), params.remote.ip(), peer)
        .build()
}

const LEFT: Spi = Spi(0xa100_0401);
const RIGHT: Spi = Spi(0xb200_0802);

pub(super) fn params() -> ChildSaParams {
    let outer = |host: u8| SocketAddr::new(IpAddr::from([192, 0, 2, host]), 0);
    ChildSaParams {
        spi_in: LEFT,
        spi_out: RIGHT,
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![0xa1; 20]),
        key_out: KeyMaterial(vec![0xb2; 20]),
        esn: true,
        replay_window: 1024,
        local_ts: vec![net("10.1.0.0", "10.1.255.255")],
        remote_ts: vec![net("10.2.0.0", "10.2.255.255")],
        local: outer(1),
        remote: outer(2),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    }
}

pub(super) fn net(start: &str, end: &str) -> TrafficSelector {
    TrafficSelector::all(AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap())
}

pub(super) fn dataplane(params: &ChildSaParams) -> Dataplane {
    const POLICY: PolicyId = PolicyId(0);
    let sender = SenderId(u16::from(params.spi_in == RIGHT) + 1);
    let mut plane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), sender, 0x5eed));
    let own: LocalAddrs = [params.local.ip()].into_iter().collect();
    let policy = Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(POLICY),
    };
    let spd = Spd::new(vec![policy]).unwrap();
    let library = Library::detect();
    let inbound = InboundSa::new(params, POLICY, 1500, library).unwrap();
    let numbers = SequenceBlock::whole(params.esn);
    let outbound = OutboundSa::new(params, POLICY, numbers, 1500, library).unwrap();
    for change in [
        Change::SetLocalAddrs(Arc::new(own)),
        Change::AddPolicies(Box::new(PolicyBlock::of(POLICY))),
        Change::SetSpd(Arc::new(spd)),
        Change::AddSlots(Box::new(SlotBlock::of(params.spi_in))),
        Change::AddInbound(Arc::new(inbound)),
        Change::SetOutbound(POLICY, Arc::new(outbound)),
    ] {
        plane.apply(change);
    }
    plane
}
