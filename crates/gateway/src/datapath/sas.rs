//! Child SAs as the worker and the control thread share them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use testudo_crypto::Library;
use testudo_ike::output::{ChildSaId, Path};
use testudo_ipsec::dataplane::Command;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, InboundSa, OutboundSa, SaTotals};
use testudo_ipsec::sad::SlotTable;
use testudo_ipsec::spd::PolicyId;
use testudo_ipsec::spi::{Share, Spi};

/// All Child SAs that the worker has.
#[derive(Default)]
pub(super) struct Sas {
    installed: BTreeMap<ChildSaId, Installed>,
    shares: BTreeSet<Share>,
    /// Outbound SAs whose policy is not with the worker yet.
    waiting: Vec<ChildSaId>,
}

struct Installed {
    policy: PolicyId,
    params: ChildSaParams,
    inbound: Arc<InboundSa>,
    outbound: Arc<OutboundSa>,
    /// Nothing goes out through it yet, or any more.
    idle: bool,
}

impl Sas {
    /// Builds both halves. The inbound one can be given to the worker at once, the outbound one when its policy stands, or,
    /// if it takes the place of another, when [`Sas::switch`] says so.
    pub(super) fn install(
        &mut self,
        child: ChildSaId,
        policy: PolicyId,
        params: ChildSaParams,
        replaces: bool,
        path: (u16, Library),
    ) -> Result<Vec<Command>, String> {
        let (path_mtu, library) = path;
        let inbound = InboundSa::new(&params, policy, path_mtu, library).map_err(|e| e.to_string())?;
        let numbers = SequenceBlock::whole(params.esn);
        let outbound =
            OutboundSa::new(&params, policy, numbers, path_mtu, library).map_err(|e| e.to_string())?;
        let (inbound, outbound) = (Arc::new(inbound), Arc::new(outbound));
        let mut commands = Vec::new();
        let share = params.spi_in.share();
        if self.shares.insert(share) {
            commands.push(Command::AddShare(Box::new(SlotTable::new(share))));
        }
        commands.push(Command::AddInbound(Arc::clone(&inbound)));
        if !replaces {
            self.waiting.push(child);
        }
        self.installed.insert(child, Installed { policy, params, inbound, outbound, idle: replaces });
        Ok(commands)
    }

    /// Sends through the SA from now on: with the next packet, or, if its policy is not with the worker yet, with that.
    pub(super) fn switch(&mut self, child: ChildSaId) -> Vec<Command> {
        let Some(sa) = self.installed.get_mut(&child) else { return Vec::new() };
        sa.idle = false;
        let (policy, outbound) = (sa.policy, Arc::clone(&sa.outbound));
        let waits = |other: &ChildSaId| self.installed.get(other).is_some_and(|sa| sa.policy == policy);
        if !self.waiting.iter().any(waits) {
            return vec![Command::SetOutbound(policy, outbound)];
        }
        // Behind the one that it replaces.
        self.waiting.push(child);
        Vec::new()
    }

    /// The Child SA that sends with this SPI for that policy.
    pub(super) fn sender(&self, policy: PolicyId, spi: Spi) -> Option<ChildSaId> {
        let found = self.installed.iter().find(|(_, sa)| sa.policy == policy && sa.params.spi_out == spi);
        found.map(|(child, _)| *child)
    }

    /// Outbound SAs whose policies the worker has by now.
    pub(super) fn take_waiting(&mut self) -> Vec<Command> {
        let waiting = std::mem::take(&mut self.waiting);
        let installed = waiting.iter().filter_map(|child| self.installed.get(child));
        installed.map(|sa| Command::SetOutbound(sa.policy, Arc::clone(&sa.outbound))).collect()
    }

    /// Gives the SA other outer addresses. The worker carries its numbers over.
    pub(super) fn update(
        &mut self,
        child: ChildSaId,
        path: Path,
        path_mtu: u16,
        library: Library,
    ) -> Result<Vec<Command>, String> {
        let Some(sa) = self.installed.get_mut(&child) else { return Ok(Vec::new()) };
        let params = ChildSaParams { local: path.local, remote: path.remote, ..sa.params.clone() };
        let moved = sa.outbound.moved(&params, path_mtu, library).map_err(|e| e.to_string())?;
        sa.params = params;
        sa.outbound = Arc::new(moved);
        if sa.idle || self.waiting.contains(&child) {
            return Ok(Vec::new());
        }
        Ok(vec![Command::SetOutbound(sa.policy, Arc::clone(&sa.outbound))])
    }

    /// Forgets a Child SA.
    pub(super) fn remove(&mut self, child: ChildSaId) -> Vec<Command> {
        self.waiting.retain(|waiting| *waiting != child);
        let Some(sa) = self.installed.remove(&child) else { return Vec::new() };
        vec![Command::ClearOutbound(sa.policy, sa.outbound.spi()), Command::RemoveInbound(sa.params.spi_in)]
    }

    /// Paths to a peer take no more than this.
    pub(super) fn set_path_mtu(&self, remote: IpAddr, mtu: u16) {
        for sa in self.installed.values().filter(|sa| sa.params.remote.ip() == remote) {
            sa.set_path_mtu(mtu);
        }
    }

    /// Routes have changed.
    pub(super) fn set_path_mtus(&self, path_mtu: impl Fn(IpAddr) -> u16) {
        for sa in self.installed.values() {
            sa.set_path_mtu(path_mtu(sa.params.remote.ip()));
        }
    }

    /// What came in and went out through a Child SA.
    pub(super) fn totals(&self, child: ChildSaId) -> Option<(SaTotals, SaTotals)> {
        let sa = self.installed.get(&child)?;
        Some((sa.inbound.counters().totals(), sa.outbound.counters().totals()))
    }

    /// What came in and went out, by Child SA.
    pub(super) fn all_totals(&self) -> Vec<(ChildSaId, SaTotals, SaTotals)> {
        let totals = |sa: &Installed| (sa.inbound.counters().totals(), sa.outbound.counters().totals());
        let each = self.installed.iter().map(|(child, sa)| (*child, totals(sa)));
        each.map(|(child, (inbound, outbound))| (child, inbound, outbound)).collect()
    }
}

impl Installed {
    fn set_path_mtu(&self, mtu: u16) {
        // A path too small for even one octet of payload keeps its former value, and packets are dropped as too big.
        if self.outbound.set_path_mtu(mtu).is_err() || self.inbound.set_path_mtu(mtu).is_err() {
            tracing::warn!("the path to {} takes only {mtu} octets", self.params.remote.ip());
        }
    }
}
