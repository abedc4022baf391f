//! AH in both modes, and around ESP. Changes that routers may make do no harm, other changes are
//! detected, and a sender with the keys gets nothing in but what the SAs accept.

use super::fate::{Fate, Near, same_but_for_routing};
use super::forge;
use super::gateway::{Done, Gateway, Given, ROOMY, Way, is_forwarded};
use super::inbound::refused;
use super::routers;
use super::shape::{Shape, far_hosts, host, near_hosts};
use crate::input::{Input, bit};
use crate::repair;
use std::net::IpAddr;
use testudo_base::spi::Spi;
use testudo_crypto::mac::MacKey;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::packet_selector::{Direction, PacketSelector};
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm, KeyMaterial, Mac, Mode};
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank, Spd};
use testudo_wire::ah;
use testudo_wire::fragment::Fragment;
use testudo_wire::ip::{self, Protocol};
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::Ipv6;
use testudo_wire::seam::Seam;

/// Of the SA for the hosts' packets.
const POLICY: PolicyId = PolicyId(0);
/// Of AH around it.
const AROUND: PolicyId = PolicyId(1);
/// Octets of a packet.
const LONGEST: usize = 3000;
/// Steps of one input.
const MOST: usize = 60;

/// `shape:16 | kind:8`, then steps, each `what and flags:8 | ...`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mut rig = Rig::read(&mut input);
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let flags = input.u8();
        match flags & 3 {
            0 | 1 => rig.send(flags, &mut input),
            2 => rig.seal(flags, &mut input),
            _ => rig.raw(&mut input),
        }
    }
}

/// The SAs between two ends, as one of them sees them.
#[derive(Clone)]
struct Bundle {
    ah: ChildSaParams,
    /// Inside AH, if there is any.
    esp: Option<ChildSaParams>,
    path_mtu: u16,
}

impl Bundle {
    /// Reads three octets.
    fn read(input: &mut Input<'_>) -> Self {
        const UDP: u8 = 2;
        let (flags, more, kind) = (input.u8(), input.u8(), input.u8());
        let shape = Shape::read(&mut Input::new(&[flags & !UDP, more]));
        let hosts = shape.near(&near_hosts(), &far_hosts());
        let mode = |number| if bit(kind, number) { Mode::Transport } else { Mode::Tunnel };
        let inner = if mode(0) == Mode::Transport { between_ends(&hosts, 0) } else { hosts.clone() };
        let mac = Mac::ALL[usize::from(kind >> 3) % Mac::ALL.len()];
        if !bit(kind, 1) {
            return Self { ah: with_ah(inner, mac), esp: None, path_mtu: shape.path_mtu };
        }
        let esp = if mode(2) == Mode::Transport { between_ends(&hosts, 0) } else { hosts.clone() };
        let around = ChildSaParams { mode: mode(0), ..between_ends(&hosts, Protocol::ESP.0) };
        Self { ah: with_ah(around, mac), esp: Some(esp), path_mtu: shape.path_mtu }
    }

    fn mirrored(&self) -> Self {
        let esp = self.esp.as_ref().map(ChildSaParams::mirrored);
        Self { ah: self.ah.mirrored(), esp, ..self.clone() }
    }

    /// The SA for the hosts' packets.
    fn inner(&self) -> &ChildSaParams {
        self.esp.as_ref().unwrap_or(&self.ah)
    }

    fn spd(&self) -> Spd {
        let selectors = |params: &ChildSaParams| SelectorPair::new(&params.local_ts, &params.remote_ts);
        let rank = |place| Rank { priority: 0, place, part: 0 };
        let mut spd = Spd::empty();
        let inserted = spd.insert(rank(0), &selectors(self.inner()), Action::Protect(POLICY));
        inserted.expect("the first policy");
        if self.esp.is_some() {
            spd.insert_around(rank(1), &selectors(&self.ah), AROUND).expect("the second");
        }
        spd
    }

    fn gateway(&self) -> Gateway {
        let mut gateway = Gateway::new(self.spd(), [self.ah.local.ip()]);
        let around = self.esp.as_ref().map(|_| (&self.ah, AROUND));
        for (params, policy) in [(self.inner(), POLICY)].into_iter().chain(around) {
            gateway.add_inbound(params, policy, self.path_mtu);
            let numbers = SequenceBlock::whole(params.esn);
            gateway.add_outbound(params, policy, numbers, self.path_mtu);
        }
        gateway
    }
}

/// In transport mode, for packets of this protocol between the outer addresses.
fn between_ends(tunnel: &ChildSaParams, protocol: u8) -> ChildSaParams {
    let only = |addr: IpAddr| {
        let addrs = AddrRange::new(addr, addr).expect("a range");
        vec![TrafficSelector { protocol, ..TrafficSelector::all(addrs) }]
    };
    let (local_ts, remote_ts) = (only(tunnel.local.ip()), only(tunnel.remote.ip()));
    ChildSaParams { mode: Mode::Transport, local_ts, remote_ts, ..tunnel.clone() }
}

