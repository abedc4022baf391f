//! The data planes of two gateways with one tunnel between them.

use super::{Suite, traffic};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::siphash::SipKey;
use testudo_base::spi::{RelayKind, SenderId, Shard, Spi};
use testudo_crypto::Library;
use testudo_ipsec::Error;
use testudo_ipsec::dataplane::{Command, Config, Dataplane, LocalAddrs, PolicyBlock, Relay, RelayParams};
use testudo_ipsec::number::{RowClock, SequenceBlock, Stripe, Stripes, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};

const POLICY: PolicyId = PolicyId(0);
/// Larger than the usual 64: a gateway receives through several queues.
const REPLAY_WINDOW: u32 = 1024;
/// Seed of the flow cache; there is no attacker.
const SEED: u64 = 0x5EED;

/// End of the sequence numbers granted to a member of a cluster: enough for any run.
const GRANTED: u64 = 1 << 40;
/// The numbers of a node among three: enough for any run.
const STRIPE: Stripe = Stripe { first_row: 0, rows: GRANTED, start: 1, classes: 3, class: 1 };
/// The key by which a member finds the home of packets without an SA; here all have one.
const HOMES: [u8; 16] = [7; 16];

/// Numbers of the node that relays, and of the one that carries the tunnel.
const FIRST: u8 = 1;
const CARRIER: u8 = 2;
/// MTU of the links of relaying nodes: a relayed packet is not fragmented.
const RELAY_MTU: u16 = 9000;

/// A row clock that is never ahead of the node: it takes each row after the other.
#[derive(Debug)]
struct StoppedClock;

impl RowClock for StoppedClock {
    fn now(&self, _home: Shard) -> u64 {
        0
    }
}

/// One of the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The gateway that encrypts.
    Near,
    /// The gateway that decrypts.
    Far,
}

impl Side {
    /// The other gateway.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// Outer address.
    pub(crate) fn address(self) -> Ipv4Addr {
        match self {
            Self::Near => Ipv4Addr::new(192, 0, 2, 1),
            Self::Far => Ipv4Addr::new(192, 0, 2, 2),
        }
    }

    /// The host behind the gateway.
    pub(crate) fn host(self) -> Ipv4Addr {
        match self {
            Self::Near => traffic::SOURCE,
            Self::Far => traffic::DESTINATION,
        }
    }

    /// The SPI that it chose.
    fn spi(self) -> Spi {
        match self {
            Self::Near => Spi(0x0012_3456),
            Self::Far => Spi(0x0065_4321),
        }
    }

    /// Key of the packets that arrive here.
    fn key(self, suite: Suite) -> KeyMaterial {
        let octet = match self {
            Self::Near => 0x11,
            Self::Far => 0x22,
        };
        KeyMaterial(vec![octet; suite.esp().key_len()])
    }

    /// The /16 around the host.
    fn selector(self) -> Vec<TrafficSelector> {
        let [a, b, _, _] = self.host().octets();
        let (start, end) = (Ipv4Addr::new(a, b, 0, 0), Ipv4Addr::new(a, b, 255, 255));
        let range = AddrRange::new(IpAddr::V4(start), IpAddr::V4(end));
        range.map(TrafficSelector::all).into_iter().collect()
    }

    fn params(self, suite: Suite) -> ChildSaParams {
        let peer = self.other();
        ChildSaParams {
            spi_in: self.spi(),
            spi_out: peer.spi(),
            algorithm: suite.esp(),
            key_in: self.key(suite),
            key_out: peer.key(suite),
            esn: true,
            replay_window: REPLAY_WINDOW,
            local_ts: self.selector(),
            remote_ts: peer.selector(),
            local: SocketAddr::new(IpAddr::V4(self.address()), 0),
            remote: SocketAddr::new(IpAddr::V4(peer.address()), 0),
            encapsulation: Encapsulation::Plain,
            mode: Mode::Tunnel,
            copy: HeaderCopy::default(),
        }
    }
}

/// How a gateway carries its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It is not in a cluster.
    Alone,
    /// It is a member of a cluster that carries the tunnel's shard.
    Home,
    /// It is a member of a cluster whose tunnel is spread in this way. It carries all lanes, so
    /// that it works on every packet.
    Spread(Spread),
    /// The same behind routers, which bring each packet to one node.
    Routed(Spread),
}

impl Membership {
    pub(crate) fn is_member(self) -> bool {
        self != Self::Alone
    }

    /// How the tunnel is spread.
    fn spread(self) -> Option<Spread> {
        match self {
            Self::Alone | Self::Home => None,
            Self::Spread(by) | Self::Routed(by) => Some(by),
        }
    }
}

