//! A data plane and its control state: the same on a node and on a peer.

use crate::trace::digest;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_crypto::Library;
use testudo_ike::output::{ChildSaId, Path};
use testudo_ipsec::dataplane::{
    Command, Config, Dataplane, Event, Garbage, Ingress, Item, LocalAddrs, PolicyBlock, Sources, Totals,
    Verdict,
};
use testudo_ipsec::number::{SequenceBlock, Stripe, Stripes, WorkerId};
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::packet::PacketBuf;

/// Room before and after a packet.
const HEADROOM_OCTETS: usize = 128;
const PATH_MTU: u16 = 1500;

/// A processed packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The verdict.
    pub verdict: Verdict,
    /// The packet after processing.
    pub packet: Vec<u8>,
}

/// A pipeline with its SAs. Policies have the numbers of their peers.
#[derive(Debug)]
pub struct Plane {
    pipeline: Dataplane,
    installed: BTreeMap<ChildSaId, Installed>,
    by_spi: BTreeMap<Spi, ChildSaId>,
    /// The Child SA that each policy sends with.
    sending: BTreeMap<PolicyId, ChildSaId>,
    /// Child SAs that may send, by rank: the highest one of a policy does.
    started: BTreeSet<(PolicyId, u64, ChildSaId)>,
    slots: BTreeSet<usize>,
}

#[derive(Debug)]
struct Installed {
    inbound: Arc<InboundSa>,
    outbound: Arc<OutboundSa>,
    /// Its numbers, if it is spread over the nodes.
    stripes: Option<Stripes>,
    esn: bool,
    /// Fingerprints of its keys.
    key_in: u64,
    key_out: u64,
    policy: PolicyId,
    place: u64,
}

/// The numbers with which a Child SA sends.
#[derive(Clone, Copy, Debug)]
pub enum Numbers {
    /// A block.
    Block(SequenceBlock),
    /// Stripes: the SA is spread over the nodes.
    Stripes(Spread),
}

/// All traffic of a range of addresses.
pub fn selector(start: Ipv4Addr, end: Ipv4Addr) -> TrafficSelector {
    let addrs = AddrRange::new(start.into(), end.into()).expect("in order");
    TrafficSelector { addrs, protocol: 0, port_start: 0, port_end: u16::MAX }
}

impl Plane {
    /// A pipeline that protects the traffic between each pair of selectors: policy n is the n-th.
    pub fn new(
        addr: Ipv4Addr,
        sender: impl Into<Option<SenderId>>,
        seed: u64,
        policies: &[(TrafficSelector, TrafficSelector)],
    ) -> Self {
        let config =
            Config { flow_bits: 6, ..Config::new(WorkerId::new(0).expect("the first"), sender, seed) };
        let mut pipeline = Dataplane::new(&config);
        let policy = |(number, (local, remote)): (u32, &(TrafficSelector, TrafficSelector))| Policy {
            priority: 0,
            local: vec![*local],
            remote: vec![*remote],
            action: Action::Protect(PolicyId(number)),
        };
        let spd = Spd::new((0..).zip(policies).map(policy).collect()).expect("policies that differ");
        pipeline.apply(Command::AddPolicies(Box::new(PolicyBlock::of(PolicyId(0)))));
        pipeline.apply(Command::SetSpd(Arc::new(spd)));
        let local: LocalAddrs = [IpAddr::V4(addr)].into_iter().collect();
        pipeline.apply(Command::SetLocalAddrs(Arc::new(local)));
        Self {
            pipeline,
            installed: BTreeMap::new(),
            by_spi: BTreeMap::new(),
            sending: BTreeMap::new(),
            started: BTreeSet::new(),
            slots: BTreeSet::new(),
        }
    }

    /// The clock of this host, in milliseconds.
    pub fn set_now(&mut self, milliseconds: u64) {
        self.pipeline.set_now(milliseconds);
    }

    /// Applies a command that only nodes of a cluster get.
    pub fn apply(&mut self, command: Command) -> Option<Garbage> {
        self.pipeline.apply(command)
    }

    /// If shut, it drops all packets.
    pub fn set_open(&mut self, open: bool) {
        self.pipeline.set_open(open);
    }

    /// Changes the sender ID.
    pub fn set_sender(&mut self, sender: SenderId) {
        self.pipeline.apply(Command::SetSenderId(sender));
    }

