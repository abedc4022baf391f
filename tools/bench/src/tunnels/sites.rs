//! A hub with many tunnels, and all of its spokes in one node.

use crate::esp::Suite;
use crate::esp::node::{Link, Node, SetupError, routes};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use testudo_base::prefix::Prefix;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_crypto::Library;
use testudo_fastpath::fib::Route;
use testudo_ipsec::Error;
use testudo_ipsec::dataplane::{Command, Config, Dataplane, LocalAddrs, PolicyBlock};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};

/// The most tunnels: their outer addresses are those of 198.18.0.0/15.
pub(super) const MOST: u32 = 1 << 17;

const HUB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SPOKES_ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// The host behind the hub.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
/// The hub's network.
const NETWORK: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 1, 0, 0), Ipv4Addr::new(10, 1, 255, 255));
const INNER_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 254);
const FIRST_OUTER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const FIRST_INNER: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);
const PATH_MTU: u16 = 1500;
const REPLAY_WINDOW: u32 = 1024;
const SEED: u64 = 0x5EED;
/// As in the daemon.
const FLOW_BITS: u32 = 17;

/// A spoke.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoke(pub(super) u32);

impl Spoke {
    fn outer(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_OUTER.to_bits() + self.0)
    }

    /// The host behind it.
    pub(super) fn inner(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_INNER.to_bits() + self.0)
    }

    fn policy(self) -> PolicyId {
        PolicyId(self.0)
    }

    /// The SPI of both directions: shards are used equally, and the slots of each in order. Slot 0 of
    /// shard 0 has no Child SA.
    fn spi(self) -> Spi {
        let (shard, slot) = (Shard(self.0 as u8), 1 + (self.0 >> 8) as u16);
        let tag = (self.0.wrapping_mul(0x9e37_79b9) >> 22) as u16;
        Spi::from_parts(shard, slot, tag).expect("slots and tags are in range")
    }
}

/// One end of all tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Hub,
    Spokes,
}

impl End {
    fn params(self, spoke: Spoke, suite: Suite) -> ChildSaParams {
        let (hub, other) = (selector(NETWORK.0, NETWORK.1), selector(spoke.inner(), spoke.inner()));
        let (to_hub, to_spoke) = (key(spoke, 0x11, suite), key(spoke, 0x22, suite));
        let at = |addr| SocketAddr::new(IpAddr::V4(addr), 0);
        let (hub_address, spoke_address) = (at(HUB), at(spoke.outer()));
        let is_hub = self == Self::Hub;
        let order = |a, b| if is_hub { (a, b) } else { (b, a) };
        let (local, remote) = order(hub_address, spoke_address);
        let (local_ts, remote_ts) = if is_hub { (hub, other) } else { (other, hub) };
        let (key_in, key_out) = if is_hub { (to_hub, to_spoke) } else { (to_spoke, to_hub) };
        ChildSaParams {
            spi_in: spoke.spi(),
            spi_out: spoke.spi(),
            algorithm: suite.esp(),
            key_in,
            key_out,
            esn: true,
            replay_window: REPLAY_WINDOW,
            local_ts,
            remote_ts,
            local,
            remote,
            encapsulation: Encapsulation::Plain,
            mode: Mode::Tunnel,
            copy: HeaderCopy::default(),
        }
    }

    fn addresses(self, tunnels: u32) -> LocalAddrs {
        match self {
            Self::Hub => [IpAddr::V4(HUB)].into_iter().collect(),
            Self::Spokes => (0..tunnels).map(|n| IpAddr::V4(Spoke(n).outer())).collect(),
        }
    }
}

fn selector(first: Ipv4Addr, last: Ipv4Addr) -> Vec<TrafficSelector> {
    AddrRange::new(first.into(), last.into()).map(TrafficSelector::all).into_iter().collect()
}

fn key(spoke: Spoke, octet: u8, suite: Suite) -> KeyMaterial {
    let mut octets = vec![octet; suite.esp().key_len()];
    octets[..4].copy_from_slice(&spoke.0.to_be_bytes());
    KeyMaterial(octets)
}

fn prefix(addr: Ipv4Addr, length: u8) -> Prefix {
    Prefix::new(addr.into(), length).expect("a constant")
}

/// The hub.
pub(super) fn hub(library: Library, suite: Suite, tunnels: u32) -> Result<Node, SetupError> {
    let fib = routes([HOST, SPOKES_ROUTER], &[(Link::Wan, prefix(FIRST_OUTER, 15))]);
    let fib = fib.local(Prefix::host(HUB.into()), Route::Local).build();
    Node::of(fib, dataplane(End::Hub, library, suite, tunnels)?)
}

/// All of its spokes.
pub(super) fn spokes(library: Library, suite: Suite, tunnels: u32) -> Result<Node, SetupError> {
    let fib = routes([INNER_ROUTER, HUB], &[(Link::Lan, prefix(FIRST_INNER, 10))]).build();
    Node::of(fib, dataplane(End::Spokes, library, suite, tunnels)?)
}

fn dataplane(end: End, library: Library, suite: Suite, tunnels: u32) -> Result<Dataplane, Error> {
    let worker = WorkerId::new(0).expect("zero is below the limit");
    let mut plane =
        Dataplane::new(&Config { flow_bits: FLOW_BITS, ..Config::new(worker, SenderId(1), SEED) });
    let mut apply = |command| drop(plane.apply(command));
    apply(Command::SetLocalAddrs(Arc::new(end.addresses(tunnels))));
    for first in (0..tunnels).step_by(PolicyBlock::LENGTH as usize) {
        apply(Command::AddPolicies(Box::new(PolicyBlock::of(PolicyId(first)))));
    }
    let mut policies = Vec::new();
    for spoke in (0..tunnels).map(Spoke) {
        let params = end.params(spoke, suite);
        let inbound = InboundSa::new(&params, spoke.policy(), PATH_MTU, library)?;
        let numbers = SequenceBlock::whole(params.esn);
        let outbound = OutboundSa::new(&params, spoke.policy(), numbers, PATH_MTU, library)?;
        inbound.expand_key()?;
        outbound.expand_key()?;
        // An existing block is returned.
        apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
        apply(Command::AddInbound(Arc::new(inbound)));
        apply(Command::SetOutbound(spoke.policy(), Arc::new(outbound)));
        let (local, remote) = (params.local_ts, params.remote_ts);
        policies.push(Policy { priority: 0, local, remote, action: Action::Protect(spoke.policy()) });
    }
    apply(Command::SetSpd(Arc::new(Spd::new(policies)?)));
    Ok(plane)
}
