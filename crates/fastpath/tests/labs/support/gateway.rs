//! client — left gateway — right gateway — server over veth pairs with several queues: a worker for
//! each queue in each gateway, and Child SAs between them that come and go. No IKE: both ends are
//! told by the test.

use super::ip;
use super::namespace::Namespace;
use super::redirect::Redirect;
use super::tunnel::{CLIENT, end_host, mac_of, net};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::yield_now;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_crypto::Library;
use testudo_fastpath::fib::{Fib, NextHop, Out, PortIndex, Route};
use testudo_fastpath::filter::{Class, STAMP_MAGIC};
use testudo_fastpath::frame::{ChunkSize, FramePool};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Worker, WorkerCommand, WorkerConfig, WorkerEvent, WorkerHandle};
use testudo_ipsec::dataplane::{
    Command as Change, Config, Counters, Dataplane, Event, LocalAddrs, PolicyBlock,
};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};

/// Tunnels between the gateways, one for each address of the server.
pub const TUNNELS: u16 = 8;
/// SAs of a tunnel before a slot is used again.
const GENERATIONS: u32 = 1024;
const RING: u32 = 1024;

/// One gateway.
#[derive(Debug)]
pub struct Gateway {
    pub workers: Vec<WorkerHandle>,
    pub pipelines: Vec<Arc<Counters>>,
    _namespace: Namespace,
    _redirects: [Redirect; 2],
    sas: BTreeMap<Spi, (Arc<InboundSa>, Arc<OutboundSa>)>,
}

/// The whole line.
#[derive(Debug)]
pub struct Line {
    pub client: Namespace,
    pub server: Namespace,
    pub left: Gateway,
    pub right: Gateway,
    /// By tunnel, how many SAs it has had.
    generations: [u32; TUNNELS as usize],
}

/// An address of the server.
pub fn server(tunnel: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 2, 0, 2 + tunnel as u8)
}

/// A side's view of the SA of a tunnel.
fn params(is_left: bool, tunnel: u16, generation: u32) -> ChildSaParams {
    let slot = tunnel * GENERATIONS as u16 + (generation % GENERATIONS) as u16;
    let spi = |shard| Spi::from_parts(Shard(shard), slot, (generation / GENERATIONS % 1024) as u16).unwrap();
    let key = |side: u8| {
        let [a, b, c, d] = generation.to_be_bytes();
        KeyMaterial([vec![side, tunnel as u8, a, b, c, d], vec![0x5a; 14]].concat())
    };
    let outer = |host: u8| SocketAddr::new(IpAddr::from([192, 0, 2, host]), 0);
    let there = server(tunnel).to_string();
    let left = ChildSaParams {
        spi_in: spi(0xa1),
        spi_out: spi(0xb2),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: key(1),
        key_out: key(2),
        esn: true,
        replay_window: 4096,
        local_ts: vec![net("10.1.0.0", "10.1.255.255")],
        remote_ts: vec![net(&there, &there)],
        local: outer(1),
        remote: outer(2),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    };
    if is_left { left } else { left.mirrored() }
}

impl Line {
    /// Builds the line, with as many workers a gateway as the interfaces have queues, and brings
    /// all tunnels up.
    pub fn new(queues: u16) -> Self {
        let [client, left, right, server_side] = std::array::from_fn(|_| Namespace::new());
        Namespace::new().run(|| {
            let count = format!("numtxqueues {queues} numrxqueues {queues}");
            for (one, other) in [("cli", "lan1"), ("wan1", "wan2"), ("lan2", "srv")] {
                ip(&format!("link add {one} {count} type veth peer name {other} {count}"));
            }
            client.take("cli", "10.1.0.2/24");
            left.take("lan1", "10.1.0.1/24");
            left.take("wan1", "192.0.2.1/24");
            right.take("wan2", "192.0.2.2/24");
            right.take("lan2", "10.2.0.1/24");
            server_side.take("srv", "10.2.0.2/24");
        });
        server_side.run(|| {
            (1..TUNNELS).for_each(|tunnel| ip(&format!("address add {}/24 dev srv", server(tunnel))))
        });
        let client_mac = client.run(|| end_host("cli", "10.1.0.1"));
        let server_mac = server_side.run(|| end_host("srv", "10.2.0.1"));
        let wan1 = left.run(|| mac_of("wan1"));
        let wan2 = right.run(|| mac_of("wan2"));
        // While an end host asks for its gateway's MAC, the kernel holds its first packets, and
        // lets later ones overtake them.
        let known = |host: &Namespace, device: &str, gateway: &str, mac: MacAddr| {
            host.run(|| ip(&format!("neighbour replace {gateway} lladdr {mac} dev {device} nud permanent")));
        };
        known(&client, "cli", "10.1.0.1", left.run(|| mac_of("lan1")));
        known(&server_side, "srv", "10.2.0.1", right.run(|| mac_of("lan2")));
        let left = Gateway::new(left, true, ["lan1", "wan1"], [client_mac, wan2], queues);
        let right = Gateway::new(right, false, ["lan2", "wan2"], [server_mac, wan1], queues);
        let mut line = Self { client, server: server_side, left, right, generations: [0; TUNNELS as usize] };
        for tunnel in 0..TUNNELS {
            line.renew(tunnel);
        }
        line
    }

