//! Bursts through the pipeline of two gateways, counted by `tests/it/instructions.rs`: `pipeline
//! DIRECTION OCTETS TRAIN BURSTS`, with `TRAIN` packets of a flow one after another. `forged` is
//! the cost of a fragment that waits for others that never come, among as many as possible.

#![allow(missing_docs)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Spi};
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{
    BURST, Command, Config, Dataplane, Ingress, Item, LocalAddrs, PolicyBlock, Sources, Verdict,
};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::reassembly::{Limits, Reassembler};
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::checksum::Sum;
use testudo_wire::fragment::Fragment;
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;
use testudo_wire::{ipv4, udp};

const POLICY: PolicyId = PolicyId(0);
const FRAME: usize = 2048;
const START: usize = 256;
/// Of a fragment: no flow is looked up before the packet is reassembled.
struct Octets;

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

const SOURCES: Sources = Sources { v4: None, v6: None };

fn main() {
    let mut args = std::env::args().skip(1);
    let direction = args.next().unwrap_or_else(|| "out".into());
    let [octets, train, bursts] =
        std::array::from_fn(|_| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(64));
    if direction == "forged" {
        return flood(octets, train, bursts);
    }
    let (mut near, mut far) = (gateway(&tunnel()), gateway(&tunnel().mirrored()));
    let mut memory = vec![0; FRAME * BURST];
    // Caches of flows are warm after the first bursts.
    for burst in 0..bursts + 2 {
        let counted = |this| burst >= 2 && direction == this;
        let mut extents = [(START, octets); BURST];
        for (number, frame) in memory.chunks_exact_mut(FRAME).enumerate() {
            write(&mut frame[START..START + octets], (number / train) as u16);
        }
        through(&mut memory, &mut extents, |items| {
            if counted("out") { counted_outbound(&mut near, items) } else { near.outbound(items, &SOURCES) }
        });
        through(&mut memory, &mut extents, |items| {
            if counted("in") { counted_inbound(&mut far, items) } else { far.inbound(items) }
        });
        assert_eq!(extents[0].1, octets);
    }
}

/// Outbound counts.
#[inline(never)]
fn counted_outbound(dataplane: &mut Dataplane, items: &mut [Item<'_>]) {
    dataplane.outbound(items, &SOURCES);
}

/// Inbound counts.
#[inline(never)]
fn counted_inbound(dataplane: &mut Dataplane, items: &mut [Item<'_>]) {
    dataplane.inbound(items);
}

/// Forged beginnings of packets, `train` of each source, where as many wait as may.
fn flood(octets: usize, train: usize, bursts: usize) {
    let limits = Limits {
        datagrams: 256,
        per_source: 32,
        fragments: 512,
        fragments_per_source: 128,
        octets: 16_000,
        patience: 2000,
        stale: 100,
    };
    let mut reassembler = Reassembler::new(limits, SipKey::new([5; 16]));
    let mut packet = vec![0; octets];
    for number in 0..(bursts + 20) * BURST {
        write(&mut packet, 0);
        packet[4..6].copy_from_slice(&(number as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&[0x20, 0]);
        packet[14..16].copy_from_slice(&((number / train) as u16).to_be_bytes());
        packet[10..12].fill(0);
        let sum = Sum::new().bytes(&packet[..ipv4::HEADER]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        if number < 20 * BURST {
            give(&mut reassembler, &packet)
        } else {
            counted_forged(&mut reassembler, &packet)
        }
    }
    assert_eq!(reassembler.held(), limits.datagrams.min(limits.per_source * BURST.div_ceil(train)));
}

/// Counts of fragments.
#[inline(never)]
fn counted_forged(reassembler: &mut Reassembler<Octets>, packet: &[u8]) {
    give(reassembler, packet);
}

#[inline(always)]
fn give(reassembler: &mut Reassembler<Octets>, packet: &[u8]) {
    let fragment = Fragment::parse(packet).ok().flatten().expect("a fragment");
    assert!(reassembler.add(Octets, fragment, 0, 1, &mut |_, _| ()).is_none());
}

/// A burst of packets where they lie; afterwards `extents` says where they lie then.
fn through(memory: &mut [u8], extents: &mut [(usize, usize); BURST], work: impl FnOnce(&mut [Item<'_>])) {
    let mut items: Vec<Item<'_>> = memory
        .chunks_exact_mut(FRAME)
        .zip(extents.iter())
        .filter_map(|(frame, (start, len))| PacketBuf::new(frame, *start, *len))
        .map(|buf| Item::new(buf, Ingress::Port))
        .collect();
    work(&mut items);
    for (item, extent) in items.iter().zip(extents) {
        assert_eq!(item.verdict, Verdict::Forward);
        *extent = (item.buf.start(), item.buf.len());
    }
}

/// A UDP packet of a flow.
fn write(packet: &mut [u8], flow: u16) {
    let header = ipv4::Fields {
        tos: 0,
        total_len: packet.len() as u16,
        id: 0,
        df: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(10, 1, 0, 10),
        dst: Ipv4Addr::new(10, 2, 0, 20),
    };
    packet[..ipv4::HEADER].copy_from_slice(&header.to_bytes());
    let datagram = packet.len() - ipv4::HEADER;
    let header = udp::header(40_000 + flow, 9, datagram as u16);
    packet[ipv4::HEADER..][..udp::HEADER].copy_from_slice(&header);
    packet[ipv4::HEADER + udp::HEADER..].fill(0x55);
}

fn tunnel() -> ChildSaParams {
    let selector = |net: u8| {
        let (start, end) = (Ipv4Addr::new(10, net, 0, 0), Ipv4Addr::new(10, net, 255, 255));
        AddrRange::new(start.into(), end.into()).map(TrafficSelector::all).into_iter().collect()
    };
    let end = |host| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)), 0);
    ChildSaParams {
        spi_in: Spi(0x0012_3456),
        spi_out: Spi(0x0065_4321),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![0x11; 20]),
        key_out: KeyMaterial(vec![0x22; 20]),
        esn: true,
        replay_window: 1024,
        local_ts: selector(1),
        remote_ts: selector(2),
        local: end(1),
        remote: end(2),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    }
}

fn gateway(params: &ChildSaParams) -> Dataplane {
    let policy = Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(POLICY),
    };
    // The same on every machine; what the cipher takes is not counted.
    let library = Library::AwsLc;
    let own: LocalAddrs = [params.local.ip()].into_iter().collect();
    let inbound = InboundSa::new(params, POLICY, 1500, library).unwrap();
    let outbound = OutboundSa::new(params, POLICY, SequenceBlock::whole(params.esn), 1500, library).unwrap();
    inbound.expand_key().unwrap();
    outbound.expand_key().unwrap();
    let mut dataplane = Dataplane::new(&Config::new(WorkerId::new(0).unwrap(), SenderId(1), 0x5EED));
    dataplane.set_now(1);
    for command in [
        Command::SetLocalAddrs(Arc::new(own)),
        Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))),
        Command::SetSpd(Arc::new(Spd::new(vec![policy]).unwrap())),
        Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))),
        Command::AddInbound(Arc::new(inbound)),
        Command::SetOutbound(POLICY, Arc::new(outbound)),
    ] {
        drop(dataplane.apply(command));
    }
    dataplane
}
