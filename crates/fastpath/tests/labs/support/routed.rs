//! client = first node and carrier = right gateway — server, over veth pairs: two nodes of a cluster
//! with one tunnel. What client and right gateway send reaches the first node, which carries
//! nothing and relays it to the carrier; what they get comes from the carrier.

use super::ip;
use super::namespace::Namespace;
use super::redirect::Redirect;
use super::tunnel::{CLIENT, SERVER, dataplane, end_host, mac_of, params};
use std::net::IpAddr;
use std::sync::Arc;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{RelayKind, Spi};
use testudo_crypto::Library;
use testudo_fastpath::fib::{Fib, FibBuilder, NextHop, Out, PortIndex, Route};
use testudo_fastpath::filter::{Class, STAMP_MAGIC};
use testudo_fastpath::frame::{ChunkSize, FramePool};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Worker, WorkerConfig, WorkerHandle};
use testudo_ipsec::dataplane::{Command as Change, Counters, Dataplane, LocalAddrs, Relay, RelayParams};
use testudo_ipsec::sa::KeyMaterial;

const RING: u32 = 1024;
const FIRST: u8 = 1;
const CARRIER: u8 = 2;

/// A gateway with one worker.
#[derive(Debug)]
pub struct Gateway {
    pub worker: WorkerHandle,
    pub pipeline: Arc<Counters>,
    _redirects: Vec<Redirect>,
    _namespace: Namespace,
}

/// All of it.
#[derive(Debug)]
pub struct Routed {
    pub client: Namespace,
    pub server: Namespace,
    pub first: Gateway,
    pub carrier: Gateway,
    pub right: Gateway,
}

impl Routed {
    /// Builds the hosts, with that MTU between the two nodes, and starts the workers.
    pub fn new(cluster_mtu: u16) -> Self {
        let [client, first, carrier, right, server] = std::array::from_fn(|_| Namespace::new());
        Namespace::new().run(|| {
            let pairs = [
                ("cli", "lan1"),
                ("cli2", "lan2"),
                ("wan1", "out1"),
                ("wan2", "out2"),
                ("net1", "net2"),
                ("lan3", "srv"),
            ];
            for (one, other) in pairs {
                ip(&format!("link add {one} type veth peer name {other}"));
            }
            for end in ["net1", "net2"] {
                ip(&format!("link set {end} mtu {cluster_mtu}"));
            }
            client.take("cli", "10.1.0.2/24");
            client.take("cli2", "10.1.9.2/24");
            for (node, number) in [(&first, FIRST), (&carrier, CARRIER)] {
                node.take(&format!("lan{number}"), &format!("10.1.0.{number}0/24"));
                node.take(&format!("wan{number}"), &format!("192.0.2.{number}0/24"));
                node.take(&format!("net{number}"), &format!("10.255.0.{number}/24"));
            }
            right.take("out1", "192.0.2.2/24");
            right.take("out2", "192.0.2.3/24");
            right.take("lan3", "10.2.0.1/24");
            server.take("srv", "10.2.0.2/24");
        });
        let first_client = client.run(|| end_host("cli", "10.1.0.10"));
        let server_mac = server.run(|| end_host("srv", "10.2.0.1"));
        let mac = |of: &Namespace, interface: &str| of.run(|| mac_of(interface));
        let (client_mac, out2) = (mac(&client, "cli2"), mac(&right, "out2"));
        let (wan1, net2) = (mac(&first, "wan1"), mac(&carrier, "net2"));
        let [lan, wan, net] = [0, 1, 2];
        let (protect, esp) = (Class::Protect, Class::Esp);
        let peer = params().remote.ip();
        let first = Gateway::new(
            first,
            &[("lan1", protect), ("wan1", esp), ("net1", esp)],
            cluster_node(FIRST),
            |fib| {
                let fib = toward(fib, lan, "10.1.0.0/24", CLIENT, first_client);
                toward(fib, net, "10.255.0.0/24", "10.255.0.2", net2)
            },
        );
        let carrier = Gateway::new(
            carrier,
            &[("lan2", protect), ("wan2", esp), ("net2", esp)],
            cluster_node(CARRIER),
            |fib| {
                let fib = toward(fib, lan, "10.1.0.0/24", CLIENT, client_mac);
                toward(fib, wan, "192.0.2.0/24", &peer.to_string(), out2)
            },
        );
        let vip = params().local.ip().to_string();
        let right = Gateway::new(
            right,
            &[("lan3", protect), ("out1", esp), ("out2", esp)],
            dataplane(&params().mirrored()),
            |fib| {
                let fib = toward(fib, lan, "10.2.0.0/24", SERVER, server_mac);
                toward(fib, wan, "192.0.2.0/24", &vip, wan1)
            },
        );
        Self { client, server, first, carrier, right }
    }
}

