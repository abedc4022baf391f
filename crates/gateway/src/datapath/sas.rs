//! Child SAs, as workers and the control thread share them.

use crate::alarms::SaView;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::spi::{Shard, Spi};
use testudo_crypto::Library;
use testudo_ike::output::{ChildSaId, Path};
use testudo_ipsec::dataplane::Command;
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::{SequenceBlock, Stripe, Stripes, WorkerId};
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::sa::{ChildSaParams, InboundSa, Mss, OutboundSa, SaTotals};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::SelectorPair;
use testudo_ipsec::spd::PolicyId;

/// All Child SAs that the workers have.
#[derive(Default)]
pub(super) struct Sas {
    /// An SA can send only with the numbers that [`Sas::grant`] gives it.
    granted: bool,
    installed: BTreeMap<ChildSaId, Installed>,
    /// Child SAs that send nothing yet, or no more.
    idle: BTreeSet<ChildSaId>,
    /// Child SAs by which one worker alone sends.
    own: BTreeMap<ChildSaId, WorkerId>,
    /// The inbound SPI of the SA that sends in place of each Child SA until its turn comes.
    stand_ins: BTreeMap<ChildSaId, Spi>,
    by_spi: BTreeMap<Spi, ChildSaId>,
    /// By the SPI that the peer chose: two peers may choose the same.
    by_spi_out: BTreeSet<(Spi, ChildSaId)>,
    /// By a hash of the peer's outer address: the SA has the address itself.
    by_remote: BTreeSet<(u64, ChildSaId)>,
    /// Blocks of slots that the workers have.
    slots: BTreeSet<usize>,
    /// Outbound SAs whose policies the workers do not have yet.
    waiting: Vec<(PolicyId, ChildSaId)>,
    /// The numbers of spread Child SAs.
    stripes: BTreeMap<ChildSaId, Numbered>,
}

/// What was agreed for a Child SA.
#[derive(Clone, Copy)]
pub(crate) struct Agreed<'a> {
    pub(crate) params: &'a ChildSaParams,
    /// The negotiated selectors.
    pub(crate) selectors: &'a SelectorPair,
    /// The selectors of its configured child, if that is still loaded.
    pub(crate) configured: Option<&'a SelectorPair>,
    /// How far the MSS of TCP connections is lowered.
    pub(crate) mss: Mss,
    /// True if ICMP errors may pass by the packet that they quote.
    pub(crate) icmp: bool,
    /// How its packets are spread over the nodes of the cluster, if they are.
    pub(crate) spread: Option<Spread>,
}

/// When a new Child SA begins to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// With its policy.
    WithPolicy,
    /// With [`Sas::switch`]: it has the policy of the one that it renews.
    SharedPolicy,
    /// With [`Sas::switch`]. Until then the traffic of its own policy goes through the SA that it
    /// renews: the peer may not be ready (RFC 7296 §2.8).
    After(ChildSaId),
}

/// A Child SA, without the keys, which IKE and the SAs have. There are very many, so what only few
/// of them have is stored apart.
struct Installed {
    inbound: Arc<InboundSa>,
    outbound: Arc<OutboundSa>,
}

/// The numbers of a spread Child SA.
struct Numbered {
    stripes: Arc<Stripes>,
    esn: bool,
}

impl Sas {
    /// No SAs. `granted`: they can send only with the numbers that [`Sas::grant`] gives them.
    pub(super) fn new(granted: bool) -> Self {
        Self { granted, ..Self::default() }
    }

