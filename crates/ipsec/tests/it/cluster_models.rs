//! Nodes of a cluster against what may happen to them in any order, and against the one gateway
//! that they are together.

use crate::cluster::{FENCED, OTHER_NODE, block, verdicts, wide};
use crate::forge::{around, padded, sealed};
use crate::harness::{PATH_MTU, POLICY, SPI_A, SPI_B, Tunnel, Way, net, run, set_spd};
use crate::packets::v4_with;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ipsec::dataplane::{Command, Config, Dataplane, Event, Ingress, PolicyBlock, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::spd::{Action, Policy, PolicyId};
use testudo_wire::ip::Protocol;

/// Two SAs of different shards behind one pipeline, and all that may be asked of it meanwhile.
#[derive(Clone, Debug)]
enum Step {
    Out { first: bool, count: usize },
    In { first: bool, count: usize },
    Shards { first: bool, second: bool },
    Open(bool),
    Sender(Option<u16>),
    Advance { first: bool, len: u64 },
    Floor { first: bool, ahead: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let first = any::<bool>;
    let step = prop_oneof![
        4 => (first(), 1usize..70).prop_map(|(first, count)| Step::Out { first, count }),
        4 => (first(), 1usize..70).prop_map(|(first, count)| Step::In { first, count }),
        1 => (first(), first()).prop_map(|(first, second)| Step::Shards { first, second }),
        1 => prop::sample::select(vec![true, true, false]).prop_map(Step::Open),
        1 => prop::option::weighted(0.7, 1u16..9).prop_map(Step::Sender),
        2 => (first(), 0u64..150).prop_map(|(first, len)| Step::Advance { first, len }),
        1 => (first(), 0u64..100).prop_map(|(first, ahead)| Step::Floor { first, ahead }),
    ];
    prop::collection::vec(step, 1..60)
}

fn from_b(subnet: u8) -> Vec<u8> {
    let ends = ([10, 2, 0, 9].into(), [10, 1, subnet, 9].into());
    v4_with(|f| (f.src, f.dst) = ends, Protocol(99), &[7; 50])
}

fn to_b(subnet: u8) -> Vec<u8> {
    let ends = ([10, 1, subnet, 9].into(), [10, 2, 0, 9].into());
    v4_with(|f| (f.src, f.dst) = ends, Protocol(99), &[7; 50])
}

/// The model of one of the two SAs.
struct Known {
    forger: ChildSaParams,
    inbound: Arc<InboundSa>,
    outbound: Arc<OutboundSa>,
    granted: Vec<SequenceBlock>,
    used: HashSet<u64>,
    arrived: u64,
    floor: u64,
    here: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever the order: only what was granted is sent, once; nothing is accepted twice, below a
    /// floor, in a shard of others or behind a fence; and all of it is counted.
    #[test]
    fn nothing_passes_that_must_not(steps in steps()) {
        let tunnel = Tunnel::default();
        // We are B; packets to us are forged by A.
        let mut forger = tunnel.params();
        let mut plane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), None, 1));
        plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))));
        plane.apply(Command::SetLocalAddrs(Arc::new([forger.remote.ip()].into_iter().collect())));
        let mut policies = Vec::new();
        let mut known = [0, 1].map(|number: u32| {
            let policy = PolicyId(number);
            forger.spi_out = Spi(SPI_B.0 + (number << 24));
            forger.local_ts = vec![net(&format!("10.1.{number}.0"), &format!("10.1.{number}.255"))];
            let params = forger.mirrored();
            let inbound = Arc::new(InboundSa::new(&params, policy, PATH_MTU, tunnel.library).unwrap());
            let outbound = OutboundSa::new(&params, policy, SequenceBlock::EMPTY, PATH_MTU, tunnel.library);
            let outbound = Arc::new(outbound.unwrap());
            plane.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
            plane.apply(Command::AddInbound(inbound.clone()));
            plane.apply(Command::SetOutbound(policy, outbound.clone()));
            let remote = params.remote_ts.clone();
            policies.push(Policy { priority: 0, remote, action: Action::Protect(policy), ..wide() });
            let (granted, used) = (vec![block(0, 1)], HashSet::new());
            Known { forger: forger.clone(), inbound, outbound, granted, used, arrived: 0, floor: 0, here: true }
        });
        set_spd(&mut plane, policies);
        let (mut open, mut sender, mut latest) = (true, None, 0);
        for step in steps {
            match step {
                Step::Out { first, count } => {
                    let sa = &mut known[usize::from(!first)];
                    let packet = from_b(u8::from(!first));
                    let found = run(&mut plane, Way::Outbound, Ingress::Port, &vec![packet; count]);
                    for (verdict, packet) in found {
                        let sent = verdict == Verdict::Forward;
                        prop_assert!(!sent || open && sa.here && sender.is_some());
                        let number = sent.then(|| u32::from_be_bytes(packet[24..28].try_into().unwrap()).into());
                        if let Some(number) = number {
                            prop_assert!(sa.granted.iter().any(|b| (b.next..b.end).contains(&number)));
                            prop_assert!(sa.used.insert(number), "{} twice", number);
                            let iv = u16::from_be_bytes(packet[28..30].try_into().unwrap());
                            prop_assert_eq!(Some(iv), sender);
                        }
                        let expected = match (open, sa.here, sender) {
                            (false, ..) => DropReason::Fenced,
                            (_, false, _) => DropReason::OtherNode,
                            (.., None) => DropReason::NoSender,
                            _ => DropReason::NoBlock,
                        };
                        prop_assert!(sent || verdict == Verdict::Drop(expected), "{:?}", verdict);
                    }
                }
                Step::In { first, count } => {
                    let sa = &mut known[usize::from(!first)];
                    // Half of them for the second time.
                    let from = sa.arrived.saturating_sub(count as u64 / 2);
                    let inner = padded(&to_b(u8::from(!first)), Protocol::IPV4);
                    for number in from + 1..=from + count as u64 {
                        let packet = around(&tunnel, &sealed(&sa.forger, number, &inner));
                        let found = run(&mut plane, Way::Inbound, Ingress::Port, &[packet]);
                        let fresh = number > sa.arrived.max(sa.floor);
                        let expected = match (open, sa.here, fresh) {
                            (true, true, true) => Verdict::Forward,
                            (false, ..) => FENCED,
                            (_, false, _) => OTHER_NODE,
                            _ => found[0].0,
                        };
                        prop_assert_eq!(found[0].0, expected);
                        prop_assert!(fresh || found[0].0 != Verdict::Forward, "{} again", number);
                        if found[0].0 == Verdict::Forward {
                            sa.arrived = number;
                        }
                    }
                }
                Step::Shards { first, second } => {
                    let mut carried = ShardSet::ALL;
                    for (sa, here) in known.iter_mut().zip([first, second]) {
                        sa.here = here;
                        if !here {
                            carried.remove(sa.inbound.spi().shard());
                        }
                    }
                    plane.apply(Command::SetShards(carried));
                }
                Step::Open(now) => {
                    open = now;
                    plane.set_open(open);
                }
                Step::Sender(Some(id)) => {
                    let refused = plane.apply(Command::SetSenderId(SenderId(id))).is_some();
                    prop_assert_eq!(refused, id <= latest);
                    if !refused {
                        (sender, latest) = (Some(id), id);
                    }
                }
                Step::Sender(None) => {
                    plane.apply(Command::ForgetSenderId);
                    sender = None;
                }
                Step::Advance { first, len } => {
                    let sa = &mut known[usize::from(!first)];
                    let next = sa.granted.last().unwrap().end + 1000;
                    sa.granted.push(block(next, next + len));
                    sa.outbound.numbers().advance(block(next, next + len)).unwrap();
                }
                Step::Floor { first, ahead } => {
                    let sa = &mut known[usize::from(!first)];
                    sa.floor = sa.floor.max(sa.arrived + ahead);
                    plane.apply(Command::TakeIn(Box::new([(sa.inbound.spi(), sa.floor)])));
                }
            }
            let totals = plane.counters().totals();
            prop_assert!(totals.outbound.is_balanced() && totals.inbound.is_balanced());
        }
    }
}