    /// Another SA replaces that of a tunnel, without a command in between. Returns the former one's
    /// generation.
    pub fn renew(&mut self, tunnel: u16) -> u32 {
        let former = self.generations[usize::from(tunnel)];
        let generation = former + 1;
        self.generations[usize::from(tunnel)] = generation;
        let policy = PolicyId(tunnel.into());
        let outbound = [(true, &mut self.left), (false, &mut self.right)].map(|(is_left, gateway)| {
            let params = params(is_left, tunnel, generation);
            gateway.install(policy, &params)
        });
        for (gateway, outbound) in [&self.left, &self.right].into_iter().zip(outbound) {
            gateway.tell(Change::SetOutbound(policy, outbound));
        }
        former
    }

    /// An SA that another has taken the place of goes.
    pub fn remove(&mut self, tunnel: u16, generation: u32) {
        for (is_left, gateway) in [(true, &mut self.left), (false, &mut self.right)] {
            let spi = params(is_left, tunnel, generation).spi_in;
            gateway.sas.remove(&spi);
            gateway.tell(Change::RemoveInbound(spi));
        }
    }
}

impl Gateway {
    fn new(
        namespace: Namespace,
        is_left: bool,
        interfaces: [&str; 2],
        neighbours: [MacAddr; 2],
        queues: u16,
    ) -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).collect();
        let (members, redirects) = namespace.run(|| {
            let mut redirects = Vec::new();
            let members: Vec<_> = (0..queues)
                .map(|queue| {
                    let pool = FramePool::new(12 * RING as usize, ChunkSize::K2).unwrap();
                    let ports: Vec<XdpPort> =
                        [0, 1].map(|place: usize| open(interfaces[place], place, queue, &pool)).into();
                    for (place, port) in ports.iter().enumerate() {
                        if queue == 0 {
                            let class = [Class::Protect, Class::Esp][place] as u8;
                            let stamp = [STAMP_MAGIC, class, place as u8, 0];
                            redirects.push(Redirect::attach(port.info().ifindex, stamp));
                        }
                        redirects[place].set(queue.into(), port.fd().unwrap());
                    }
                    let fib = Arc::new(fib(&ports, is_left, neighbours));
                    let id = WorkerId::new(queue as u8).unwrap();
                    let plane = Dataplane::new(&Config::new(id, SenderId(1 + u16::from(is_left)), 0x5eed));
                    let pipeline = Arc::clone(plane.counters());
                    // A worker that moves between processors would have the kernel put a flow's
                    // packets into the backlog of the one and the other, and receive them in any
                    // order.
                    let cpu = Some(cpus[usize::from(queue) % cpus.len()]);
                    let config = WorkerConfig { cpu, ..WorkerConfig::new(queue as u8) };
                    let worker = Worker::new(config, ports, None::<Tun>, pool, fib, plane).unwrap();
                    (WorkerHandle::spawn(worker).unwrap(), pipeline)
                })
                .collect();
            (members, redirects)
        });
        let (workers, pipelines) = members.into_iter().unzip();
        let redirects = redirects.try_into().unwrap();
        let gateway =
            Self { workers, pipelines, _namespace: namespace, _redirects: redirects, sas: BTreeMap::new() };
        gateway.prepare(is_left);
        gateway
    }

    /// All that SAs need.
    fn prepare(&self, is_left: bool) {
        let own: LocalAddrs = [params(is_left, 0, 0).local.ip()].into_iter().collect();
        self.tell(Change::SetLocalAddrs(Arc::new(own)));
        self.tell(Change::AddPolicies(Box::new(PolicyBlock::of(PolicyId(0)))));
        let policy = |tunnel: u16| {
            let params = params(is_left, tunnel, 0);
            let action = Action::Protect(PolicyId(tunnel.into()));
            Policy { priority: 0, local: params.local_ts, remote: params.remote_ts, action }
        };
        self.tell(Change::SetSpd(Arc::new(Spd::new((0..TUNNELS).map(policy).collect()).unwrap())));
        let spis = (0..TUNNELS).flat_map(|tunnel| {
            (0..GENERATIONS).map(move |generation| params(is_left, tunnel, generation).spi_in)
        });
        let blocks: BTreeMap<usize, Spi> = spis.map(|spi| (SlotBlock::number_of(spi), spi)).collect();
        blocks.values().for_each(|spi| self.tell(Change::AddSlots(Box::new(SlotBlock::of(*spi)))));
    }

    /// From now on inbound packets can be opened.
    fn install(&mut self, policy: PolicyId, params: &ChildSaParams) -> Arc<OutboundSa> {
        let library = Library::detect();
        let inbound = Arc::new(InboundSa::new(params, policy, 1500, library).unwrap());
        let numbers = SequenceBlock::whole(params.esn);
        let outbound = Arc::new(OutboundSa::new(params, policy, numbers, 1500, library).unwrap());
        self.tell(Change::AddInbound(Arc::clone(&inbound)));
        self.sas.insert(params.spi_in, (inbound, Arc::clone(&outbound)));
        outbound
    }

    /// Tells all workers.
    pub fn tell(&self, change: Change) {
        for worker in &self.workers {
            let mut command = WorkerCommand::Ipsec(change.clone());
            while let Err(refused) = worker.send(command) {
                self.attend();
                yield_now();
                command = refused;
            }
        }
    }

    /// Frees the workers' garbage, and expands the keys that they ask for.
    pub fn attend(&self) {
        for worker in &self.workers {
            worker.collect().for_each(drop);
            for (_, event) in worker.events() {
                if let WorkerEvent::Ipsec(Event::KeyWanted { spi }) = event
                    && let Some((inbound, outbound)) = self.sas.get(&spi)
                {
                    inbound.expand_key().unwrap();
                    outbound.expand_key().unwrap();
                }
            }
        }
    }
}

