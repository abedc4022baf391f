//! The systems compared: two hosts with two gateways of a kind between them.

use crate::wireguard;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use testudo_lab::cpu::CpuTime;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::IperfServer;
use testudo_lab::namespace::{Offloads, veth};
use testudo_lab::ping::Ping;
use testudo_lab::process::Process;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, HOST, INNER, OUTER, Side};
use testudo_lab::{Lab, Namespace, Result};

const LIMIT: Duration = Duration::from_secs(60);
const SIDES: [Side; 2] = [Side::One, Side::Two];
const MTU: u16 = 1500;
const ETHERNET: u64 = 14;

/// The software of the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// Nothing: the kernel forwards, and encrypts nothing.
    Kernel,
    /// testudod.
    Testudo,
    /// wireguard-go.
    WireguardGo,
    /// strongSwan's own ESP in user space, libipsec.
    Strongswan,
}

impl System {
    pub(super) const ALL: [Self; 4] = [Self::Kernel, Self::Testudo, Self::WireguardGo, Self::Strongswan];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Testudo => "testudo",
            Self::WireguardGo => "wireguard-go",
            Self::Strongswan => "strongswan",
        }
    }

    /// A letter for the names of machines, which must be short.
    fn letter(self) -> char {
        match self {
            Self::Kernel => 'k',
            Self::Testudo => 't',
            Self::WireguardGo => 'w',
            Self::Strongswan => 's',
        }
    }

    /// An AF_XDP port would see checksums that are not filled in. Systems that do not encrypt also
    /// get complete frames, for a fair comparison.
    fn offloads(self) -> Offloads {
        match self {
            Self::Kernel | Self::Testudo => Offloads::None,
            Self::WireguardGo | Self::Strongswan => Offloads::Default,
        }
    }
}

/// The daemons on the gateways.
#[derive(Debug)]
enum Daemons {
    None,
    Gateways(Vec<Gateway>),
    Wireguard(Vec<Process>),
}

/// Two hosts whose gateways are ready.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) system: System,
    /// Addresses of both hosts; each sends to the other host's address with the same index.
    addresses: [Vec<IpAddr>; 2],
    hosts: [Namespace; 2],
    gateways: [Namespace; 2],
    _server: IperfServer,
    daemons: Daemons,
}

impl Site {
    pub(crate) fn start(lab: &Lab, system: System) -> Result<Self> {
        let networks = |side: Side| {
            let mut connection = Connection::of(side, Family::V4);
            connection.local_ts = vec![side.network(Family::V4)];
            connection.remote_ts = vec![side.other().network(Family::V4)];
            vec![connection]
        };
        Self::with_tunnels(lab, system, networks, 1)
    }

    /// Like [`Site::start`], with other tunnels and that many consecutive addresses for each host.
    pub(crate) fn with_tunnels(
        lab: &Lab,
        system: System,
        tunnels: impl Fn(Side) -> Vec<Connection>,
        addresses: u8,
    ) -> Result<Self> {
        let role =
            |what: char, side: Side| lab.namespace(&format!("{}{what}{}", system.letter(), side.index()));
        let hosts = [role('h', Side::One)?, role('h', Side::Two)?];
        let gateways = [role('g', Side::One)?, role('g', Side::Two)?];
        for side in SIDES {
            connect(side, &hosts[side.index()], &gateways[side.index()], system)?;
            for number in 1..addresses {
                let address = format!("{}/24", Self::numbered(side, number));
                hosts[side.index()].address(HOST, &address)?;
            }
        }
        veth(gateways[0].end(OUTER), gateways[1].end(OUTER))?;
        for (side, gateway) in SIDES.into_iter().zip(&gateways) {
            gateway.up(OUTER, MTU)?;
            gateway.address(OUTER, &format!("{}/24", side.outer(Family::V4)))?;
            gateway.offloads(OUTER, system.offloads())?;
        }
        let daemons = daemons(lab, system, &gateways, tunnels)?;
        let server = IperfServer::start(&hosts[1])?;
        // Keys are negotiated and neighbours resolved before the load: wireguard-go's handshake
        // begins with the first packet, and a flood would prevent it from finishing.
        Ping::new(Self::address(Side::Two)).count(3).brief().run(&hosts[0])?;
        let addresses = SIDES.map(|side| (0..addresses).map(|number| Self::numbered(side, number)).collect());
        Ok(Self { system, addresses, hosts, gateways, _server: server, daemons })
    }

