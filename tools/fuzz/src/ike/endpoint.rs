//! The endpoint in any phase, with a peer that sends anything: in clear, or sealed with the right
//! keys.

use super::node::Node;
use super::peer::{AUTH, Draft, Peer};
use super::phase::begin;
use super::seal::{Head, chain};
use crate::input::{Input, bit};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use testudo_ike::endpoint::{PacketEnds, Target};
use testudo_ike::output::{ChildSaId, Path};

/// The ends of a packet: any will do where the connection says who the peer is.
const PACKET: PacketEnds = PacketEnds {
    local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    remote: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
};
/// The most steps of one input.
const MOST: usize = 40;
/// The most edits of one message, and payloads of one list.
const MOST_PARTS: usize = 20;

/// `phase:8`, then steps: `what:8 | ...`, see [`Rig::step`].
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let (node, peer, path) = begin(input.u8());
    let mut rig = Rig { node, peer, path, last: Vec::new() };
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        rig.step(&mut input);
        rig.node.check_states();
    }
    rig.node.finish();
}

struct Rig {
    node: Node,
    peer: Peer,
    path: Path,
    last: Vec<u8>,
}

impl Rig {
    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let from = if bit(what, 7) { elsewhere(self.path, input.u8()) } else { self.path };
        match what & 7 {
            0 => {
                let datagram = input.chunk().to_vec();
                self.deliver(from, datagram);
            }
            1 => self.edited(from, input),
            2 => {
                let head = self.head(input);
                let (first, payloads) = listed(input);
                self.deliver(from, head.clear(first, &payloads));
            }
            3 => {
                let head = self.head(input);
                let (first, content) = listed(input);
                self.sealed(from, head, first, &content, 0);
            }
            4 => {
                let head = self.head(input);
                let (first, pad_len) = (input.u8(), input.u8());
                self.sealed(from, head, first, input.chunk(), pad_len);
            }
            5 => {
                let sent = self.node.pass(Duration::from_millis(u64::from(input.u16()) * 20));
                self.heard(&sent);
            }
            6 => self.operator(what >> 3 & 7),
            _ => {
                let again = self.last.clone();
                self.deliver(from, again);
            }
        }
    }

    fn deliver(&mut self, from: Path, datagram: Vec<u8>) {
        let sent = self.node.deliver(from, &datagram);
        self.last = datagram;
        self.heard(&sent);
    }

    fn heard(&mut self, sent: &[Vec<u8>]) {
        sent.iter().for_each(|message| self.peer.hear(message));
    }

    fn sealed(&mut self, from: Path, head: Head, first: u8, content: &[u8], pad_len: u8) {
        if let Some(message) = self.peer.seal(head, first, content, pad_len) {
            self.deliver(from, message);
        }
    }

    /// `exchange:8 | flags and faults:8`: a header that is correct except for the given faults.
    fn head(&self, input: &mut Input<'_>) -> Head {
        let (exchange, wrong) = (input.u8(), input.u8());
        let mut head = self.peer.head(34 + (exchange & 3), bit(wrong, 0));
        if exchange > 3 {
            head.exchange = exchange;
        }
        if bit(wrong, 1) {
            head.id = head.id.wrapping_add(u32::from(input.u8())).wrapping_sub(1);
        }
        if bit(wrong, 2) {
            head.flags ^= input.u8();
        }
        if bit(wrong, 3) {
            head.spis.responder.0 ^= input.u64();
        }
        if bit(wrong, 4) {
            head.spis.initiator.0 ^= input.u64();
        }
        head
    }

    /// The next message of an honest peer, with edits: `count:8`, then `offset:16 | removed:8 |
    /// inserted`.
    fn edited(&mut self, from: Path, input: &mut Input<'_>) {
        let Some(draft) = self.peer.next() else { return };
        let mut payloads = draft.payloads.clone();
        for _ in 0..usize::from(input.u8()).min(MOST_PARTS) {
            let start = usize::from(input.u16()) % (payloads.len() + 1);
            let end = (start + usize::from(input.u8())).min(payloads.len());
            payloads.splice(start..end, input.chunk().iter().copied());
        }
        // It may prove the peer's identity, despite the edits.
        self.node.trusted |= draft.head.exchange == AUTH;
        if let Some(message) = self.peer.send(&Draft { payloads, ..draft }) {
            self.deliver(from, message);
        }
    }

    fn operator(&mut self, verb: u8) {
        let now = self.node.now;
        let node = &mut self.node;
        match verb {
            0 => drop(node.endpoint.initiate(now, Some("site"), "net")),
            1 => drop(node.endpoint.initiate(now, None, "web")),
            2 => drop(node.endpoint.acquire_for(now, "site", "net", PACKET)),
            3 => drop(node.endpoint.terminate(now, &Target::All, false)),
            4 => drop(node.endpoint.terminate(now, &Target::All, true)),
            5 => {
                let target = Target::ChildName { connection: None, child: "net".to_owned() };
                drop(node.endpoint.terminate(now, &target, false));
            }
            6 => drop(node.endpoint.unload_connection("site")),
            _ => node.endpoint.traffic_seen(now, ChildSaId(1)),
        }
        let sent = node.drain();
        self.heard(&sent);
    }
}

/// Another source.
fn elsewhere(path: Path, number: u8) -> Path {
    let mut path = path;
    match number {
        0 => path.remote.set_port(40_000),
        1 => path.local = "[2001:db8::1]:500".parse().expect("an address"),
        other => path.remote = std::net::SocketAddr::from(([198, 51, 100, other], 500)),
    }
    path
}

/// Payloads: `kind:8 | body`, up to a kind of zero.
fn listed(input: &mut Input<'_>) -> (u8, Vec<u8>) {
    let mut payloads = Vec::new();
    for _ in 0..MOST_PARTS {
        match input.u8() {
            0 => break,
            kind => payloads.push((kind, input.chunk())),
        }
    }
    chain(&payloads)
}