fn open(interface: &str, place: usize, queue: u16, pool: &FramePool) -> XdpPort {
    let usual = XdpConfig::new(PortIndex(place as u16), interface);
    let config = XdpConfig { queue: queue.into(), rx_ring: RING, tx_ring: RING, ..usual };
    XdpPort::open(&config, pool.memory()).unwrap()
}

/// The clear side on port 0, the peer on port 1.
fn fib(ports: &[XdpPort], is_left: bool, [host, peer]: [MacAddr; 2]) -> Fib {
    let hop = |port| Route::Forward(NextHop { out: Out::Port(PortIndex(port)), gateway: None, mtu: 1500 });
    let lan = if is_left { "10.1.0.0/24" } else { "10.2.0.0/24" };
    let hosts: Vec<IpAddr> = match is_left {
        true => vec![CLIENT.parse().unwrap()],
        false => (0..TUNNELS).map(|tunnel| server(tunnel).into()).collect(),
    };
    let builder = ports.iter().fold(Fib::builder(), |builder, port| builder.port(super::port::link(port)));
    let builder = builder.route(lan.parse().unwrap(), hop(0)).route("192.0.2.0/24".parse().unwrap(), hop(1));
    let builder = builder.neighbour(PortIndex(1), params(is_left, 0, 0).remote.ip(), peer);
    hosts.into_iter().fold(builder, |builder, addr| builder.neighbour(PortIndex(0), addr, host)).build()
}
