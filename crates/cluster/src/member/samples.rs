//! For unit tests: a member in no view, and Child SAs that no peer has.

use super::core::Core;
use super::counter::Counter;
use super::numbers::blocks::Ledger;
use super::replication::replicas::{ChildReplica, Replicas, SpreadReplica};
use super::{Member, MemberConfig, MemberOutput};
use crate::dispatch::Ownership;
use crate::engine::{RingId, View};
use crate::group::{ClusterKey, Durable, GroupConfig, Ingress, Position, ViewStart};
use crate::node::NodeId;
use crate::shard::Ranking;
use crate::update::Stripe;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{ChildSaId, Output, Time};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, KeyMaterial, Mode};

/// When tests begin.
pub(super) const START: Time = Time(Duration::from_secs(100));

pub(super) fn id(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Node 1 of two, which share all shards and know spread Child SAs.
pub(super) fn member() -> Member {
    let nodes = vec![id(1), id(2)];
    let group = GroupConfig::new(id(1), nodes.clone(), ClusterKey::new([7; 32]));
    let config = MemberConfig::new(group);
    let mut member =
        Member::new(config, Durable::default(), [Box::new(Counter(1)), Box::new(Counter(2))], START);
    member.core.table.view(&nodes, Ranking::Balanced);
    member.core.view.version = GroupConfig::NEWEST;
    member
}

/// The same in a view of both nodes, where routers give each packet to one of them. It speaks for
/// its shards.
pub(super) fn routed_member() -> Member {
    let mut member = member();
    let Member { core, shards, .. } = &mut member;
    core.config.group.ingress = Ingress::Routed;
    (core.view.running, core.view.quorate) = (true, true);
    core.view.members = vec![id(1), id(2)];
    let owned = core.table.owned_by(id(1));
    (shards.active, shards.ike) = (owned, owned);
    shards.shown = Ownership { packets: owned, ike: owned, ..Ownership::default() };
    member
}

/// So long after [`START`].
pub(super) fn millis(millis: u64) -> Time {
    START.plus(Duration::from_millis(millis))
}

/// A quorate view of these nodes begins, all of which hold the state.
pub(super) fn view_start(nodes: &[u32]) -> ViewStart {
    let members: Vec<NodeId> = nodes.iter().copied().map(id).collect();
    ViewStart {
        view: View { ring: RingId { seq: 4, node: 1 }, members: members.clone(), quorate: true },
        epoch: 7,
        current: members,
        fresh: Vec::new(),
        reset: false,
        wait_until: START.plus(Duration::from_secs(5)),
        version: GroupConfig::NEWEST,
    }
}

/// True if the member has published anything since. From now on all nodes know of it.
pub(super) fn has_published(core: &mut Core) -> bool {
    let published = core.commits.is_waiting();
    core.commits.clear();
    published
}

/// What the member has asked of its data plane since, in short.
pub(super) fn asked(member: &mut Member) -> Vec<String> {
    let mut asked = Vec::new();
    while let Some(output) = member.core.outputs.pop_front() {
        match output {
            MemberOutput::InstallChild { params, .. } => asked.push(format!("install {}", params.spi_in)),
            MemberOutput::Ike(Output::RemoveChild { spi_in, .. }) => asked.push(format!("remove {spi_in}")),
            MemberOutput::Ike(Output::SwitchChild { from, to }) => {
                asked.push(format!("switch {} to {}", from.0, to.0));
            }
            _ => {}
        }
    }
    asked
}

/// This shard alone.
pub(super) fn only(shard: Shard) -> ShardSet {
    std::iter::once(shard).collect()
}

/// The first shard among these.
pub(super) fn first(shards: ShardSet) -> Shard {
    shards.iter().next().expect("there is one")
}

/// A Child SA of that shard, which is the only one of its shard with that number.
pub(super) fn child(shard: Shard, number: u32) -> ChildReplica {
    let spi_in = Spi(shard.spis().start().0 + 0x400 + number);
    let params = ChildSaParams {
        spi_in,
        spi_out: Spi(0x2000),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 64,
        local_ts: Vec::new(),
        remote_ts: Vec::new(),
        local: "192.0.2.1:0".parse().unwrap(),
        remote: "192.0.2.2:0".parse().unwrap(),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    };
    ChildReplica {
        id: ChildSaId(spi_in.0.into()),
        ike: IkeSpi(1),
        connection: "peer".into(),
        name: "net".into(),
        params: Box::new(params),
        replaces: None,
        place: 1 << 32,
        switched: false,
        ledger: Ledger::NEW,
        mark: 0,
        mark_at: START,
        rate: 0,
        measured: (0, START),
        order: 0,
        stale: false,
        outdated: false,
        spread: None,
    }
}

/// The first stripe of a Child SA, for both nodes.
pub(super) fn stripe(spi: Spi) -> Stripe {
    let nodes = vec![id(1), id(2)];
    Stripe { spi, by: Spread::PacketHash, first_row: 0, rows: 1 << 16, start: 1, nodes }
}

/// A Child SA that is spread.
pub(super) fn spread_child(shard: Shard, number: u32) -> ChildReplica {
    let mut child = child(shard, number);
    let stripe = stripe(child.params.spi_in);
    child.ledger.reserved = stripe.end();
    child.spread = Some(Box::new(SpreadReplica::new(stripe)));
    child
}

/// These Child SAs become known to the member.
pub(super) fn insert<const COUNT: usize>(
    replicas: &mut Replicas,
    children: [ChildReplica; COUNT],
) -> [Spi; COUNT] {
    children.map(|child| {
        let spi = child.params.spi_in;
        replicas.insert_child(child);
        spi
    })
}

/// Four spread Child SAs. The second is to send in place of the first, and the fourth in place of
/// the third, as soon as they have numbers.
pub(super) fn waiting_switches(member: &mut Member) -> [Spi; 4] {
    let Member { core, replication, .. } = &mut *member;
    let children = [0, 1, 2, 3].map(|number| spread_child(Shard(1), number));
    let spis = insert(&mut replication.replicas, children);
    for [from, to] in [[0, 1], [2, 3]] {
        replication.numbers.sends_with(core, Position::default(), stripe(spis[to]));
        replication.switched(core, spis[from], spis[to]);
    }
    assert_eq!(asked(member), [""; 0], "the numbers have not come");
    spis
}
