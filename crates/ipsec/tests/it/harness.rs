//! Two gateways, A and B, with one Child SA pair between them; and what it takes to run packets
//! through them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::spi::{SenderId, Spi};
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{
    Command, Config, Dataplane, Ingress, Item, LocalAddrs, PolicyBlock, Sources, Verdict,
};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::packet::PacketBuf;

/// Room before each packet: more than the longest prefix.
pub(crate) const HEADROOM: usize = 192;
pub(crate) const TAILROOM: usize = 64;
pub(crate) const POLICY: PolicyId = PolicyId(3);
pub(crate) const PATH_MTU: u16 = 1500;

pub(crate) const SPI_A: Spi = Spi(0xa100_0401);
pub(crate) const SPI_B: Spi = Spi(0xb200_0802);

/// Options of the tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub(crate) outer_v6: bool,
    pub(crate) udp: bool,
    pub(crate) esn: bool,
    pub(crate) algorithm: EspAlgorithm,
    pub(crate) library: Library,
    pub(crate) window: u32,
    pub(crate) copy: HeaderCopy,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            outer_v6: false,
            udp: false,
            esn: true,
            algorithm: EspAlgorithm::Aes128Gcm16,
            library: Library::detect(),
            window: 64,
            copy: HeaderCopy::default(),
        }
    }
}

impl Tunnel {
    /// Every combination of outer family, encapsulation and ESN.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|bits| Self {
            outer_v6: bits & 1 != 0,
            udp: bits & 2 != 0,
            esn: bits & 4 != 0,
            ..Self::default()
        })
    }

    pub(crate) fn outer(&self, host: u8) -> IpAddr {
        if self.outer_v6 {
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, u16::from(host)))
        } else {
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))
        }
    }

    /// A's view of the Child SA.
    pub(crate) fn params(&self) -> ChildSaParams {
        let key_len = self.algorithm.key_len();
        ChildSaParams {
            spi_in: SPI_A,
            spi_out: SPI_B,
            algorithm: self.algorithm,
            key_in: KeyMaterial(vec![0xa1; key_len]),
            key_out: KeyMaterial(vec![0xb2; key_len]),
            esn: self.esn,
            replay_window: self.window,
            local_ts: vec![net("10.1.0.0", "10.1.255.255"), net("2001:db8:1::", "2001:db8:1:ffff::")],
            remote_ts: vec![net("10.2.0.0", "10.2.255.255"), net("2001:db8:2::", "2001:db8:2:ffff::")],
            local: SocketAddr::new(self.outer(1), if self.udp { 4500 } else { 0 }),
            remote: SocketAddr::new(self.outer(2), if self.udp { 4500 } else { 0 }),
            encapsulation: if self.udp { Encapsulation::Udp } else { Encapsulation::Plain },
            mode: Mode::Tunnel,
            copy: self.copy,
        }
    }
}

/// All protocols and ports of a range of addresses.
pub(crate) fn net(start: &str, end: &str) -> TrafficSelector {
    TrafficSelector::all(AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap())
}

/// A gateway with one policy and its SA pair.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) plane: Dataplane,
    pub(crate) inbound: Arc<InboundSa>,
    pub(crate) outbound: Arc<OutboundSa>,
}

impl Gateway {
    pub(crate) fn new(params: &ChildSaParams, library: Library) -> Self {
        Self::with_numbers(params, library, SequenceBlock::whole(params.esn))
    }

    pub(crate) fn with_numbers(params: &ChildSaParams, library: Library, numbers: SequenceBlock) -> Self {
        let gateway = Self::unused(params, library, numbers);
        gateway.expand_keys();
        gateway
    }

    /// Executes control's task after the first packets.
    pub(crate) fn expand_keys(&self) {
        self.inbound.expand_key().unwrap();
        self.outbound.expand_key().unwrap();
    }

    /// Before any packet has come: the keys have no schedules.
    pub(crate) fn unused(params: &ChildSaParams, library: Library, numbers: SequenceBlock) -> Self {
        let inbound = InboundSa::new(params, POLICY, PATH_MTU, library).unwrap();
        let outbound = OutboundSa::new(params, POLICY, numbers, PATH_MTU, library).unwrap();
        Self::of(params, inbound, outbound)
    }

    /// The SA of a child that is configured with these selectors.
    pub(crate) fn configured(params: &ChildSaParams, library: Library, child: &SelectorPair) -> Self {
        let inbound = InboundSa::new(params, POLICY, PATH_MTU, library).unwrap();
        let numbers = SequenceBlock::whole(params.esn);
        let outbound = OutboundSa::new(params, POLICY, numbers, PATH_MTU, library).unwrap();
        let gateway = Self::of(params, inbound.configured(child), outbound);
        gateway.expand_keys();
        gateway
    }