    /// The address of that side's host with an index. The first is [`Site::address`].
    pub(crate) fn numbered(side: Side, number: u8) -> IpAddr {
        match Self::address(side) {
            IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from(u32::from(first) + u32::from(number))),
            IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first) + u128::from(number))),
        }
    }

    /// Sources and destinations of the flows of that side.
    pub(super) fn flows(&self, side: Side) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        let [from, to] = [side, side.other()].map(|side| self.addresses[side.index()].iter().copied());
        from.zip(to)
    }

    /// The gateway's namespace and its daemon, if that is testudod.
    pub(crate) fn testudo(&self, side: Side) -> Option<(&Namespace, &Testudo)> {
        match &self.daemons {
            Daemons::Gateways(gateways) => match &gateways[side.index()] {
                Gateway::Testudo(testudod) => Some((&self.gateways[side.index()], testudod)),
                Gateway::Strongswan(_) | Gateway::Guest(_) => None,
            },
            Daemons::None | Daemons::Wireguard(_) => None,
        }
    }

    /// The host of that side.
    pub(crate) fn host(&self, side: Side) -> &Namespace {
        &self.hosts[side.index()]
    }

    /// Its address.
    pub(crate) fn address(side: Side) -> IpAddr {
        side.host(Family::V4)
    }

    /// Octets of IP that have arrived at both hosts.
    pub(super) fn arrived(&self) -> Result<u64> {
        let of = |host: &Namespace| {
            let frames = host.statistic(HOST, "rx_packets")?;
            Ok(host.statistic(HOST, "rx_bytes")? - frames * ETHERNET)
        };
        self.hosts.iter().map(of).sum()
    }

    /// Processor time that the daemons have used.
    pub(super) fn cpu(&self) -> Result<CpuTime> {
        match &self.daemons {
            Daemons::None => Ok(CpuTime::default()),
            Daemons::Gateways(gateways) => gateways.iter().map(Gateway::cpu).sum(),
            Daemons::Wireguard(processes) => processes.iter().map(Process::cpu).sum(),
        }
    }
}

/// A host and its gateway. Packets to the host's discard port cost it nothing.
fn connect(side: Side, host: &Namespace, gateway: &Namespace, system: System) -> Result<()> {
    veth(host.end(HOST), gateway.end(INNER))?;
    for (namespace, interface) in [(host, HOST), (gateway, INNER)] {
        namespace.up(interface, MTU)?;
        namespace.offloads(interface, system.offloads())?;
    }
    gateway.forward()?;
    gateway.address(INNER, &format!("{}/24", side.inner(Family::V4)))?;
    host.address(HOST, &format!("{}/24", side.host(Family::V4)))?;
    host.route("default", &side.inner(Family::V4).to_string())?;
    let rules = format!(
        "table netdev sink {{ chain ingress {{ type filter hook ingress device {HOST} priority 0; udp dport {} drop\n }}\n }}",
        super::flood::DISCARD
    );
    host.run("nft", [rules]).map(drop)
}

fn daemons(
    lab: &Lab,
    system: System,
    machines: &[Namespace; 2],
    tunnels: impl Fn(Side) -> Vec<Connection>,
) -> Result<Daemons> {
    let across = |via: fn(Side) -> IpAddr| -> Result<()> {
        for (side, machine) in SIDES.into_iter().zip(machines) {
            let peer = side.other();
            machine.route(&peer.network(Family::V4), &via(peer).to_string())?;
        }
        Ok(())
    };
    if system == System::WireguardGo {
        let processes = wireguard::start(lab, machines, MTU)?;
        across(wireguard::inside)?;
        return Ok(Daemons::Wireguard(processes));
    }
    across(|peer| peer.outer(Family::V4))?;
    let kind = match system {
        System::Testudo => Kind::Testudo,
        System::Strongswan => Kind::Strongswan,
        System::Kernel | System::WireguardGo => return Ok(Daemons::None),
    };
    let mut gateways = Vec::new();
    for (side, machine) in SIDES.into_iter().zip(machines) {
        let gateway = Gateway::start(kind, machine)?;
        let text: String = tunnels(side).iter().map(Connection::to_string).collect();
        gateway.swanctl().load(&text)?;
        gateways.push(gateway);
    }
    for connection in tunnels(Side::One) {
        gateways[0].swanctl().initiate(&connection.name, LIMIT)?;
    }
    Ok(Daemons::Gateways(gateways))
}