/// The same SA with AH, and its own SPI in another block.
fn with_ah(params: ChildSaParams, mac: Mac) -> ChildSaParams {
    ChildSaParams {
        spi_in: Spi(params.spi_in.0 + 0x1_0000),
        spi_out: Spi(params.spi_out.0 + 0x1_0000),
        algorithm: EspAlgorithm::Ah(mac),
        key_in: KeyMaterial(vec![0xc3; mac.key_len()]),
        key_out: KeyMaterial(vec![0xd4; mac.key_len()]),
        ..params
    }
}

/// A packet, and whether its receiver must accept it.
type Made = (Vec<u8>, bool);

/// The content that a sender with the keys has put into AH.
enum Inside {
    /// AH was inserted into this packet.
    Own(Vec<u8>),
    /// Content of this protocol.
    Other(Protocol, Vec<u8>),
    /// ESP with this plaintext, in a packet of this class.
    Esp(Vec<u8>, u8),
}

/// Both ends, and a third one that receives packets forged with the keys of the first.
struct Rig {
    near: Gateway,
    far: Gateway,
    victim: Gateway,
    bundle: Bundle,
    mac: Mac,
    /// Of the next forged packet.
    number: u64,
}

impl Rig {
    fn read(input: &mut Input<'_>) -> Self {
        let bundle = Bundle::read(input);
        let mac = bundle.ah.algorithm.integrity().expect("AH is integrity");
        let far = bundle.mirrored();
        Self { near: bundle.gateway(), far: far.gateway(), victim: far.gateway(), bundle, mac, number: 1 }
    }

    /// A packet from this end's side to the other's, with correct headers: `packet`.
    fn packet(&self, mode: Mode, input: &mut Input<'_>) -> Vec<u8> {
        let mut packet = input.padded_chunk(LONGEST);
        let v6 = ip::version(&packet) == Some(6);
        match mode {
            Mode::Tunnel => repair::addresses(&mut packet, host(v6, 1, 2), host(v6, 2, 2)),
            Mode::Transport => {
                let ah = &self.bundle.ah;
                repair::addresses(&mut packet, ah.local.ip(), ah.remote.ip());
            }
        }
        repair::length(&mut packet);
        repair::checksum(&mut packet);
        packet
    }

    /// A host's packet: `packet | at:16 | mask:8 | noise`. In transit one octet is changed, which
    /// must be detected, and then everything that routers may change, which must not matter.
    fn send(&mut self, flags: u8, input: &mut Input<'_>) {
        let inner = self.bundle.inner().mode;
        let packet = self.packet(inner, input);
        let (at, mask, noise) = (input.u16(), input.u8(), input.chunk());
        let ingress = if bit(flags, 2) { Ingress::Port } else { Ingress::Host };
        let given = Given { packet: packet.clone(), ingress, room: ROOMY };
        let (verdict, sent) = self.near.run(Way::Outbound, &[given]).remove(0);
        if !is_forwarded(verdict) {
            return;
        }
        assert!(inner == Mode::Tunnel || ingress != Ingress::Port, "only what the host sends itself");
        let place = place(&sent).expect("AH in what was protected");
        if bit(flags, 0) {
            self.damage(&sent, place, at.into(), mask);
        }
        let noise = noise_of(&sent, place, noise);
        let routed = with_noise(&sent, &noise);
        let done = arrive(&mut self.far, &routed);
        if self.is_early(&done, &packet) {
            return;
        }
        let hops = u8::from(ingress == Ingress::Port);
        match inner {
            Mode::Tunnel => came_through(&packet, &done, hops),
            // Its own AH header is gone.
            Mode::Transport if self.bundle.ah.mode == Mode::Tunnel => came_as_it_was(&packet, &done),
            Mode::Transport => came_as_it_was(&with_noise(&packet, &noise), &done),
        }
        if self.bundle.ah.replay_window > 0 {
            let (again, _) = arrive(&mut self.far, &routed);
            assert_eq!(again, Verdict::Drop(DropReason::Replayed));
        }
    }

    /// ESP without an SA waits for it, and so does AH around it: then AH's window has not been
    /// checked.
    fn is_early(&self, (verdict, _): &Done, packet: &[u8]) -> bool {
        let is_early = matches!(verdict, Verdict::Early(_));
        if is_early {
            assert!(self.bundle.esp.is_none(), "both SAs are there");
            let seam = Seam::find(packet).ok().and_then(|seam| seam.protocol(packet));
            assert_eq!(seam, Some(Protocol::ESP));
        }
        is_early
    }