/// The data plane of one gateway with its tunnel up.
pub(crate) fn dataplane(
    side: Side,
    library: Library,
    suite: Suite,
    membership: Membership,
    path_mtu: u16,
) -> Result<Dataplane, Error> {
    let mut dataplane = worker_of(0, &tunnel(side, library, suite, membership, path_mtu)?);
    if membership.is_member() {
        let carried = match membership.spread() {
            Some(_) => ShardSet::ALL,
            None => [side.spi().shard()].into_iter().collect(),
        };
        let relay = matches!(membership, Membership::Routed(_)).then(|| Command::SetRelay(Arc::default()));
        let commands = [Command::SetHashKey(SipKey::new(HOMES)), Command::SetShards(carried)];
        commands.into_iter().chain(relay).for_each(|command| drop(dataplane.apply(command)));
    }
    Ok(dataplane)
}

/// The data plane of the near gateway as one of two nodes that relay packets to each other by these
/// kinds of SAs, and its neighbour on the link to the other gateway. It carries the tunnel, or
/// relays to the node that does.
pub(crate) fn relaying(
    library: Library,
    suite: Suite,
    kinds: &[RelayKind],
    carries: bool,
) -> Result<(Dataplane, Ipv4Addr), Error> {
    let near = Side::Near;
    let mut dataplane = worker_of(0, &tunnel(near, library, suite, Membership::Home, RELAY_MTU)?);
    let (number, other) = if carries { (CARRIER, FIRST) } else { (FIRST, CARRIER) };
    let mut relay = Relay::default();
    relay.set_carriers([Some(CARRIER); SHARDS]);
    for kind in kinds {
        let (inbound, outbound) = relay_params(*kind, number, other).build(RELAY_MTU, library)?;
        assert!(relay.accept(Arc::new(inbound)) && relay.send_by(other, Arc::new(outbound)));
    }
    let own: LocalAddrs = [near.address(), relay_address(number)].map(IpAddr::V4).into_iter().collect();
    let shards = if carries { [near.spi().shard()].into_iter().collect() } else { ShardSet::EMPTY };
    for command in [
        Command::SetLocalAddrs(Arc::new(own)),
        Command::SetShards(shards),
        Command::SetRelay(Arc::new(relay)),
    ] {
        drop(dataplane.apply(command));
    }
    Ok((dataplane, if carries { near.other().address() } else { relay_address(other) }))
}

/// The address of a node on the cluster network.
fn relay_address(node: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 255, 0, node)
}

/// Both SAs of a kind between this node and another.
fn relay_params(kind: RelayKind, number: u8, other: u8) -> RelayParams {
    let key = |sender: u8| KeyMaterial(vec![sender | (kind as u8) << 4; RelayParams::KEY_LEN]);
    let spi = |sender: u8| Spi::of_relay(kind, 0, sender).unwrap_or(*Spi::RELAY.start());
    RelayParams {
        local: relay_address(number).into(),
        remote: relay_address(other).into(),
        spi_in: spi(other),
        spi_out: spi(number),
        key_in: key(other),
        key_out: key(number),
    }
}

/// The data plane of a worker that has processed these commands.
pub(crate) fn worker_of(worker: u8, commands: &[Command]) -> Dataplane {
    let worker = WorkerId::new(worker).expect("below the limit");
    let mut dataplane = Dataplane::new(&Config::new(worker, SenderId(1), SEED));
    commands.iter().for_each(|command| drop(dataplane.apply(command.clone())));
    dataplane
}

/// The commands about the tunnel for all workers of one gateway.
pub(crate) fn tunnel(
    side: Side,
    library: Library,
    suite: Suite,
    membership: Membership,
    path_mtu: u16,
) -> Result<Vec<Command>, Error> {
    let params = side.params(suite);
    let policy = Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(POLICY),
    };
    let spd = Spd::new(vec![policy])?;
    let own: LocalAddrs = [IpAddr::V4(side.address())].into_iter().collect();
    let mut inbound = InboundSa::new(&params, POLICY, path_mtu, library)?;
    let numbers = match membership {
        Membership::Alone => SequenceBlock::whole(params.esn),
        Membership::Home => SequenceBlock { next: 1, end: GRANTED },
        Membership::Spread(_) | Membership::Routed(_) => SequenceBlock::EMPTY,
    };
    let mut outbound = OutboundSa::new(&params, POLICY, numbers, path_mtu, library)?;
    if let Some(by) = membership.spread() {
        (inbound, outbound) = (inbound.spread(), outbound.spread(by));
    }
    // The daemon's control thread does this after the first packet.
    inbound.expand_key()?;
    outbound.expand_key()?;

    let mut commands = vec![
        Command::SetLocalAddrs(Arc::new(own)),
        Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))),
        Command::SetSpd(Arc::new(spd)),
        Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))),
        Command::AddInbound(Arc::new(inbound)),
        Command::SetOutbound(POLICY, Arc::new(outbound)),
    ];
    if membership.spread().is_some() {
        let stripes = Stripes::new().with(STRIPE, params.esn)?;
        commands.push(Command::SetClock(Arc::new(StoppedClock)));
        commands.push(Command::SetStripes(POLICY, params.spi_in, Arc::new(stripes)));
    }
    Ok(commands)
}
