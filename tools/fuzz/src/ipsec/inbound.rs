//! Packets from the untrusted side: raw, damaged, repeated, or sealed with the peer's key around
//! any content.

use super::fate::{Fate, Near, after_authentication};
use super::forge::{around, filled, outer, padded, sealed};
use super::gateway::{Done, Gateway, Given, ROOMY, Way};
use super::replay::Model;
use super::shape::{PORT, Shape, all_of, far_hosts, host, near_hosts, net};
use crate::input::{Input, bit};
use crate::repair;
use std::net::{IpAddr, SocketAddr};
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::sa::{ChildSaParams, Encapsulation};
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::{self, Ipv4};
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::udp::{self, Udp};

/// Of the SA.
const POLICY: PolicyId = PolicyId(0);
/// Of another tunnel.
const SPOKE: PolicyId = PolicyId(1);
/// The most packets of one input.
const MOST: usize = 150;
const LONGEST: usize = 2048;
/// The shortest possible plaintext: a word of padding and trailer.
const SHORTEST: usize = 4;

/// A packet, and the harness's knowledge of it.
#[derive(Clone)]
struct Sent {
    given: Given,
    /// Number and plaintext, if the packet is authentic.
    authentic: Option<(u64, Vec<u8>)>,
    class: u8,
}

/// `shape:16`, then packets as [`Rig::packet`] reads them, each with an octet that ends the burst
/// if it is zero.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mut rig = Rig::new(Shape::read(&mut input));
    let mut burst = Vec::new();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        burst.push(rig.packet(&mut input));
        if input.u8() == 0 {
            rig.flush(&mut burst);
        }
    }
    rig.flush(&mut burst);
}

/// Policies of a hub: packets of the far hosts are protected again on their way to network 9, and
/// do not reach network 8. The SA's own policy comes after these.
fn hub(near: &ChildSaParams) -> Spd {
    let policy = |remote, action| Policy { priority: 0, local: far_hosts(), remote, action };
    let (local, remote) = (near.local_ts.clone(), near.remote_ts.clone());
    let own = Policy { priority: 1, local, remote, action: Action::Protect(POLICY) };
    let policies = vec![policy(net(8), Action::Discard), policy(net(9), Action::Protect(SPOKE)), own];
    Spd::new(policies).expect("policies")
}

/// A range of the near side around the far hosts.
fn wide() -> [TrafficSelector; 2] {
    [all_of("10.2.0.0", "10.3.255.255"), all_of("2001:db8:2::", "2001:db8:3:ffff:ffff:ffff:ffff:ffff")]
}

/// The SA with its ESP packets in UDP if they were not, and vice versa, which the near gateway
/// accepts as well (RFC 7296 §2.23).
fn swapped(params: &ChildSaParams) -> ChildSaParams {
    let (encapsulation, port) = match params.encapsulation {
        Encapsulation::Plain => (Encapsulation::Udp, PORT),
        Encapsulation::Udp => (Encapsulation::Plain, 0),
    };
    let [local, remote] = [params.local, params.remote].map(|end| SocketAddr::new(end.ip(), port));
    ChildSaParams { encapsulation, local, remote, ..params.clone() }
}

/// The near gateway, and the far one's key.
struct Rig {
    gateway: Gateway,
    near: ChildSaParams,
    far: ChildSaParams,
    own: [IpAddr; 3],
    selectors: SelectorPair,
    spd: Spd,
    /// The far sides of all policies.
    held: Vec<TrafficSelector>,
    model: Model,
    last: Option<Sent>,
    /// The number after the last one.
    next: u64,
}

impl Rig {
    fn new(shape: Shape) -> Self {
        // A selector with ports, because the check after decryption examines them too.
        let ports = TrafficSelector { protocol: 17, port_end: 2000, ..all_of("10.3.0.0", "10.3.255.255") };
        let local = [near_hosts(), net(8), net(9), wide().to_vec()].concat();
        let near = shape.near(&local, &[far_hosts(), vec![ports]].concat());
        let own = [near.local.ip(), host(false, 1, 1), host(true, 1, 1)];
        let mut gateway = Gateway::new(hub(&near), own);
        gateway.add_inbound(&near, POLICY, shape.path_mtu);
        Self {
            gateway,
            far: near.mirrored(),
            own,
            selectors: SelectorPair::new(&near.local_ts, &near.remote_ts),
            spd: hub(&near),
            held: [net(8), net(9), near.remote_ts.clone()].concat(),
            model: Model::new(shape.window, shape.esn),
            near,
            last: None,
            next: 1,
        }
    }

    /// `kind and flags:8 | class:8 | ...`.
    fn packet(&mut self, input: &mut Input<'_>) -> Sent {
        let (kind, class) = (input.u8(), input.u8());
        let ingress = if bit(kind, 3) { Ingress::Host } else { Ingress::Port };
        let (packet, authentic) = match kind & 7 {
            0 => (self.raw(input), None),
            1 => {
                let protocol = Protocol(input.u8());
                (outer(&self.far, class, protocol, &input.padded_chunk(LONGEST)), None)
            }
            2 => {
                let number = input.u32().to_be_bytes();
                let esp = [&self.near.spi_in.0.to_be_bytes()[..], &number, input.chunk()].concat();
                (around(&self.far, class, &esp), None)
            }
            3 => self.seal(kind, class, input, |_, input| input.chunk().to_vec()),
            4 => self.seal(kind, class, input, |_, input| {
                let next_header = Protocol(input.u8());
                padded(&input.padded_chunk(LONGEST), next_header)
            }),
            5 => self.seal(kind, class, input, Self::plausible),
            6 => (self.damaged(input), None),
            _ => match &self.last {
                Some(last) => return last.clone(),
                None => (Vec::new(), None),
            },
        };
        let sent = Sent { given: Given { packet, ingress, room: ROOMY }, authentic, class };
        // Damaged once more in the same place, a packet would be intact again.
        if kind & 7 != 6 {
            self.last = Some(sent.clone());
        }
        sent
    }

