//! Transport mode: packets of one host arrive at the other unchanged; forgeries by the network or
//! the peer do no harm.

use super::forge;
use super::gateway::{Gateway, Given, ROOMY, Way, is_forwarded};
use super::shape::Shape;
use crate::input::{Input, bit};
use crate::repair;
use std::net::IpAddr;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::packet_selector::{Direction, PacketSelector};
use testudo_ipsec::sa::{ChildSaParams, Mode};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::ip::Protocol;

/// Of a packet.
const MOST: usize = 4000;

/// `shape:16`, then packets: `flags:8 | packet`, from the host; or sealed by its peer: `flags:8 |
/// next:8 | payload`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let shape = Shape::read(&mut input);
    let params = params(&shape);
    let far = params.mirrored();
    let [mut host, mut peer, mut victim] =
        [&params, &far, &far].map(|params| gateway(params, shape.path_mtu));
    let mut number = 1;
    while !input.is_empty() {
        let flags = input.u8();
        if bit(flags, 7) {
            let (next, payload) = (Protocol(input.u8()), input.padded_chunk(MOST));
            seal(&mut victim, &params, number, next, &payload);
            number += 1;
        } else {
            let packet = addressed(&params, flags, input.padded_chunk(MOST));
            send(&mut host, &mut peer, flags, packet);
        }
    }
}

/// Between the outer addresses themselves.
fn params(shape: &Shape) -> ChildSaParams {
    let tunnel = shape.near(&[], &[]);
    let only = |addr: IpAddr| vec![TrafficSelector::all(AddrRange::new(addr, addr).expect("a range"))];
    let (local_ts, remote_ts) = (only(tunnel.local.ip()), only(tunnel.remote.ip()));
    ChildSaParams { mode: Mode::Transport, local_ts, remote_ts, ..tunnel }
}

fn gateway(params: &ChildSaParams, path_mtu: u16) -> Gateway {
    let policy = Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(PolicyId(0)),
    };
    let spd = Spd::new(vec![policy]).expect("one policy");
    let mut gateway = Gateway::new(spd, [params.local.ip()]);
    gateway.add_inbound(params, PolicyId(0), path_mtu);
    gateway.add_outbound(params, PolicyId(0), SequenceBlock::whole(params.esn), path_mtu);
    gateway
}

fn addressed(params: &ChildSaParams, flags: u8, mut packet: Vec<u8>) -> Vec<u8> {
    if bit(flags, 0) {
        repair::addresses(&mut packet, params.local.ip(), params.remote.ip());
    }
    if bit(flags, 1) {
        repair::length(&mut packet);
    }
    if bit(flags, 2) {
        repair::checksum(&mut packet);
    }
    packet
}

fn send(host: &mut Gateway, peer: &mut Gateway, flags: u8, packet: Vec<u8>) {
    let ingress =
        [Ingress::Host, Ingress::HostJoined, Ingress::Port, Ingress::Host][usize::from(flags >> 3 & 3)];
    let given = Given { packet: packet.clone(), ingress, room: ROOMY };
    let (verdict, sent) = host.run(Way::Outbound, &[given]).remove(0);
    if !is_forwarded(verdict) {
        return;
    }
    assert_ne!(ingress, Ingress::Port, "only what the host sends itself");
    let given = Given { packet: sent, ingress: Ingress::Port, room: ROOMY };
    let (verdict, got) = peer.run(Way::Inbound, &[given]).remove(0);
    assert_eq!(verdict, Verdict::ToHost);
    let (sent, flow) = (packet.get(..got.len()), PacketSelector::of_packet(&packet, Direction::Out));
    // A segment that opens a connection may ask for less.
    if flow.is_ok_and(|flow| flow.protocol() == Protocol::TCP.0) {
        assert_eq!(got.len(), sent.map_or(0, <[u8]>::len));
    } else {
        assert_eq!(Some(&got[..]), sent);
    }
}

/// The peer has the key, and seals any content.
fn seal(peer: &mut Gateway, params: &ChildSaParams, number: u64, next: Protocol, payload: &[u8]) {
    let esp = forge::sealed(params, number, &forge::padded(payload, next));
    let packet = forge::around(params, 0, &esp);
    let given = Given { packet, ingress: Ingress::Port, room: ROOMY };
    let (verdict, got) = peer.run(Way::Inbound, &[given]).remove(0);
    match verdict {
        Verdict::ToHost => assert!(got.ends_with(payload), "what was sealed, behind the packet's own header"),
        Verdict::Drop(DropReason::Dummy | DropReason::MalformedInner | DropReason::FragmentInside) => {}
        other => panic!("{other:?}"),
    }
}
