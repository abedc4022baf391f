//! Packets from the protected side, through policies of every kind. The peer must be able to open
//! what leaves.

use super::fate::{addressed_to, same_but_for_routing};
use super::gateway::{Done, Gateway, Given, ROOMY, TIGHT, Way, is_forwarded};
use super::shape::{Shape, all_of, far_hosts, host, near_hosts, net};
use crate::input::{Input, bit};
use crate::repair;
use std::collections::BTreeSet;
use testudo_crypto::IV_LEN;
use testudo_ipsec::dataplane::{BURST, Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::packet_selector::{Direction, PacketSelector};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation, EspAlgorithm, SeparateAlgorithm};
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Decision, Policy, PolicyId, Spd};
use testudo_wire::fragment::Fragment;
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::{self, Ipv4};
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::{esp, udp};

/// Has an SA.
const TUNNEL: PolicyId = PolicyId(0);
/// Has none.
const TRAP: PolicyId = PolicyId(1);
/// The most packets of one input.
const MOST: usize = 150;
const LONGEST: usize = 5000;

/// `shape:16 | numbers:8`, then packets as [`Rig::packet`] reads them, each with an octet that ends
/// the burst if it is zero.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let shape = Shape::read(&mut input);
    let mut rig = Rig::new(shape, input.u8());
    let mut burst = Vec::new();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        burst.push(Rig::packet(&mut input));
        if input.u8() == 0 {
            rig.flush(&mut burst);
        }
    }
    rig.flush(&mut burst);
}

/// The near gateway, and the far one that receives its packets.
struct Rig {
    near: Gateway,
    far: Gateway,
    params: ChildSaParams,
    spd: Spd,
    negotiated: SelectorPair,
    path_mtu: u16,
    /// The next sequence numbers, as long as there are any.
    numbers: SequenceBlock,
    ivs: BTreeSet<Vec<u8>>,
}

/// Traffic to the far hosts and to network 6 is protected, to network 3 passes, to network 4 is
/// discarded, to network 5 waits for an SA. Other traffic has no policy.
fn policies() -> Vec<Policy> {
    let policy = |remote, action| Policy { priority: 0, local: near_hosts(), remote, action };
    vec![
        policy([far_hosts(), net(6)].concat(), Action::Protect(TUNNEL)),
        policy(net(5), Action::Protect(TRAP)),
        policy(net(3), Action::Bypass),
        policy(net(4), Action::Discard),
    ]
}

impl Rig {
    fn new(shape: Shape, numbers: u8) -> Self {
        // For network 6 only some UDP ports were negotiated.
        let ports = TrafficSelector { protocol: 17, port_end: 2000, ..all_of("10.6.0.0", "10.6.255.255") };
        let params = shape.near(&near_hosts(), &[far_hosts(), vec![ports]].concat());
        let whole = SequenceBlock::whole(params.esn);
        let numbers = match numbers {
            0 => whole,
            few => SequenceBlock { next: 1, end: 1 + u64::from(few) },
        };
        let spd = || Spd::new(policies()).expect("policies");
        let mut near = Gateway::new(spd(), [params.local.ip()]);
        near.add_outbound(&params, TUNNEL, numbers, shape.path_mtu);
        let received = ChildSaParams { replay_window: 64, ..params.mirrored() };
        let mut far = Gateway::new(Spd::empty(), [params.remote.ip()]);
        far.add_inbound(&received, TUNNEL, shape.path_mtu);
        Self {
            near,
            far,
            spd: spd(),
            negotiated: SelectorPair::new(&params.local_ts, &params.remote_ts),
            path_mtu: shape.path_mtu,
            params,
            numbers,
            ivs: BTreeSet::new(),
        }
    }

    /// `flags:8 | to:8 | length:16 | octets`: the destination by network and host, and how much of
    /// the packet is repaired.
    fn packet(input: &mut Input<'_>) -> Given {
        let (flags, to) = (input.u8(), input.u8());
        let mut packet = input.padded_chunk(LONGEST);
        let v6 = ip::version(&packet) == Some(6);
        if bit(flags, 0) {
            repair::addresses(&mut packet, host(v6, 1, 2), host(v6, to & 7, to >> 3));
        }
        if bit(flags, 1) {
            repair::length(&mut packet);
        }
        if bit(flags, 2) {
            repair::checksum(&mut packet);
        }
        let ingress = if bit(flags, 3) { Ingress::Host } else { Ingress::Port };
        Given { packet, ingress, room: if bit(flags, 4) { TIGHT } else { ROOMY } }
    }

