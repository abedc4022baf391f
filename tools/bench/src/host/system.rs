//! The systems compared: two machines each, whose own stacks communicate.

use crate::wireguard;
use std::net::IpAddr;
use std::time::Duration;
use testudo_lab::cpu::CpuTime;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::IperfServer;
use testudo_lab::namespace::{Offloads, veth};
use testudo_lab::process::Process;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, INNER, OUTER, Side};
use testudo_lab::{Lab, Namespace, Result};

const LIMIT: Duration = Duration::from_secs(60);
const SIDES: [Side; 2] = [Side::One, Side::Two];

/// The carrier of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// testudod on both machines.
    Testudo,
    /// Nothing: a veth with the kernel's defaults, which carries segments of 64 kB unsegmented and
    /// computes no checksums.
    VethOffloads,
    /// Nothing: a veth with complete frames, as on a wire.
    Veth,
    /// wireguard-go on both machines.
    WireguardGo,
    /// strongSwan's own ESP in user space, libipsec, on both machines.
    Strongswan,
}

impl System {
    pub(super) const ALL: [Self; 5] =
        [Self::VethOffloads, Self::Veth, Self::Testudo, Self::WireguardGo, Self::Strongswan];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Testudo => "testudo",
            Self::VethOffloads => "veth-offloads",
            Self::Veth => "veth",
            Self::WireguardGo => "wireguard-go",
            Self::Strongswan => "strongswan",
        }
    }

    /// A letter for the names of machines, which must be short.
    fn letter(self) -> char {
        match self {
            Self::Testudo => 't',
            Self::VethOffloads => 'o',
            Self::Veth => 'v',
            Self::WireguardGo => 'w',
            Self::Strongswan => 's',
        }
    }
}

/// The daemons on the machines besides iperf3.
#[derive(Debug)]
enum Daemons {
    None,
    Gateways(Vec<Gateway>),
    Wireguard(Vec<Process>),
}

/// Two machines, joined by a veth, with their daemons.
#[derive(Debug)]
pub(super) struct Machines {
    pub(super) system: System,
    pub(super) client: Namespace,
    /// The server's address, as the client reaches it through the tunnel.
    pub(super) to: IpAddr,
    _server: IperfServer,
    daemons: Daemons,
    _machines: Vec<Namespace>,
}

impl Machines {
    /// Two machines whose link has this MTU, with the tunnel up.
    pub(super) fn start(lab: &Lab, system: System, mtu: u16) -> Result<Self> {
        let role = |side: Side| format!("{}{}{}", system.letter(), side.index() + 1, mtu / 1000);
        let machines = SIDES.map(|side| lab.namespace(&role(side)));
        let [one, two] = machines;
        let machines = [one?, two?];
        connect(&machines, system, mtu)?;
        let mut others = Vec::new();
        let (daemons, to) = match system {
            System::Veth | System::VethOffloads => (Daemons::None, Side::Two.outer(Family::V4)),
            System::WireguardGo => {
                let processes = wireguard::start(lab, &machines, mtu)?;
                (Daemons::Wireguard(processes), wireguard::inside(Side::Two))
            }
            System::Testudo | System::Strongswan => {
                let kind = if system == System::Testudo { Kind::Testudo } else { Kind::Strongswan };
                let stub = lab.namespace(&format!("{}0{}", system.letter(), mtu / 1000))?;
                let started = gateways(&machines, &stub, kind, mtu)?;
                others.push(stub);
                started
            }
        };
        let server = IperfServer::start(&machines[1])?;
        let [client, server_machine] = machines;
        others.push(server_machine);
        Ok(Self { system, client, to, _server: server, daemons, _machines: others })
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

fn connect(machines: &[Namespace; 2], system: System, mtu: u16) -> Result<()> {
    let [one, two] = machines;
    veth(one.end(OUTER), two.end(OUTER))?;
    // An AF_XDP port would see checksums that are not filled in.
    let offloads = match system {
        System::Testudo | System::Veth => Offloads::None,
        System::VethOffloads | System::WireguardGo | System::Strongswan => Offloads::Default,
    };
    for (side, machine) in SIDES.into_iter().zip(machines) {
        machine.up(OUTER, mtu)?;
        machine.address(OUTER, &format!("{}/24", side.outer(Family::V4)))?;
        machine.offloads(OUTER, offloads)?;
    }
    Ok(())
}

/// The machines' inner addresses are on an interface without a peer.
fn gateways(machines: &[Namespace; 2], stub: &Namespace, kind: Kind, mtu: u16) -> Result<(Daemons, IpAddr)> {
    let mut gateways = Vec::new();
    for (side, machine) in SIDES.into_iter().zip(machines) {
        let end = format!("stub{}", side.index());
        veth(machine.end(INNER), stub.end(&end))?;
        stub.up(&end, mtu)?;
        stub.offloads(&end, kind.offloads_towards())?;
        machine.up(INNER, mtu)?;
        machine.address(INNER, &format!("{}/24", side.inner(Family::V4)))?;
        machine.forward()?;
        let across = side.other();
        machine.route(&across.network(Family::V4), &across.outer(Family::V4).to_string())?;
        let gateway = Gateway::start(kind, machine)?;
        let mut connection = Connection::of(side, Family::V4);
        connection.local_ts = vec![side.network(Family::V4)];
        connection.remote_ts = vec![across.network(Family::V4)];
        gateway.swanctl().load(&connection.to_string())?;
        gateways.push(gateway);
    }
    gateways[0].swanctl().initiate("lab", LIMIT)?;
    Ok((Daemons::Gateways(gateways), Side::Two.inner(Family::V4)))
}
