//! Two nodes of a cluster of which each packet reaches one only, for tests.

use crate::cluster::verdicts;
use crate::harness::{PATH_MTU, POLICY, SPI_A, SPI_B, Tunnel, Way, net, run};
use std::net::IpAddr;
use std::sync::Arc;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{RelayKind, SenderId, Shard, Spi};
use testudo_ipsec::dataplane::{
    Command, Config, Dataplane, Garbage, Ingress, LocalAddrs, PolicyBlock, Relay, RelayParams, Verdict,
};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, InboundSa, KeyMaterial, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};

/// A second policy, whose SAs are of the next shard.
const SECOND: PolicyId = PolicyId(4);
/// A policy without an SA.
pub(crate) const TRAP: PolicyId = PolicyId(5);
/// The home of its packets.
pub(crate) const TRAP_HOME: Shard = Shard(0x42);
pub(crate) const PEER: u8 = 2;

pub(crate) type Found = (Verdict, Vec<u8>);

/// What is different from cluster to cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting {
    pub(crate) tunnel: Tunnel,
    /// The cluster network is IPv6.
    pub(crate) net_v6: bool,
    /// Its MTU; 0 is more than enough.
    pub(crate) net_mtu: u16,
    /// A node of the view is older, and knows no relay SAs of the kind `Head`.
    pub(crate) older: bool,
}

impl Setting {
    pub(crate) fn address(self, node: u8) -> IpAddr {
        match self.net_v6 {
            true => format!("fd00::{node}").parse().unwrap(),
            false => IpAddr::from([10, 255, 0, node]),
        }
    }

    /// Both SAs of the gateway.
    fn children(self) -> [(PolicyId, ChildSaParams); 2] {
        let first = self.tunnel.params();
        let second = ChildSaParams {
            spi_in: Spi(SPI_A.0 + (1 << 24)),
            spi_out: Spi(SPI_B.0 + (1 << 24)),
            remote_ts: vec![net("10.3.0.0", "10.3.255.255"), net("2001:db8:3::", "2001:db8:3:ffff::")],
            ..first.clone()
        };
        [(POLICY, first), (SECOND, second)]
    }

    /// Relay SAs of a kind of this node with the other.
    pub(crate) fn relay(self, kind: RelayKind, node: u8, view: u64) -> RelayParams {
        let octet = |from: u8| from ^ view as u8 ^ (kind as u8) << 6;
        let (other, key) = (3 - node, |from: u8| KeyMaterial(vec![octet(from); RelayParams::KEY_LEN]));
        RelayParams {
            local: self.address(node),
            remote: self.address(other),
            spi_in: Spi::of_relay(kind, view, other).unwrap(),
            spi_out: Spi::of_relay(kind, view, node).unwrap(),
            key_in: key(other),
            key_out: key(node),
        }
    }

    fn kinds(self) -> &'static [RelayKind] {
        if self.older { &[RelayKind::Whole] } else { &RelayKind::SAS }
    }

    /// A gateway with both SAs.
    fn plane(self, mirrored: bool, sender: impl Into<Option<SenderId>>, addresses: &[IpAddr]) -> Dataplane {
        let mut plane = Dataplane::new(&Config::new(WorkerId::new(3).unwrap(), sender, 0x5eed));
        plane.apply(Command::SetLocalAddrs(Arc::new(addresses.iter().copied().collect::<LocalAddrs>())));
        plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))));
        let mut policies = Vec::new();
        for (policy, params) in self.children() {
            let params = if mirrored { params.mirrored() } else { params };
            let (library, whole) = (self.tunnel.library, SequenceBlock::whole(params.esn));
            let inbound = InboundSa::new(&params, policy, PATH_MTU, library).unwrap();
            let outbound = OutboundSa::new(&params, policy, whole, PATH_MTU, library).unwrap();
            inbound.expand_key().unwrap();
            outbound.expand_key().unwrap();
            plane.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
            plane.apply(Command::AddInbound(Arc::new(inbound)));
            plane.apply(Command::SetOutbound(policy, Arc::new(outbound)));
            let ChildSaParams { local_ts: local, remote_ts: remote, .. } = params;
            policies.push(Policy { priority: 0, local, remote, action: Action::Protect(policy) });
        }
        if !mirrored {
            policies.push(other(4, Action::Bypass));
            policies.push(other(5, Action::Discard));
            policies.push(other(6, Action::Protect(TRAP)));
            plane.apply(Command::SetHome(TRAP, Some(TRAP_HOME)));
        }
        plane.apply(Command::SetSpd(Arc::new(Spd::new(policies).unwrap())));
        plane
    }

    pub(crate) fn whole(self) -> Dataplane {
        self.plane(false, SenderId(1), &[self.tunnel.outer(1)])
    }

    pub(crate) fn peer(self) -> Dataplane {
        self.plane(true, SenderId(9), &[self.tunnel.outer(PEER)])
    }

    /// A node that carries these shards, and relays to the other.
    pub(crate) fn node(self, number: u8, shards: ShardSet) -> Node {
        let addresses = [self.tunnel.outer(1), self.address(number)];
        let mut node =
            Node { number, setting: self, plane: self.plane(false, SenderId(number.into()), &addresses) };
        node.plane.apply(Command::SetShards(shards));
        node.set_relay(0, shards);
        node
    }

    pub(crate) fn cluster(self, first: ShardSet) -> Cluster {
        Cluster([self.node(1, first), self.node(2, ShardSet::ALL.without(first))])
    }
}