const POLICIES: u32 = 4;

/// A node with these shards, among all of whose policies a packet's home may be: two SAs of
/// different shards, one policy without an SA, one that lets pass and one that discards.
fn member(shards: ShardSet) -> Dataplane {
    let tunnel = Tunnel::default();
    let mut params = tunnel.params();
    let mut plane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), SenderId(1), 1));
    let mut policies = Vec::new();
    for number in 0..=POLICIES {
        let policy = PolicyId(number);
        let remote = vec![net(&format!("10.2.{number}.0"), &format!("10.2.{number}.255"))];
        let action = match number {
            3 => Action::Bypass,
            4 => Action::Discard,
            _ => Action::Protect(policy),
        };
        policies.push(Policy { priority: 0, remote: remote.clone(), action, ..wide() });
        params.spi_in = Spi(SPI_A.0 ^ number << 30);
        params.remote_ts = remote;
        if number < 2 {
            let whole = SequenceBlock::whole(true);
            let sa = OutboundSa::new(&params, policy, whole, PATH_MTU, tunnel.library).unwrap();
            plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(policy))));
            plane.apply(Command::SetOutbound(policy, Arc::new(sa)));
        }
    }
    set_spd(&mut plane, policies);
    plane.apply(Command::SetHome(PolicyId(2), Some(Shard(77))));
    plane.apply(Command::SetHashKey(SipKey::new([3; 16])));
    plane.apply(Command::SetShards(shards));
    plane
}