    /// Installs a Child SA for inbound packets; without `replaces` it also sends.
    pub fn install(
        &mut self,
        child: ChildSaId,
        policy: PolicyId,
        place: u64,
        params: &ChildSaParams,
        numbers: Numbers,
        replaces: Option<ChildSaId>,
    ) {
        let library = Library::AwsLc;
        let (block, spread) = match numbers {
            Numbers::Block(block) => (block, None),
            Numbers::Stripes(spread) => (SequenceBlock::EMPTY, Some(spread)),
        };
        let mut inbound = InboundSa::new(params, policy, PATH_MTU, library).expect("parameters from IKE");
        let mut outbound =
            OutboundSa::new(params, policy, block, PATH_MTU, library).expect("parameters from IKE");
        if let Some(spread) = spread {
            (inbound, outbound) = (inbound.spread(), outbound.spread(spread));
        }
        let (inbound, outbound) = (Arc::new(inbound), Arc::new(outbound));
        if self.slots.insert(SlotBlock::number_of(params.spi_in)) {
            self.pipeline.apply(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
        }
        self.pipeline.apply(Command::AddInbound(Arc::clone(&inbound)));
        let installed = Installed {
            inbound,
            outbound,
            stripes: spread.map(|_| Stripes::new()),
            esn: params.esn,
            key_in: digest(&params.key_in.0),
            key_out: digest(&params.key_out.0),
            policy,
            place,
        };
        self.installed.insert(child, installed);
        self.by_spi.insert(params.spi_in, child);
        if replaces.is_none() {
            self.start(child);
        }
    }

    /// Lets its policy send with this Child SA.
    pub fn start(&mut self, child: ChildSaId) {
        if let Some(Installed { policy, place, .. }) = self.installed.get(&child) {
            self.started.insert((*policy, *place, child));
            self.send_through_the_highest(*policy);
        }
    }

    /// Replaces one Child SA by another for sending.
    pub fn switch(&mut self, from: ChildSaId, to: ChildSaId) {
        if let Some(sa) = self.installed.get(&from) {
            self.started.remove(&(sa.policy, sa.place, from));
        }
        self.start(to);
    }

    fn send_through_the_highest(&mut self, policy: PolicyId) {
        let of_policy = (policy, 0, ChildSaId(0))..=(policy, u64::MAX, ChildSaId(u64::MAX));
        let Some((_, _, child)) = self.started.range(of_policy).next_back() else {
            self.sending.remove(&policy);
            return;
        };
        let child = *child;
        self.sending.insert(policy, child);
        self.set_outbound(child);
    }

    /// Gives the pipeline the outbound half of a Child SA that sends, with its stripes.
    fn set_outbound(&mut self, child: ChildSaId) {
        let Some(sa) = self.installed.get(&child).filter(|sa| self.sending.get(&sa.policy) == Some(&child))
        else {
            return;
        };
        self.pipeline.apply(Command::SetOutbound(sa.policy, Arc::clone(&sa.outbound)));
        if let Some(stripes) = &sa.stripes {
            let stripes = Arc::new(stripes.clone());
            self.pipeline.apply(Command::SetStripes(sa.policy, sa.inbound.spi(), stripes));
        }
    }

    /// Numbers for a spread Child SA.
    pub fn add_stripe(&mut self, child: ChildSaId, stripe: Stripe) {
        let Some(sa) = self.installed.get_mut(&child) else { return };
        let Some(stripes) = &mut sa.stripes else { return };
        *stripes = stripes.with(stripe, sa.esn).expect("a stripe within the SA's numbers");
        self.set_outbound(child);
    }

    /// True if a spread Child SA has numbers for the row that the clock shows.
    pub fn has_numbers(&self, child: ChildSaId, clock: u64) -> bool {
        let Some(sa) = self.installed.get(&child) else { return false };
        sa.stripes.as_ref().is_some_and(|stripes| stripes.cover(sa.outbound.next_row().max(clock)))
    }

    /// The peer has a new address.
    pub fn update(&mut self, child: ChildSaId, path: Path) {
        let Some(sa) = self.installed.get_mut(&child) else { return };
        if let Ok(moved) = sa.outbound.moved(path.local, path.remote, PATH_MTU) {
            sa.outbound = Arc::new(moved);
            self.set_outbound(child);
        }
    }

    /// Removes a Child SA.
    pub fn remove(&mut self, child: ChildSaId) {
        let Some(sa) = self.installed.remove(&child) else { return };
        let spi_in = sa.inbound.spi();
        self.pipeline.apply(Command::ClearOutbound(sa.policy, spi_in));
        self.pipeline.apply(Command::RemoveInbound(spi_in));
        self.started.remove(&(sa.policy, sa.place, child));
        self.send_through_the_highest(sa.policy);
        if self.by_spi.get(&spi_in) == Some(&child) {
            self.by_spi.remove(&spi_in);
        }
    }

    /// Processes a clear packet for a peer. `lane`: the one that it has taken in turn.
    pub fn outbound(&mut self, packet: &[u8], lane: Option<Shard>) -> Done {
        self.run(packet, lane, |pipeline, items| pipeline.outbound(items, &Sources::default()))
    }

    /// Processes a packet from a peer.
    pub fn inbound(&mut self, packet: &[u8]) -> Done {
        self.run(packet, None, Dataplane::inbound)
    }

    fn run(
        &mut self,
        packet: &[u8],
        lane: Option<Shard>,
        with: impl Fn(&mut Dataplane, &mut [Item<'_>]),
    ) -> Done {
        let mut frame = vec![0; packet.len() + 2 * HEADROOM_OCTETS];
        frame[HEADROOM_OCTETS..HEADROOM_OCTETS + packet.len()].copy_from_slice(packet);
        frame[HEADROOM_OCTETS - 1] = lane.map_or(0, |lane| lane.0);
        let ingress = if lane.is_some() { Ingress::InTurn } else { Ingress::Port };
        let buf = PacketBuf::new(&mut frame, HEADROOM_OCTETS, packet.len()).expect("inside");
        let mut items = [Item::new(buf, ingress)];
        with(&mut self.pipeline, &mut items);
        let [item] = items;
        if let Verdict::Early(_) = item.verdict {
            self.pipeline.give_up_early(1);
        }
        Done { verdict: item.verdict, packet: item.buf.data().to_vec() }
    }

    /// The events of the pipeline.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.pipeline.drain_events().collect()
    }

    /// The Child SA with that inbound SPI.
    pub fn by_spi(&self, spi: Spi) -> Option<ChildSaId> {
        self.by_spi.get(&spi).copied()
    }

    /// The inbound half.
    pub fn inbound_sa(&self, child: ChildSaId) -> Option<&InboundSa> {
        self.installed.get(&child).map(|sa| &*sa.inbound)
    }

    /// The outbound half.
    pub fn outbound_sa(&self, child: ChildSaId) -> Option<&OutboundSa> {
        self.installed.get(&child).map(|sa| &*sa.outbound)
    }

    /// The Child SA that a policy sends with.
    pub fn sending(&self, policy: PolicyId) -> Option<ChildSaId> {
        self.sending.get(&policy).copied()
    }

    /// The fingerprint of the key for packets with that outbound SPI to that peer.
    pub fn key_out(&self, spi: u32, to: Ipv4Addr) -> Option<u64> {
        let of = |sa: &&Installed| sa.outbound.spi() == Spi(spi) && sa.outbound.remote() == IpAddr::V4(to);
        self.installed.values().find(of).map(|sa| sa.key_out)
    }

    /// The fingerprint of the key for packets with that inbound SPI.
    pub fn key_in(&self, spi: u32) -> Option<u64> {
        let child = self.by_spi.get(&Spi(spi))?;
        self.installed.get(child).map(|sa| sa.key_in)
    }

    /// All Child SAs, by their inbound SPIs.
    pub fn children(&self) -> impl Iterator<Item = (Spi, ChildSaId)> + '_ {
        self.by_spi.iter().map(|(spi, child)| (*spi, *child))
    }

    /// The counters.
    pub fn totals(&self) -> Totals {
        self.pipeline.counters().totals()
    }

    /// Packets dropped, by reason; only counters that are not zero.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        use testudo_ipsec::drops::DropReason;
        let counters = self.pipeline.counters();
        let each = DropReason::ALL.iter().map(|reason| (reason.name(), counters.dropped(*reason)));
        each.filter(|(_, count)| *count > 0).collect()
    }
}