    fn flush(&mut self, burst: &mut Vec<Given>) {
        self.near.set_now(1000);
        for part in burst.chunks(BURST) {
            let done = self.near.run(Way::Outbound, part);
            let mut pieces = Vec::new();
            for (given, done) in part.iter().zip(&done) {
                assert!(done.0 != Verdict::Behind || !pieces.is_empty(), "behind nothing");
                pieces.extend(self.judge(given, done));
            }
            self.deliver(part, &done);
            // A piece is not split again.
            for part in pieces.chunks(BURST) {
                let done = self.near.run(Way::Outbound, part);
                for (given, done) in part.iter().zip(&done) {
                    assert_eq!(self.judge(given, done).len(), 0, "{:?}", done.0);
                }
                self.deliver(part, &done);
            }
        }
        burst.clear();
    }

    /// The decision of the SPD, looked up again.
    fn decision(&self, packet: &[u8]) -> Option<(PacketSelector, Decision)> {
        let verified = ip::version(packet) != Some(4) || Ipv4::parse_verified(packet).is_ok();
        let flow = PacketSelector::of_packet(packet, Direction::Out).ok().filter(|_| verified)?;
        Some((flow, self.spd.lookup(&flow)))
    }

    /// A fragment of UDP to a network for which the SA accepts some ports only.
    fn is_undecided(&self, packet: &[u8], flow: &PacketSelector) -> bool {
        let some_ports = all_of("10.6.0.0", "10.6.255.255");
        let is_fragment = Fragment::parse(packet).is_ok_and(|fragment| fragment.is_some());
        let tunnelled = self.spd.lookup(flow) == Decision::Act(Action::Protect(TUNNEL));
        is_fragment && tunnelled && flow.protocol() == 17 && some_ports.addrs.contains(flow.remote())
    }

    /// Compares a verdict with the SPD. Returns the pieces of a packet that must be split.
    fn judge(&self, given: &Given, (verdict, packet): &Done) -> Vec<Given> {
        let Some((flow, decision)) = self.decision(&given.packet) else {
            assert_eq!(*verdict, Verdict::Drop(DropReason::Malformed));
            return Vec::new();
        };
        if given.ingress != Ingress::Piece && self.is_undecided(&given.packet, &flow) {
            assert_eq!((*verdict, packet), (Verdict::Reassemble, &whole(&given.packet).to_vec()));
            return Vec::new();
        }
        let covered = self.negotiated.accepts(&flow);
        match (decision, *verdict) {
            (Decision::NoPolicy, found) => assert_eq!(found, Verdict::Drop(DropReason::NoPolicy)),
            (Decision::Act(Action::Discard), found) => {
                assert_eq!(found, Verdict::Drop(DropReason::PolicyDiscard));
            }
            (Decision::Act(Action::Protect(TRAP)), found) => {
                assert_eq!(found, Verdict::Drop(DropReason::NoSa));
            }
            (Decision::Act(Action::Protect(_)), found) if !covered => {
                assert_eq!(found, Verdict::Drop(DropReason::OutsideSa));
            }
            (_, Verdict::Reply) => assert_eq!(addressed_to(packet), flow.local()),
            (_, Verdict::Drop(DropReason::TtlExceeded)) => assert_eq!(given.ingress, Ingress::Port),
            (Decision::Act(Action::Bypass), found) => {
                assert_eq!(found, Verdict::Forward);
                same_but_for_routing(whole(&given.packet), packet, hops(given));
            }
            (Decision::Act(Action::Protect(_)), found) if is_forwarded(found) => (), // See `deliver`.
            (Decision::Act(Action::Protect(_)), Verdict::Fragment { mtu }) => return split(packet, mtu),
            (Decision::Act(Action::Protect(_)), Verdict::Behind) => {
                assert_ne!(given.ingress, Ingress::Piece);
                return vec![Given { packet: packet.clone(), ingress: Ingress::Piece, room: given.room }];
            }
            (Decision::Act(Action::Protect(_)), Verdict::Drop(reason)) => match reason {
                DropReason::NoRoom => assert_eq!(given.room, TIGHT),
                DropReason::NoBlock => assert!(self.numbers.end < 300),
                DropReason::TooBig => assert!(whole(&given.packet).len() > usize::from(self.path_mtu) - 100),
                _ => panic!("{reason:?}"),
            },
            (Decision::Act(Action::Protect(_)), found) => panic!("{found:?}"),
        }
        Vec::new()
    }

