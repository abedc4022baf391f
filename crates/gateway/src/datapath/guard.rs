//! What keeps clear text in: the prefixes in the filter, the routes into the TUN.
//!
//! Both survive the daemon. A prefix that an earlier run left is *inherited*, and so is one whose
//! connection was unloaded: it stays shut until a connection claims it, or an operator lets it go.

use super::barrier::Barrier;
use super::inherited::{LetGo, Origin};
use super::opened::Opened;
use super::plan::{Host, Planned, Step, Way};
use crate::error::{Error, Result};
use crate::policies::{Abandoned, Difference, NewHome, SenderDifference};
use crate::prefix_map::PrefixMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::prefix::Prefix;
use testudo_base::spi::Spi;
use testudo_fastpath::fib::{Fib, PortIndex, PortLink};
use testudo_fastpath::filter::{
    CounterSet, Filter, FilterCounters, FilterPort, KeptShards, PrefixUses, Reason, XdpMode,
};
use testudo_fastpath::netlink::{Guard as RouteGuard, GuardRoutes};
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::XdpPort;
use testudo_ike::output::UnixTime;
use testudo_ipsec::dataplane::Sample;

/// The filter and the routes of one gateway.
pub(super) struct Guard {
    filter: Filter,
    routes: RouteGuard,
    ports: Vec<FilterPort>,
    opened: Opened,
    barrier: Barrier,
    /// The addresses of this host, and of the cluster.
    addresses: BTreeSet<IpAddr>,
    /// A change that is half done: everything is held back that has to be, and also what need not
    /// be any more.
    under_way: Option<Way>,
    /// False after a change that has failed: filter and routes may differ from what is known.
    settled: bool,
}

impl Guard {
    /// Takes over what an earlier run protected; `selected` are addresses that its policies may
    /// have had on our side.
    pub(super) fn new(
        filter: Filter,
        selected: BTreeSet<IpAddr>,
        routes: RouteGuard,
        ports: Vec<FilterPort>,
        since: UnixTime,
    ) -> Result<Self> {
        let left = filter.prefixes()?;
        let barrier = Barrier::new(left, selected, since);
        Ok(Self {
            filter,
            routes,
            ports,
            opened: Opened::default(),
            barrier,
            addresses: BTreeSet::new(),
            under_way: None,
            settled: false,
        })
    }

    /// Puts the filter on the ports whose interfaces are there.
    pub(super) fn attach(&mut self) -> Result<()> {
        for port in self.ports.iter().filter(|port| port.ifindex != 0) {
            let mode = self.filter.attach(port)?;
            tracing::info!("port {}: filter attached, {mode:?}", port.name);
        }
        Ok(())
    }

    /// Puts the filter on the interface that a port has now.
    pub(super) fn attach_again(&mut self, link: &PortLink) -> Result<XdpMode> {
        let port = self.ports.iter_mut().find(|port| port.index == link.index);
        let port = port.ok_or(Error::NoPort)?;
        (port.ifindex, port.mac) = (link.ifindex, link.mac);
        self.opened.forget(link.index);
        Ok(self.filter.attach(port)?)
    }

    /// The interface of a port is gone.
    pub(super) fn leave(&mut self, index: PortIndex) -> Result<()> {
        self.ports.iter_mut().filter(|port| port.index == index).for_each(|port| port.ifindex = 0);
        self.opened.forget(index);
        Ok(self.filter.forget_gone()?)
    }

    /// The addresses of this host, and of the cluster.
    pub(super) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// The cluster's addresses.
    pub(super) fn vips(&self) -> BTreeSet<IpAddr> {
        self.filter.vips()
    }

    /// How the filter runs on a port. `None` if it is not attached there.
    pub(super) fn mode(&self, port: &FilterPort) -> Option<XdpMode> {
        // An interface that is going just now may not answer any more.
        let mode = if port.ifindex == 0 { Ok(None) } else { self.filter.mode(port) };
        mode.unwrap_or_else(|error| {
            tracing::debug!("port {}: {error}", port.name);
            None
        })
    }

    /// Ports that should have the filter, and have it no more.
    pub(super) fn unattached(&self) -> Vec<PortIndex> {
        let unattached = self.ports.iter().filter(|port| port.ifindex != 0 && self.mode(port).is_none());
        unattached.map(|port| port.index).collect()
    }

    /// Gives the packets of a port's queue to the AF_XDP socket that was opened there.
    pub(super) fn set_socket(&mut self, queue: u16, port: &XdpPort) -> Result<()> {
        let socket = port.fd().ok_or(Error::NoSocket)?;
        self.filter.set_socket(port.info().index, queue, socket)?;
        self.opened.add(port.info());
        Ok(())
    }