/// Everything to this subnet.
fn other(subnet: u8, action: Action) -> Policy {
    let local = vec![net("0.0.0.0", "255.255.255.255")];
    let remote = vec![net(&format!("10.{subnet}.0.0"), &format!("10.{subnet}.255.255"))];
    Policy { priority: 0, local, remote, action }
}

pub(crate) struct Node {
    number: u8,
    setting: Setting,
    pub(crate) plane: Dataplane,
}

impl Node {
    /// Relays to the other node what is not of these shards.
    pub(crate) fn set_relay(&mut self, view: u64, shards: ShardSet) -> Option<Garbage> {
        let mtu = if self.setting.net_mtu == 0 { 9000 } else { self.setting.net_mtu };
        let mut relay = Relay::default();
        let carrier =
            |at: usize| if shards.contains(Shard(at as u8)) { self.number } else { 3 - self.number };
        relay.set_carriers(std::array::from_fn::<_, SHARDS, _>(|at| Some(carrier(at))));
        for kind in self.setting.kinds() {
            let params = self.setting.relay(*kind, self.number, view);
            let (inbound, outbound) = params.build(mtu, self.setting.tunnel.library).unwrap();
            assert!(relay.send_by(3 - self.number, Arc::new(outbound)) && relay.accept(Arc::new(inbound)));
        }
        self.plane.apply(Command::SetRelay(Arc::new(relay)))
    }

    /// True for a packet to the other node.
    fn is_relayed(&self, (verdict, packet): &Found) -> bool {
        let forwarded = matches!(verdict, Verdict::Forward | Verdict::ForwardInPieces { .. });
        forwarded && destination(packet) == self.setting.address(3 - self.number)
    }

    /// Takes packets through this node alone, and those that were relayed to it once more.
    pub(crate) fn take(&mut self, way: Way, ingress: Ingress, packets: &[Vec<u8>]) -> Vec<Found> {
        let found = run(&mut self.plane, way, ingress, packets);
        let again = |(verdict, packet): Found| match verdict {
            Verdict::Relayed { ingress, to_us } => {
                assert!(matches!(way, Way::Inbound));
                let way = if to_us { Way::Inbound } else { Way::Outbound };
                run(&mut self.plane, way, ingress, &[packet]).remove(0)
            }
            _ => (verdict, packet),
        };
        let found = found.into_iter().map(again).collect();
        self.check();
        found
    }

    pub(crate) fn check(&self) {
        let totals = self.plane.counters().totals();
        assert!(totals.outbound.is_balanced() && totals.inbound.is_balanced(), "{totals:?}");
    }
}

pub(crate) struct Cluster(pub(crate) [Node; 2]);

impl Cluster {
    /// Takes a burst to its end, wherever that is. Gives how many packets were relayed, too.
    pub(crate) fn take(
        &mut self,
        first: usize,
        way: Way,
        ingress: Ingress,
        packets: &[Vec<u8>],
    ) -> (Vec<Found>, usize) {
        let [a, b] = &mut self.0;
        let (here, there) = if first == 0 { (a, b) } else { (b, a) };
        let mut found = here.take(way, ingress, packets);
        let relayed: Vec<usize> = (0..found.len()).filter(|at| here.is_relayed(&found[*at])).collect();
        let sent: Vec<Vec<u8>> = relayed.iter().map(|at| found[*at].1.clone()).collect();
        let came = there.take(Way::Inbound, Ingress::Port, &sent);
        for (at, result) in relayed.iter().zip(came) {
            assert!(!there.is_relayed(&result), "relayed twice");
            found[*at] = result;
        }
        (found, relayed.len())
    }
}

pub(crate) fn destination(packet: &[u8]) -> IpAddr {
    match packet[0] >> 4 {
        4 => <[u8; 4]>::try_from(&packet[16..20]).unwrap().into(),
        _ => <[u8; 16]>::try_from(&packet[24..40]).unwrap().into(),
    }
}

/// The first node carries nothing: it relays all.
pub(crate) fn relaying(setting: Setting) -> Cluster {
    setting.cluster(ShardSet::EMPTY)
}

pub(crate) fn relayed(node: &mut Node, way: Way, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let found = node.take(way, Ingress::Port, packets);
    assert!(found.iter().all(|found| node.is_relayed(found)), "{:?}", verdicts(&found));
    found.into_iter().map(|(_, packet)| packet).collect()
}