    /// The far gateway receives its packets in order, and must find the original ones.
    fn deliver(&mut self, given: &[Given], done: &[Done]) {
        let protected = given.iter().zip(done).filter(|(given, (verdict, _))| {
            let decision = self.decision(&given.packet).map(|(_, decision)| decision);
            is_forwarded(*verdict) && decision == Some(Decision::Act(Action::Protect(TUNNEL)))
        });
        let (given, sent): (Vec<&Given>, Vec<&Done>) = protected.unzip();
        let arriving: Vec<Given> = sent
            .iter()
            .map(|(_, packet)| Given { packet: packet.clone(), ingress: Ingress::Host, room: ROOMY })
            .collect();
        for ((given, (verdict, _)), outer) in given.iter().zip(&sent).zip(&arriving) {
            self.check_outer(&outer.packet);
            assert_eq!(*verdict, self.leaves_as(&outer.packet));
            assert!(outer.packet.len() <= usize::from(self.path_mtu) || is_excused(whole(&given.packet)));
        }
        let received = self.far.run(Way::Inbound, &arriving);
        for (given, (verdict, packet)) in given.iter().zip(&received) {
            assert_eq!(*verdict, Verdict::Forward);
            same_but_for_routing(whole(&given.packet), packet, hops(given));
        }
    }

    /// Whole, unless it is IPv6 and both its path and the narrowest of IPv6 links are too small.
    fn leaves_as(&self, outer: &[u8]) -> Verdict {
        let mtu = self.path_mtu.max(ipv6::MIN_MTU);
        if ip::version(outer) == Some(6) && outer.len() > usize::from(mtu) {
            Verdict::ForwardInPieces { mtu }
        } else {
            Verdict::Forward
        }
    }

    /// The outer header, and the numbers after it, which must not repeat.
    fn check_outer(&mut self, packet: &[u8]) {
        let (src, dst, protocol, payload) = match ip::version(packet) {
            Some(4) => {
                let ip = Ipv4::parse_verified(packet).expect("an outer packet");
                assert_eq!(ip.total_len(), packet.len());
                (ip.src().into(), ip.dst().into(), ip.protocol(), ip.payload())
            }
            _ => {
                let ip = Ipv6::parse(packet).expect("an outer packet");
                assert_eq!(ip.total_len(), packet.len());
                (ip.src().into(), ip.dst().into(), ip.next_header(), ip.payload())
            }
        };
        assert_eq!((src, dst), (self.params.local.ip(), self.params.remote.ip()));
        let esp = match self.params.encapsulation {
            Encapsulation::Plain => payload,
            Encapsulation::Udp => &payload[udp::HEADER..],
        };
        assert_eq!(protocol == Protocol::UDP, self.params.encapsulation == Encapsulation::Udp);
        let found = esp::Esp::parse(esp).expect("ESP");
        assert_eq!((found.spi, found.sequence), (self.params.spi_out.0, self.numbers.next as u32));
        self.numbers.next += 1;
        assert!(self.numbers.next <= self.numbers.end);
        let len = match self.params.algorithm {
            EspAlgorithm::Separate(SeparateAlgorithm { cipher, .. }) => cipher.iv_len(),
            EspAlgorithm::Ah(_) => unreachable!("of ESP"),
            _ => IV_LEN,
        };
        let iv = found.body.get(..len).expect("an IV").to_vec();
        assert!(len == 0 || self.ivs.insert(iv), "an IV must not repeat");
    }
}

/// True if a packet may leave in an outer packet that is larger than the path MTU: IPv6 that its
/// sender cannot make smaller, and packets through selectors with ports, which their fragments do
/// not have.
fn is_excused(packet: &[u8]) -> bool {
    match ip::version(packet) {
        Some(4) => Ipv4::parse(packet).is_ok_and(|ip| !ip.df() && ip.dst().octets()[1] == 6),
        _ => packet.len() <= usize::from(ipv6::MIN_MTU),
    }
}

/// Hops that the near gateway decrements.
fn hops(given: &Given) -> u8 {
    u8::from(given.ingress == Ingress::Port)
}

/// The packet without the octets after its end.
fn whole(packet: &[u8]) -> &[u8] {
    let len = match ip::version(packet) {
        Some(4) => Ipv4::parse(packet).expect("a packet").total_len(),
        _ => Ipv6::parse(packet).expect("a packet").total_len(),
    };
    &packet[..len]
}

/// The pieces, as the worker makes them.
fn split(packet: &[u8], mtu: u16) -> Vec<Given> {
    let mut fragments = ipv4::fragment(packet, mtu).expect("what is to be split can be");
    let mut pieces = Vec::new();
    while let Some(len) = fragments.next_len() {
        let mut piece = vec![0; len];
        assert_eq!(fragments.write_next(&mut piece), Ok(Some(len)));
        pieces.push(Given { packet: piece, ingress: Ingress::Piece, room: ROOMY });
    }
    assert!(pieces.len() > 1);
    pieces
}