    /// Builds both halves. Workers get the inbound one at once, and the outbound one with its
    /// policy or, if the SA replaces another, with [`Sas::switch`].
    pub(super) fn install(
        &mut self,
        child: ChildSaId,
        policy: PolicyId,
        Agreed { params, selectors, configured, mss, icmp, spread }: Agreed<'_>,
        activation: Activation,
        path_mtu: u16,
        library: Library,
    ) -> Result<Vec<Command>> {
        let inbound = InboundSa::new(params, policy, path_mtu, library)?;
        let inbound = match configured {
            Some(child) => inbound.configured(child),
            None => inbound,
        };
        let numbers = if self.granted { SequenceBlock::EMPTY } else { SequenceBlock::whole(params.esn) };
        let outbound = OutboundSa::new(params, policy, numbers, path_mtu, library)?;
        let (inbound, outbound) = match spread {
            Some(by) => (inbound.spread(), outbound.spread(by)),
            None => (inbound, outbound),
        };
        let (inbound, outbound) =
            (Arc::new(inbound.sharing(selectors)), Arc::new(outbound.sharing(selectors)));
        inbound.set_mss(mss);
        outbound.set_mss(mss);
        inbound.set_icmp(icmp);
        outbound.set_icmp(icmp);
        let mut commands = Vec::new();
        if self.slots.insert(SlotBlock::number_of(params.spi_in)) {
            commands.push(Command::AddSlots(Box::new(SlotBlock::of(params.spi_in))));
        }
        commands.push(Command::AddInbound(Arc::clone(&inbound)));
        match activation {
            Activation::WithPolicy => self.waiting.push((policy, child)),
            Activation::SharedPolicy => {}
            Activation::After(old) => {
                self.waiting.push((policy, old));
                let stand_in = self.installed.get(&old).map(|old| (child, old.inbound.spi()));
                self.stand_ins.extend(stand_in);
            }
        }
        if activation != Activation::WithPolicy {
            self.idle.insert(child);
        }
        if spread.is_some() {
            self.stripes.insert(child, Numbered { stripes: Arc::new(Stripes::new()), esn: params.esn });
        }
        self.by_spi.insert(params.spi_in, child);
        self.by_spi_out.insert((params.spi_out, child));
        self.by_remote.insert((hash(params.remote.ip()), child));
        self.installed.insert(child, Installed { inbound, outbound });
        Ok(commands)
    }

    /// The SA with that inbound SPI has come into use: makes its key schedules, which packets use
    /// from now on.
    pub(super) fn expand_keys(&self, spi: Spi) -> Result<()> {
        let Some(sa) = self.by_spi.get(&spi).and_then(|child| self.installed.get(child)) else {
            return Ok(());
        };
        Ok(sa.inbound.expand_key().and_then(|()| sa.outbound.expand_key())?)
    }

    /// Sends through the SA from the next packet on, or from the moment at which workers have its
    /// policy. The SA before it sends no more, and does not follow a peer that moves. The successor of
    /// a worker's own SA is for that worker, unless it serves all already. That of the SA for all is
    /// for all.
    pub(super) fn switch(&mut self, from: ChildSaId, child: ChildSaId) -> Vec<Command> {
        if self.installed.contains_key(&from) {
            self.idle.insert(from);
        }
        let former = self.own.remove(&from);
        let worker = former.filter(|_| from == child || self.idle.contains(&child));
        let Some(sa) = self.installed.get(&child) else { return Vec::new() };
        let (policy, spi_in) = (sa.outbound.policy(), sa.inbound.spi());
        self.idle.remove(&child);
        self.stand_ins.remove(&child);
        let was_own = self.own.remove(&child).is_some();
        let commands = match (former, worker) {
            (Some(_), None) => return self.leave_worker(from),
            (_, Some(worker)) => {
                self.own.insert(child, worker);
                self.send_now_or_later(policy, child)
            }
            (None, None) => self.send_now_or_later(policy, child),
        };
        // At its worker too, the successor of one that is for all from now on replaces it.
        let cleared = (was_own && worker.is_none()).then_some(Command::ClearOutbound(policy, spi_in));
        cleared.into_iter().chain(commands).collect()
    }

    /// The worker whose own SA this was sends by the one for all.
    fn leave_worker(&self, child: ChildSaId) -> Vec<Command> {
        let own = self.installed.get(&child);
        let cleared = own.map(|sa| Command::ClearOutbound(sa.outbound.policy(), sa.inbound.spi()));
        cleared.into_iter().collect()
    }

    /// What this worker sends of the policy's traffic goes through the SA, and what others send does
    /// not.
    pub(super) fn bind(&mut self, child: ChildSaId, worker: WorkerId) -> Vec<Command> {
        let Some(policy) = self.installed.get(&child).map(|sa| sa.outbound.policy()) else {
            return Vec::new();
        };
        self.own.insert(child, worker);
        self.idle.remove(&child);
        self.send_now_or_later(policy, child)
    }