/// A node that carries the tunnel, or relays to the one that does.
fn cluster_node(number: u8) -> Dataplane {
    let mut plane = dataplane(&params());
    let other = FIRST + CARRIER - number;
    let address = |node: u8| IpAddr::from([10, 255, 0, node]);
    let mut relay = Relay::default();
    relay.set_carriers([Some(CARRIER); SHARDS]);
    for kind in RelayKind::SAS {
        let key = |sender: u8| KeyMaterial(vec![sender | (kind as u8) << 4; RelayParams::KEY_LEN]);
        let spi = |sender: u8| Spi::of_relay(kind, 7, sender).expect("a node");
        let sas = RelayParams {
            local: address(number),
            remote: address(other),
            spi_in: spi(other),
            spi_out: spi(number),
            key_in: key(other),
            key_out: key(number),
        };
        let (inbound, outbound) = sas.build(1500, Library::detect()).expect("relay SAs");
        assert!(relay.accept(Arc::new(inbound)) && relay.send_by(other, Arc::new(outbound)));
    }
    let own: LocalAddrs = [params().local.ip(), address(number)].into_iter().collect();
    let shards = if number == CARRIER { ShardSet::ALL } else { ShardSet::EMPTY };
    for change in
        [Change::SetLocalAddrs(Arc::new(own)), Change::SetShards(shards), Change::SetRelay(Arc::new(relay))]
    {
        plane.apply(change);
    }
    plane
}

impl Gateway {
    /// A worker whose ports have these interfaces; all packets of each are of one class.
    fn new(
        namespace: Namespace,
        interfaces: &[(&str, Class)],
        plane: Dataplane,
        routes: impl FnOnce(FibBuilder) -> FibBuilder + Send,
    ) -> Self {
        let pipeline = Arc::clone(plane.counters());
        let (worker, redirects) = namespace.run(|| {
            let pool = FramePool::new(12 * RING as usize, ChunkSize::K2).unwrap();
            let mut redirects = Vec::new();
            let open = |(place, (name, class)): (usize, &(&str, Class))| {
                let config = XdpConfig {
                    rx_ring: RING,
                    tx_ring: RING,
                    ..XdpConfig::new(PortIndex(place as u16), name)
                };
                let port = XdpPort::open(&config, pool.memory()).unwrap();
                let redirect =
                    Redirect::attach(port.info().ifindex, [STAMP_MAGIC, *class as u8, place as u8, 0]);
                redirect.set(0, port.fd().unwrap());
                redirects.push(redirect);
                port
            };
            let ports: Vec<XdpPort> = interfaces.iter().enumerate().map(open).collect();
            let fib = ports.iter().fold(Fib::builder(), |fib, port| fib.port(super::port::link(port)));
            let fib = Arc::new(routes(fib).build());
            let worker = Worker::new(WorkerConfig::new(0), ports, None::<Tun>, pool, fib, plane).unwrap();
            (WorkerHandle::spawn(worker).unwrap(), redirects)
        });
        Self { worker, pipeline, _redirects: redirects, _namespace: namespace }
    }

    /// Ends the worker. Every frame has come home, and every packet is accounted for.
    pub fn stop(self) {
        let counters = Arc::clone(self.worker.counters());
        assert_eq!(self.worker.stop().unwrap(), 0, "frames leaked");
        let (totals, pipeline) = (counters.totals(), self.pipeline.totals());
        assert!(totals.is_balanced(), "{totals:?}");
        assert!(pipeline.outbound.is_balanced() && pipeline.inbound.is_balanced(), "{pipeline:?}");
    }
}

/// A network behind a port, and its only host.
fn toward(fib: FibBuilder, port: u16, net: &str, host: &str, mac: MacAddr) -> FibBuilder {
    // The links may take more, but nobody sends it.
    let hop = NextHop { out: Out::Port(PortIndex(port)), gateway: None, mtu: 1500 };
    fib.route(net.parse().unwrap(), Route::Forward(hop)).neighbour(
        PortIndex(port),
        host.parse().unwrap(),
        mac,
    )
}