    /// The largest packet that some port can send.
    pub(super) fn largest(&self) -> Option<u16> {
        self.opened.largest()
    }

    /// Sets which of the packets that all nodes see this node takes.
    pub(super) fn set_shards(&mut self, kept: KeptShards) -> Result<()> {
        Ok(self.filter.set_shards(kept)?)
    }

    /// Sets until when the kernel gets any of these packets, in nanoseconds of CLOCK_BOOTTIME.
    pub(super) fn set_fence(&mut self, until: u64) -> Result<()> {
        Ok(self.filter.set_fence(until)?)
    }

    /// Drops packets from a source until a time of CLOCK_BOOTTIME.
    pub(super) fn drop_source(&mut self, source: IpAddr, until: Duration) -> Result<()> {
        Ok(self.filter.drop_source(source, until)?)
    }

    /// Lets packets from a source in again.
    pub(super) fn accept_source(&mut self, source: IpAddr) -> Result<()> {
        Ok(self.filter.accept_source(source)?)
    }

    /// Takes the first clear packets that were dropped on a port, because they must be protected.
    pub(super) fn take_clear(&self, name: &str) -> Vec<Sample> {
        let ports = self.ports.iter().filter(|port| port.name == name);
        ports.flat_map(|port| self.filter.take_clear(port.index).unwrap_or_default()).collect()
    }

    /// Has the filter record the highest number that passes for an SA, whoever carries it.
    /// `is_spread`: each packet of the SA is for the carrier of its lane.
    pub(super) fn track(&mut self, spi: Spi, is_spread: bool) -> Result<()> {
        match is_spread {
            true => Ok(self.filter.track_spread(spi.0, 0)?),
            false => Ok(self.filter.track(spi.0, 0)?),
        }
    }

    /// Ends that.
    pub(super) fn untrack(&mut self, spi: Spi) -> Result<()> {
        Ok(self.filter.untrack(spi.0)?)
    }

    /// The highest number that has passed for an SA.
    pub(super) fn seen(&self, spi: Spi) -> Result<Option<u64>> {
        Ok(self.filter.seen(spi.0)?)
    }

    /// Prefixes that an earlier run left and that nobody has claimed.
    pub(super) fn inherited(&self) -> impl Iterator<Item = &Prefix> {
        self.barrier.inherited()
    }

    /// The state of filter and routes, and what they have to hold.
    pub(super) fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// What the filter has counted on a port.
    pub(super) fn counters(&self, port: &FilterPort) -> Result<FilterCounters> {
        Ok(self.filter.counters(CounterSet::Port(port.index))?)
    }

    /// One of the filter's counters for one port.
    pub(super) fn counter(&self, port: &FilterPort, reason: Reason) -> Result<u64> {
        Ok(self.filter.counter(CounterSet::Port(port.index), reason)?)
    }

    /// The ports with the filter.
    pub(super) fn ports(&self) -> &[FilterPort] {
        &self.ports
    }

    /// Holds back all that the policies want held back. What they want no more stays held back
    /// until [`Guard::release`]. Until then, a prefix whose home changes has none.
    pub(super) fn hold(
        &mut self,
        differences: Vec<Difference>,
        senders: &[SenderDifference],
        homes: Vec<NewHome>,
    ) -> Result<()> {
        self.barrier.want(differences);
        self.barrier.carry(senders);
        self.barrier.name(homes);
        self.begin()
    }

    fn begin(&mut self) -> Result<()> {
        self.under_way = None;
        let way = self.barrier.way();
        // If a step fails, the next call begins anew, from what filter and routes really have.
        let was_settled = std::mem::replace(&mut self.settled, false);
        let stay_open = self.unselected().intersection(self.filter.unselected()).copied().collect();
        self.filter.set_unselected(&stay_open)?;
        if was_settled {
            self.lay(&way, |step| step.between)?;
        } else {
            self.lay_anew(&way)?;
        }
        self.settled = true;
        self.under_way = Some(way);
        Ok(())
    }

    /// Holds back no more than what is wanted.
    pub(super) fn release(&mut self) -> Result<()> {
        let Some(way) = self.under_way.take() else { return Ok(()) };
        self.settled = false;
        self.lay(&way, |step| step.after)?;
        self.filter.set_unselected(&self.unselected())?;
        self.settled = true;
        for prefix in self.barrier.arrived(&way) {
            tracing::info!(
                "{prefix} is directly connected: not protected, though a protected prefix covers it"
            );
        }
        Ok(())
    }