    fn send_now_or_later(&mut self, policy: PolicyId, child: ChildSaId) -> Vec<Command> {
        if !self.waiting.iter().any(|(waiting, _)| *waiting == policy) {
            return self.send_by(policy, child);
        }
        // It follows the SA that it replaces.
        self.waiting.push((policy, child));
        Vec::new()
    }

    /// The commands for outbound SAs whose policies the workers have by now.
    pub(super) fn take_waiting(&mut self) -> Vec<Command> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.iter().flat_map(|(policy, child)| self.send_by(*policy, *child)).collect()
    }

    /// A policy sends by this SA, at one worker or at all: with its stripes, if it is spread.
    fn send_by(&self, policy: PolicyId, child: ChildSaId) -> Vec<Command> {
        let Some(sa) = self.installed.get(&child) else { return Vec::new() };
        let stripes = self.stripes.get(&child);
        let stripes = stripes.map(|n| Command::SetStripes(policy, sa.inbound.spi(), Arc::clone(&n.stripes)));
        let outbound = Arc::clone(&sa.outbound);
        let set = match self.own.get(&child) {
            Some(worker) => Command::SetOwnOutbound(*worker, policy, outbound),
            None => Command::SetOutbound(policy, outbound),
        };
        [set].into_iter().chain(stripes).collect()
    }

    /// The next numbers of a spread Child SA.
    pub(super) fn add_stripe(&mut self, child: ChildSaId, stripe: Stripe) -> Result<Vec<Command>> {
        let (Some(numbered), Some(sa)) = (self.stripes.get_mut(&child), self.installed.get(&child)) else {
            return Ok(Vec::new());
        };
        numbered.stripes = Arc::new(numbered.stripes.with(stripe, numbered.esn)?);
        if self.idle.contains(&child) || self.waiting.iter().any(|(_, waiting)| *waiting == child) {
            return Ok(Vec::new());
        }
        let stripes = Arc::clone(&numbered.stripes);
        Ok(vec![Command::SetStripes(sa.outbound.policy(), sa.inbound.spi(), stripes)])
    }

    /// The rows behind those that each spread Child SA of a shard has used.
    pub(super) fn next_rows(&self, home: Shard) -> impl Iterator<Item = u64> + '_ {
        let spread = self.stripes.keys().filter_map(|child| self.installed.get(child));
        spread.filter(move |sa| sa.inbound.spi().shard() == home).map(|sa| sa.outbound.next_row())
    }

    /// The inbound halves of the spread Child SAs.
    pub(super) fn spread(&self) -> impl Iterator<Item = &InboundSa> {
        self.stripes.keys().filter_map(|child| self.installed.get(child)).map(|sa| &*sa.inbound)
    }

    /// True if the Child SA is spread over the nodes.
    pub(super) fn is_spread(&self, child: ChildSaId) -> bool {
        self.stripes.contains_key(&child)
    }

    /// The high-water mark of the SA with that inbound SPI.
    pub(super) fn high_water_mark(&self, spi: Spi) -> Option<u64> {
        let sa = self.installed.get(self.by_spi.get(&spi)?)?;
        Some(sa.inbound.window().high_water_mark())
    }

    /// Gives the SA other outer addresses. The worker carries its numbers over.
    pub(super) fn update(&mut self, child: ChildSaId, path: Path, path_mtu: u16) -> Result<Vec<Command>> {
        let Some(sa) = self.installed.get_mut(&child) else { return Ok(Vec::new()) };
        let moved = sa.outbound.moved(path.local, path.remote, path_mtu)?;
        self.by_remote.remove(&(hash(sa.outbound.remote()), child));
        self.by_remote.insert((hash(moved.remote()), child));
        sa.outbound = Arc::new(moved);
        if self.idle.contains(&child) || self.waiting.iter().any(|(_, waiting)| *waiting == child) {
            return Ok(Vec::new());
        }
        let policy = sa.outbound.policy();
        Ok(self.send_by(policy, child))
    }

    /// Packets of the SA with that inbound SPI come from there now. Workers need not report it
    /// again.
    pub(super) fn note_source(&self, spi: Spi, remote: SocketAddr) -> Option<ChildSaId> {
        let child = self.by_spi.get(&spi)?;
        self.installed.get(child)?.inbound.set_known_source(remote);
        Some(*child)
    }

    /// Forgets a Child SA.
    pub(super) fn remove(&mut self, child: ChildSaId) -> Vec<Command> {
        self.waiting.retain(|(_, waiting)| *waiting != child);
        let Some(Installed { inbound, outbound }) = self.installed.remove(&child) else {
            return Vec::new();
        };
        self.idle.remove(&child);
        self.stripes.remove(&child);
        let stand_in = self.stand_ins.remove(&child);
        self.by_spi.remove(&inbound.spi());
        self.by_spi_out.remove(&(outbound.spi(), child));
        self.by_remote.remove(&(hash(outbound.remote()), child));
        let policy = outbound.policy();
        if stand_in.is_some() {
            self.waiting.retain(|(waiting, _)| *waiting != policy);
        }
        let cleared = stand_in.into_iter().chain([inbound.spi()]);
        let cleared = cleared.map(|spi| Command::ClearOutbound(policy, spi));
        let mut commands: Vec<Command> = cleared.chain([Command::RemoveInbound(inbound.spi())]).collect();
        // The worker may have another one, if the peer has made more than there are workers.
        let other = self.own.remove(&child).and_then(|worker| self.own_of(policy, worker));
        commands.extend(other.into_iter().flat_map(|other| self.send_by(policy, other)));
        commands
    }

    /// The newest Child SA by which this worker alone sends a policy's traffic.
    fn own_of(&self, policy: PolicyId, worker: WorkerId) -> Option<ChildSaId> {
        let is_of =
            |child: &ChildSaId| self.installed.get(child).is_some_and(|sa| sa.outbound.policy() == policy);
        let mut own = self.own.iter().rev().filter(|(_, of)| **of == worker).map(|(child, _)| *child);
        own.find(is_of)
    }

    /// The inbound SPI of a Child SA.
    pub(super) fn spi_of(&self, child: ChildSaId) -> Option<Spi> {
        self.installed.get(&child).map(|sa| sa.inbound.spi())
    }

    /// The Child SA of that inbound SPI.
    pub(super) fn by_spi(&self, spi: Spi) -> Option<ChildSaId> {
        self.by_spi.get(&spi).copied()
    }

    /// Has workers report when one direction of a Child SA has carried that much.
    pub(super) fn set_mark(&self, child: ChildSaId, packets: u64, bytes: u64) {
        if let Some(sa) = self.installed.get(&child) {
            sa.inbound.counters().set_mark(packets, bytes);
            sa.outbound.counters().set_mark(packets, bytes);
        }
    }

    /// Sets how far the MSS of TCP connections through a Child SA is lowered.
    pub(super) fn set_mss(&self, child: ChildSaId, mss: Mss) {
        if let Some(sa) = self.installed.get(&child) {
            sa.inbound.set_mss(mss);
            sa.outbound.set_mss(mss);
        }
    }

    /// Sets whether ICMP errors may pass through a Child SA by the packet that they quote.
    pub(super) fn set_icmp(&self, child: ChildSaId, icmp: bool) {
        if let Some(sa) = self.installed.get(&child) {
            sa.inbound.set_icmp(icmp);
            sa.outbound.set_icmp(icmp);
        }
    }

    /// Whether the packet that a router quotes was sent on one of these SAs lately.
    pub(super) fn has_sent(&self, told: &TooBig) -> bool {
        let of_spi = self.by_spi_out.range((told.spi, ChildSaId(0))..=(told.spi, ChildSaId(u64::MAX)));
        of_spi.filter_map(|(_, child)| self.installed.get(child)).any(|sa| sa.outbound.has_sent(told))
    }

    /// Sets the path MTU towards a peer.
    pub(super) fn set_path_mtu(&self, remote: IpAddr, mtu: u16) {
        self.towards(remote).for_each(|sa| sa.set_path_mtu(mtu));
    }

    /// Whether a Child SA has its peer at that address.
    pub(super) fn sends_to(&self, remote: IpAddr) -> bool {
        self.towards(remote).next().is_some()
    }

    /// The Child SAs with a peer at that address.
    fn towards(&self, remote: IpAddr) -> impl Iterator<Item = &Installed> {
        let hash = hash(remote);
        let found = self.by_remote.range((hash, ChildSaId(0))..=(hash, ChildSaId(u64::MAX)));
        let found = found.filter_map(|(_, child)| self.installed.get(child));
        found.filter(move |sa| sa.outbound.remote() == remote)
    }

    /// Routes have changed.
    pub(super) fn set_path_mtus(&self, path_mtu: impl Fn(IpAddr) -> u16) {
        for sa in self.installed.values() {
            sa.set_path_mtu(path_mtu(sa.outbound.remote()));
        }
    }

    /// Gives an SA numbers to send with: from now on, or after the ones that it has.
    pub(super) fn grant(&self, child: ChildSaId, block: SequenceBlock, at_once: bool) -> Result<()> {
        // An SA that has gone meanwhile needs none.
        let Some(sa) = self.installed.get(&child) else { return Ok(()) };
        let numbers = sa.outbound.numbers();
        let granted = if at_once { numbers.advance(block) } else { numbers.follow(block) };
        Ok(granted?)
    }

    /// Skips numbers. False if the SA has fewer.
    pub(super) fn skip(&self, child: ChildSaId, by: u64) -> bool {
        self.installed.get(&child).is_none_or(|sa| sa.outbound.numbers().skip(by))
    }

    /// The high-water marks of a shard's SAs.
    pub(super) fn high_water_marks(&self, shard: Shard) -> impl Iterator<Item = (Spi, u64)> + '_ {
        let of_shard = self.by_spi.range(shard.spis()).filter_map(|(_, child)| self.installed.get(child));
        of_shard.map(|sa| (sa.inbound.spi(), sa.inbound.window().high_water_mark()))
    }

    /// The high-water marks that have moved since the last call.
    pub(super) fn moved_high_water_marks(&self) -> impl Iterator<Item = (Spi, u64)> + '_ {
        self.installed.values().filter_map(|sa| Some((sa.inbound.spi(), sa.inbound.take_high_water_mark()?)))
    }

    /// What a Child SA has received and sent.
    pub(super) fn totals(&self, child: ChildSaId) -> Option<(SaTotals, SaTotals)> {
        let sa = self.installed.get(&child)?;
        Some((sa.inbound.counters().totals(), sa.outbound.counters().totals()))
    }

    /// The number of Child SAs.
    pub(super) fn len(&self) -> usize {
        self.installed.len()
    }

    /// Packets of a Child SA that came behind later ones.
    pub(super) fn late(&self, child: ChildSaId) -> u32 {
        self.installed.get(&child).map_or(0, |sa| sa.inbound.window().late())
    }

    /// An inbound SA, and how many packets it has dropped for that reason.
    pub(super) fn view(&self, spi: Spi, reason: DropReason) -> Option<SaView> {
        let child = *self.by_spi.get(&spi)?;
        let Installed { inbound, outbound } = self.installed.get(&child)?;
        Some(SaView {
            child,
            remote: outbound.remote(),
            dropped: inbound.counters().dropped(reason),
            received: inbound.counters().totals().packets,
            high_water_mark: inbound.window().high_water_mark(),
        })
    }

    /// Packets received and sent, of at most `limit` Child SAs behind this one.
    pub(super) fn packets_of_some(&self, behind: Option<ChildSaId>, most: usize) -> Vec<SaPackets> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let packets = |(child, sa): (&ChildSaId, &Installed)| SaPackets {
            child: *child,
            shard: sa.inbound.spi().shard(),
            received: sa.inbound.counters().totals().packets,
            sent: sa.outbound.counters().totals().packets,
        };
        self.installed.range((from, Bound::Unbounded)).take(most).map(packets).collect()
    }
}

/// Packets of a Child SA.
pub(crate) struct SaPackets {
    pub(crate) child: ChildSaId,
    pub(crate) shard: Shard,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

fn hash(addr: IpAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    addr.hash(&mut hasher);
    hasher.finish()
}

impl Installed {
    fn set_path_mtu(&self, mtu: u16) {
        // A path too small for even one octet of payload keeps its former value, and packets are
        // dropped as too big.
        if self.outbound.set_path_mtu(mtu).is_err() || self.inbound.set_path_mtu(mtu).is_err() {
            tracing::warn!("the path to {} takes only {mtu} octets", self.outbound.remote());
        }
    }
}

#[cfg(test)]
mod tests;