    /// Changes one octet of a packet that AH covers.
    fn damage(&mut self, sent: &[u8], place: usize, at: usize, mask: u8) {
        let mut damaged = sent.to_vec();
        let at = at % damaged.len();
        let unseen = routers::bits(sent, place).get(at).map_or(0, |bits| bits.unseen);
        damaged[at] ^= mask;
        repair::checksum(&mut damaged);
        if mask & !unseen != 0 {
            refused(&arrive(&mut self.far, &damaged));
        }
    }

    /// A packet forged with the keys: `packet | class:8 | next:8 | payload`. In transport mode AH
    /// is inserted into the packet, otherwise between its headers and something else; around ESP
    /// the payload is inside that.
    fn seal(&mut self, flags: u8, input: &mut Input<'_>) {
        let head = self.packet(Mode::Transport, input);
        let (class, next, payload) = (input.u8(), Protocol(input.u8()), input.padded_chunk(LONGEST));
        let made = match self.bundle.esp.clone() {
            Some(esp) => {
                let text = forge::filled(&esp, forge::padded(&payload, next));
                let inside = forge::around(&esp, class, &forge::sealed(&esp, self.number, &text));
                let (bare, _) = arrive(&mut self.victim, &inside);
                assert_eq!(bare, Verdict::Drop(DropReason::NotInAh));
                let made = match self.bundle.ah.mode {
                    Mode::Transport => self.ah_into(&inside, flags),
                    Mode::Tunnel => self.ah_before(&without_class(&head), flags, version(&inside), &inside),
                };
                made.map(|made| (made, Inside::Esp(text, class)))
            }
            None => match self.bundle.ah.mode {
                Mode::Transport => self.ah_into(&head, flags).map(|made| (made, Inside::Own(head))),
                Mode::Tunnel => {
                    let made = self.ah_before(&head, flags, next, &payload);
                    made.map(|made| (made, Inside::Other(next, payload)))
                }
            },
        };
        let Some(((packet, is_whole), inside)) = made else { return };
        self.number += 1;
        let done = arrive(&mut self.victim, &packet);
        if is_whole {
            self.judge(&inside, &packet, &done);
        } else {
            refused(&done);
        }
    }

    /// AH inside a packet.
    fn ah_into(&self, packet: &[u8], flags: u8) -> Option<Made> {
        let seam = Seam::find(packet).ok()?;
        self.ah_before(packet, flags, seam.protocol(packet)?, packet.get(seam.offset()..)?)
    }

    /// The headers of a packet, AH with some words more than it needs, and content after it; and
    /// whether its receiver finds AH there with a correct ICV.
    fn ah_before(&self, head: &[u8], flags: u8, next: Protocol, inside: &[u8]) -> Option<Made> {
        let seam = Seam::find(head).ok()?;
        let (at, v6) = (seam.offset(), ip::version(head) == Some(6));
        let icv_len = self.mac.icv_len();
        let mut header = vec![0; ah::header_len(icv_len, v6) + 4 * usize::from(flags >> 3 & 3)];
        assert!(ah::write(&mut header, next, self.bundle.ah.spi_out.0, self.number as u32));
        let mut packet = [&head[..at], &header, inside].concat();
        let total = packet.len() as u16;
        assert!(seam.name(&mut packet, Protocol::AH, total));
        repair::checksum(&mut packet);
        let key = MacKey::new(self.mac, &self.bundle.ah.key_out.0).expect("a key");
        let mut message = key.begin();
        let covered = ah::cover(&packet, at, icv_len, |octets| message.push(octets));
        if self.bundle.ah.esn {
            message.push(&0u32.to_be_bytes());
        }
        assert!(message.seal(&mut packet[at + ah::HEADER..][..icv_len]));
        let is_for_receiver = v6 == self.bundle.ah.remote.is_ipv6();
        let is_whole = covered.is_ok() && is_for_receiver && place(&packet) == Some(at);
        Some((packet, is_whole))
    }

    fn judge(&self, inside: &Inside, packet: &[u8], done: &Done) {
        let verdict = done.0;
        match inside {
            Inside::Own(packet) => {
                let refused =
                    matches!(verdict, Verdict::Drop(DropReason::MalformedInner | DropReason::FragmentInside));
                if !refused && !self.is_early(done, packet) {
                    came_as_it_was(packet, done);
                }
            }
            Inside::Other(_, inner) if matches!(verdict, Verdict::Early(_)) => {
                let flow =
                    PacketSelector::of_packet(inner, Direction::In).expect("ESP for the gateway itself");
                assert!(flow.protocol() == Protocol::ESP.0 && flow.local() == self.bundle.ah.remote.ip());
            }
            Inside::Other(next, inner) if matches!(*next, Protocol::IPV4 | Protocol::IPV6) => {
                self.judge_text(&forge::padded(inner, *next), class(packet), done);
            }
            Inside::Other(..) => assert_eq!(verdict, Verdict::Drop(DropReason::BadNextHeader)),
            Inside::Esp(text, class) if self.bundle.inner().mode == Mode::Tunnel => {
                self.judge_text(text, *class, done);
            }
            Inside::Esp(..) => {
                use DropReason::{Dummy, FragmentInside, MalformedInner};
                let refused = matches!(verdict, Verdict::Drop(Dummy | FragmentInside | MalformedInner));
                assert!(refused || verdict == Verdict::ToHost, "{verdict:?}");
            }
        }
    }