    /// A node among several that have a spread SA. It cannot send before it gets stripes.
    pub(crate) fn spread(params: &ChildSaParams, library: Library, by: Spread) -> Self {
        let inbound = InboundSa::new(params, POLICY, PATH_MTU, library).unwrap();
        let outbound = OutboundSa::new(params, POLICY, SequenceBlock::EMPTY, PATH_MTU, library).unwrap();
        let gateway = Self::of(params, inbound.spread(), outbound.spread(by));
        gateway.expand_keys();
        gateway
    }

    fn of(params: &ChildSaParams, inbound: InboundSa, outbound: OutboundSa) -> Self {
        let (inbound, outbound) = (Arc::new(inbound), Arc::new(outbound));
        Self { plane: Self::worker(params, 5, &inbound, &outbound), inbound, outbound }
    }

    /// The data plane of another worker.
    pub(crate) fn another(&self, params: &ChildSaParams, worker: u8) -> Dataplane {
        Self::worker(params, worker, &self.inbound, &self.outbound)
    }

    fn worker(
        params: &ChildSaParams,
        worker: u8,
        inbound: &Arc<InboundSa>,
        outbound: &Arc<OutboundSa>,
    ) -> Dataplane {
        let sender = SenderId(u16::from(params.spi_in == SPI_B) + 1);
        let mut plane = Dataplane::new(&Config::new(WorkerId::new(worker).unwrap(), sender, 0x5eed));
        let own = [params.local.ip(), "10.1.0.1".parse().unwrap(), "2001:db8:1::1".parse().unwrap()];
        plane.apply(Command::SetLocalAddrs(Arc::new(own.into_iter().collect::<LocalAddrs>())));
        let policy = Policy {
            priority: 0,
            local: params.local_ts.clone(),
            remote: params.remote_ts.clone(),
            action: Action::Protect(POLICY),
        };
        set_spd(&mut plane, vec![policy]);
        assert!(plane.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in)))).is_none());
        assert!(plane.apply(Command::AddInbound(inbound.clone())).is_none());
        assert!(plane.apply(Command::SetOutbound(POLICY, outbound.clone())).is_none());
        plane
    }

    pub(crate) fn outbound(&mut self, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        run(&mut self.plane, Way::Outbound, Ingress::Port, packets)
    }

    pub(crate) fn inbound(&mut self, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        run(&mut self.plane, Way::Inbound, Ingress::Port, packets)
    }

    /// Packets dropped for the reason, by the pipeline and by the inbound SA.
    pub(crate) fn dropped_inbound(&self, reason: DropReason) -> (u64, u64) {
        (self.plane.counters().dropped_inbound(reason), self.inbound.counters().dropped(reason))
    }
}

/// A and B, back to back.
pub(crate) fn pair(tunnel: &Tunnel) -> (Gateway, Gateway) {
    let params = tunnel.params();
    (Gateway::new(&params, tunnel.library), Gateway::new(&params.mirrored(), tunnel.library))
}

pub(crate) fn set_spd(plane: &mut Dataplane, policies: Vec<Policy>) {
    let spd = Spd::new(policies).unwrap();
    plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))));
    plane.apply(Command::SetSpd(Arc::new(spd)));
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Outbound,
    Inbound,
    Clear,
}

/// Runs packets through as one call; returns each verdict with what is then in the buffer.
pub(crate) fn run(
    plane: &mut Dataplane,
    way: Way,
    ingress: Ingress,
    packets: &[Vec<u8>],
) -> Vec<(Verdict, Vec<u8>)> {
    run_at(plane, way, ingress, &Sources::default(), packets)
}

/// The same at an interface that has these addresses.
pub(crate) fn run_at(
    plane: &mut Dataplane,
    way: Way,
    ingress: Ingress,
    sources: &Sources,
    packets: &[Vec<u8>],
) -> Vec<(Verdict, Vec<u8>)> {
    let mut frames: Vec<Vec<u8>> =
        packets.iter().map(|packet| [&[0xee; HEADROOM][..], packet, &[0xee; TAILROOM]].concat()).collect();
    let mut items: Vec<Item<'_>> = frames
        .iter_mut()
        .zip(packets)
        .map(|(frame, packet)| Item::new(PacketBuf::new(frame, HEADROOM, packet.len()).unwrap(), ingress))
        .collect();
    match way {
        Way::Outbound => plane.outbound(&mut items, sources),
        Way::Inbound => plane.inbound(&mut items),
        Way::Clear => plane.judge(&mut items, sources),
    }
    items.iter().map(|item| (item.verdict, item.buf.data().to_vec())).collect()
}

/// The packets of a burst that must all have been forwarded.
pub(crate) fn forwarded(results: Vec<(Verdict, Vec<u8>)>) -> Vec<Vec<u8>> {
    let all = results.into_iter().map(|(verdict, packet)| {
        assert_eq!(verdict, Verdict::Forward);
        packet
    });
    all.collect()
}