fn reason(verdict: Verdict) -> Option<DropReason> {
    if let Verdict::Drop(reason) = verdict { Some(reason) } else { None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Packets that reach all nodes: together these do what one gateway alone would do, each packet
    /// at one of them.
    #[test]
    fn all_nodes_together_are_one_gateway(
        owners in prop::collection::vec(0usize..3, 256),
        packets in prop::collection::vec((0..=POLICIES as u8, any::<u8>(), 0u8..3, 0usize..1600, any::<bool>()), 1..100),
    ) {
        let mut alone = member(ShardSet::ALL);
        let mut nodes = [0, 1, 2].map(|node| {
            let own = (0..=u8::MAX).filter(|shard| owners[usize::from(*shard)] == node);
            member(own.map(Shard).collect())
        });
        let build = |(policy, host, ttl, len, df)| {
            let outside = host == 7;
            let src = if outside { [10, 9, 0, 1] } else { [10, 1, 0, 9] };
            let fields = |f: &mut testudo_wire::ipv4::Fields| {
                (f.src, f.dst, f.ttl, f.df) = (src.into(), [10, 2, policy, host].into(), ttl, df);
            };
            v4_with(fields, Protocol(99), &vec![7; len])
        };
        let packets: Vec<_> = packets.into_iter().map(build).collect();
        let shared = |plane: &mut Dataplane| {
            let found = run(plane, Way::Outbound, Ingress::Flooded, &packets);
            let events = plane.drain_events().filter(|event| matches!(event, Event::NoSa { .. })).count();
            assert!(plane.counters().totals().outbound.is_balanced());
            // Alone, more packets are behind pieces than at the node of their SA.
            let settled = |verdict| if verdict == Verdict::Behind { Verdict::Forward } else { verdict };
            (verdicts(&found).into_iter().map(settled).collect::<Vec<_>>(), events)
        };
        let (expected, asked) = shared(&mut alone);
        let found = nodes.each_mut().map(shared);
        prop_assert_eq!(found.iter().map(|(_, events)| events).sum::<usize>(), asked);
        for (at, expected) in expected.into_iter().enumerate() {
            let mut met: Vec<_> = found.iter().map(|(verdicts, _)| verdicts[at]).collect();
            if let Some(DropReason::PolicyDiscard | DropReason::NoPolicy) = reason(expected) {
                prop_assert_eq!(met, [expected; 3]);
                continue;
            }
            met.retain(|verdict| *verdict != OTHER_NODE);
            prop_assert_eq!(met, [expected]);
        }
    }
}