    fn judge_text(&self, text: &[u8], class: u8, done: &Done) {
        let far = self.bundle.mirrored();
        let inner = far.inner();
        let near = Near {
            selectors: &SelectorPair::new(&inner.local_ts, &inner.remote_ts),
            own: &[inner.local.ip()],
            spd: &far.spd(),
            policy: POLICY,
            sides: [&inner.local_ts, &inner.remote_ts],
            held: &inner.remote_ts,
        };
        Fate::of(text, class, Ingress::Port, &near).check(done);
    }

    /// `repairs:8 | packet`: any packet, from the other end or not.
    fn raw(&mut self, input: &mut Input<'_>) {
        let repairs = input.u8();
        let mut packet = input.padded_chunk(LONGEST);
        if bit(repairs, 0) {
            let ah = &self.bundle.ah;
            repair::addresses(&mut packet, ah.local.ip(), ah.remote.ip());
        }
        if bit(repairs, 1) {
            repair::length(&mut packet);
        }
        if bit(repairs, 2) {
            repair::checksum(&mut packet);
        }
        refused(&arrive(&mut self.victim, &packet));
    }
}

fn arrive(gateway: &mut Gateway, packet: &[u8]) -> Done {
    let given = Given { packet: packet.to_vec(), ingress: Ingress::Port, room: ROOMY };
    gateway.run(Way::Inbound, &[given]).remove(0)
}

fn version(packet: &[u8]) -> Protocol {
    if ip::version(packet) == Some(4) { Protocol::IPV4 } else { Protocol::IPV6 }
}

/// The offset of AH, if it follows next.
fn place(packet: &[u8]) -> Option<usize> {
    if Fragment::parse(packet).ok()?.is_some() {
        return None;
    }
    let (protocol, at) = match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse_verified(packet).ok()?;
            (ip.protocol(), ip.header_len())
        }
        _ => {
            let ip = Ipv6::parse(packet).ok()?;
            let upper = ip.upper().ok()?;
            (upper.protocol, ip.total_len() - upper.payload.len())
        }
    };
    (protocol == Protocol::AH).then_some(at)
}

fn class(packet: &[u8]) -> u8 {
    match ip::version(packet) {
        Some(4) => Ipv4::parse(packet).expect("a packet").tos(),
        _ => Ipv6::parse(packet).expect("a packet").traffic_class(),
    }
}

/// With a traffic class of zero.
fn without_class(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    match packet.as_mut_slice() {
        [first, second, ..] if *first >> 4 == 6 => {
            *first &= 0xf0;
            *second &= 0x0f;
        }
        [_, second, ..] => *second = 0,
        _ => {}
    }
    repair::checksum(&mut packet);
    packet
}

/// The changes to the octets before AH: from the input, limited to what routers may change.
fn noise_of(sent: &[u8], place: usize, noise: &[u8]) -> Vec<u8> {
    let free = routers::bits(sent, place).into_iter().map(|bits| bits.free);
    free.zip(noise.iter().chain(std::iter::repeat(&0))).map(|(free, noise)| free & noise).collect()
}

fn with_noise(packet: &[u8], noise: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet.iter_mut().zip(noise).for_each(|(octet, noise)| *octet ^= noise);
    repair::checksum(&mut packet);
    packet
}

/// To a host behind the other end, this many hops later.
fn came_through(packet: &[u8], (verdict, got): &Done, hops: u8) {
    let ttl = match ip::version(packet) {
        Some(4) => packet[8],
        _ => packet[7],
    };
    if ttl - hops <= 1 {
        let expired = matches!(verdict, Verdict::Reply | Verdict::Drop(DropReason::TtlExceeded));
        return assert!(expired, "{verdict:?}");
    }
    assert_eq!(*verdict, Verdict::Forward);
    same_but_for_routing(packet, got, hops + 1);
}

/// To the other end itself.
fn came_as_it_was(packet: &[u8], (verdict, got): &Done) {
    assert_eq!(*verdict, Verdict::ToHost);
    let flow = PacketSelector::of_packet(packet, Direction::Out).expect("a packet");
    // A segment that opens a connection may ask for less.
    if flow.protocol() == Protocol::TCP.0 {
        assert_eq!(got.len(), packet.len());
    } else {
        assert_eq!(without_class(got), without_class(packet));
    }
}