    /// `repairs:8 | packet`.
    fn raw(&self, input: &mut Input<'_>) -> Vec<u8> {
        let repairs = input.u8();
        let mut packet = input.padded_chunk(LONGEST);
        if bit(repairs, 0) {
            repair::addresses(&mut packet, self.far.local.ip(), self.far.remote.ip());
        }
        if bit(repairs, 1) {
            repair::length(&mut packet);
        }
        if bit(repairs, 2) {
            repair::checksum(&mut packet);
        }
        packet
    }

    /// Seals the result of `plaintext`, with a number chosen by the input.
    fn seal(
        &mut self,
        kind: u8,
        class: u8,
        input: &mut Input<'_>,
        plaintext: fn(u8, &mut Input<'_>) -> Vec<u8>,
    ) -> (Vec<u8>, Option<(u64, Vec<u8>)>) {
        let number = match kind >> 4 & 3 {
            0 => self.next,
            1 => self.next.saturating_add(u64::from(input.u16())),
            2 => u64::from(input.u16()),
            _ => input.u64() >> 1,
        };
        let number = if self.near.esn { number } else { number & u64::from(u32::MAX) };
        self.next = number.saturating_add(1) & (u64::MAX >> 1);
        let text = filled(&self.far, plaintext(kind, input));
        let esp = sealed(&self.far, number, &text);
        let params = if bit(kind, 6) { swapped(&self.far) } else { self.far.clone() };
        let sent = around(&params, class, &esp);
        let whole = text.len() >= SHORTEST;
        (sent, whole.then_some((number, text)))
    }

    /// An inner packet with correct headers, by default from the far hosts to the near ones.
    fn plausible(kind: u8, input: &mut Input<'_>) -> Vec<u8> {
        let to = input.u8();
        let mut packet = input.padded_chunk(LONGEST);
        let v6 = ip::version(&packet) == Some(6);
        let net = if bit(to, 5) { 2 } else { [1, 8, 9, 3][usize::from(to >> 6)] };
        if !bit(kind, 7) {
            repair::addresses(&mut packet, host(v6, 2 + (to >> 4 & 1), 2), host(v6, net, to & 3));
        }
        repair::length(&mut packet);
        repair::checksum(&mut packet);
        padded(&packet, if v6 { Protocol::IPV6 } else { Protocol::IPV4 })
    }

    /// The last packet with one octet of its ESP changed, or cut short.
    fn damaged(&self, input: &mut Input<'_>) -> Vec<u8> {
        let (at, mask) = (usize::from(input.u16()), input.u8());
        let Some(mut packet) = self.last.as_ref().map(|last| last.given.packet.clone()) else {
            return Vec::new();
        };
        let (ip, protocol) = match ip::version(&packet) {
            Some(6) => (ipv6::HEADER, packet.get(6)),
            _ => (ipv4::HEADER, packet.get(9)),
        };
        let head = ip + if protocol == Some(&Protocol::UDP.0) { udp::HEADER } else { 0 };
        let Some(esp) = packet.get_mut(head..).filter(|esp| !esp.is_empty()) else { return packet };
        let at = at % esp.len();
        if mask == 0 {
            packet.truncate(head + at);
            repair::length(&mut packet);
            repair::checksum(&mut packet);
        } else {
            esp[at] ^= mask;
        }
        packet
    }

    fn flush(&mut self, burst: &mut Vec<Sent>) {
        self.gateway.set_now(1000);
        for part in burst.chunks(testudo_ipsec::dataplane::BURST) {
            let given: Vec<Given> = part.iter().map(|sent| sent.given.clone()).collect();
            let done = self.gateway.run(Way::Inbound, &given);
            let since = self.model.top();
            for (sent, done) in part.iter().zip(&done) {
                self.judge(sent, done, since);
            }
        }
        burst.clear();
    }

    fn judge(&mut self, sent: &Sent, done: &Done, since: u64) {
        let Some((number, text)) = &sent.authentic else {
            return refused(done);
        };
        let passed = after_authentication(done.0);
        assert_eq!(passed, self.model.accepts(*number, since), "number {number}, {:?}", done.0);
        if passed {
            self.model.accept(*number);
            let near = Near {
                selectors: &self.selectors,
                own: &self.own,
                spd: &self.spd,
                policy: POLICY,
                sides: [&self.near.local_ts, &self.near.remote_ts],
                held: &self.held,
            };
            Fate::of(text, sent.class, sent.given.ingress, &near).check(done);
        }
    }
}

/// Packets that are not authentic must be dropped, unless they are IKE or wait, for an SA or for
/// their other fragments.
pub(super) fn refused((verdict, packet): &Done) {
    if *verdict != Verdict::ToHost {
        assert!(
            matches!(verdict, Verdict::Drop(_) | Verdict::Early(_) | Verdict::Reassemble)
                && !after_authentication(*verdict),
            "{verdict:?}"
        );
        return;
    }
    let payload = match ip::version(packet) {
        Some(4) => Ipv4::parse_verified(packet).expect("a packet").payload(),
        _ => Ipv6::parse(packet).and_then(|ip| ip.upper()).expect("a packet").payload,
    };
    let datagram = Udp::parse(payload).expect("a datagram");
    assert_eq!((datagram.dst_port, datagram.payload.first_chunk()), (4500, Some(&[0; 4])));
}