    /// Gives up inherited prefixes that the policies hold back by themselves. The policies must be
    /// there to stay: those of a connection that is refused in the end must not take an inherited
    /// prefix along when they go. True if there were any: then filter and routes have to be brought
    /// up to date.
    pub(super) fn claim_inherited(&mut self) -> bool {
        self.barrier.claim()
    }

    /// Keeps prefixes shut that no connection wants held back any more. To be called before
    /// [`Guard::hold`].
    pub(super) fn keep(&mut self, abandoned: &Abandoned, origin: &Origin) {
        self.barrier.keep(abandoned, origin);
    }

    /// Lets a prefix go that stays shut. It opens with the next [`Guard::hold`] and
    /// [`Guard::release`]. `None`: it does not stay shut.
    pub(super) fn let_go(&mut self, prefix: &Prefix) -> Option<LetGo> {
        self.barrier.let_go(prefix)
    }

    /// Takes back what was let go.
    pub(super) fn take_back(&mut self, gone: LetGo) {
        self.barrier.take_back(gone);
    }

    /// Lets our own addresses in a prefix go, as [`Guard::let_go`] does with what is shut.
    pub(super) fn let_own_side_go(&mut self, prefix: &Prefix) -> Option<PrefixMap<Origin>> {
        self.barrier.let_own_side_go(prefix)
    }

    /// Takes back what was let go.
    pub(super) fn take_own_side_back(&mut self, before: PrefixMap<Origin>) {
        self.barrier.take_own_side_back(before);
    }

    /// The prefixes that may have begun to stay shut since the last call, or ceased to, and whether
    /// they do.
    pub(super) fn take_shut_changes(&mut self) -> Vec<(Prefix, bool)> {
        self.barrier.take_shut_changes()
    }

    /// Addresses, links or connected prefixes may have changed.
    pub(super) fn follow(&mut self, fib: &Fib) -> Result<()> {
        let addresses: BTreeSet<IpAddr> = fib.addresses().iter().copied().collect();
        self.filter.set_addresses(&addresses)?;
        self.addresses = self.filter.addresses();
        for port in &mut self.ports {
            if let Some(link) = fib.port(port.index).filter(|link| link.ifindex != 0)
                && link.mac != port.mac
                && link.ifindex == port.ifindex
            {
                port.mac = link.mac;
                self.filter.set_port(port)?;
            }
        }
        if self.barrier.follow(Host::from(fib)) || !self.settled {
            self.begin()?;
        }
        self.release()
    }

    /// The addresses that must be open to clear traffic beside a tunnel for everything.
    fn unselected(&self) -> BTreeSet<IpAddr> {
        self.barrier.unselected(&self.addresses, self.filter.unselected())
    }

    /// Carries out the steps. Routes come before the filter.
    fn lay(&mut self, way: &Way, to: impl Fn(&Step) -> Planned) -> Result<()> {
        let applied = self.barrier.applied();
        let route = |prefix: &Prefix| match way.step(prefix) {
            Some(step) => to(step).route,
            None => applied.routes.get(prefix).copied(),
        };
        let routed = way.steps().filter(|(_, step)| step.is_routed());
        let changed = routed.map(|(prefix, _)| *prefix).collect();
        self.routes.change(&changed, route)?;
        let uses: BTreeMap<_, _> = way.steps().map(|(prefix, step)| (*prefix, to(step).usage)).collect();
        Ok(self.filter.change_prefixes(&uses)?)
    }

    /// Makes filter and routes hold the state between two plans, whatever they have now.
    fn lay_anew(&mut self, way: &Way) -> Result<()> {
        let applied = self.barrier.applied();
        let mut routes: GuardRoutes = (*applied.routes).clone();
        let mut uses: PrefixUses = (*applied.uses).clone();
        for (prefix, Step { between, .. }) in way.steps() {
            routes.remove(prefix);
            routes.extend(between.route.map(|route| (*prefix, route)));
            uses.remove(prefix);
            uses.extend(between.usage.map(|usage| (*prefix, usage)));
        }
        self.routes.set(&routes)?;
        Ok(self.filter.set_prefixes(&uses)?)
    }

    /// Warns of changes that ports cannot follow.
    pub(super) fn check_ports(&mut self, fib: &Fib) {
        self.opened.check(fib);
    }

    /// Restores our rules and routes: a network manager may remove what it does not know.
    pub(super) fn reassert(&mut self, routes: RouteGuard) -> Result<()> {
        self.routes = routes;
        let changes = self.routes.set(&self.barrier.applied().routes)?;
        if changes.set > 0 {
            tracing::warn!("{} routes of table 220 were missing; restored them", changes.set);
        }
        Ok(())
    }
}
