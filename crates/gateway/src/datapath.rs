//! The data path as the control thread drives it: filter, ports, TUN, routes, workers.
//!
//! Order is everything here. At the start, shutting comes first: prefixes that an earlier run
//! protected stay in the filter and in the routes until a connection claims them, an operator lets
//! them go, or `--cleanup` takes them away. A policy reaches the filter and the routes before any
//! worker hears of it, and leaves them after. A prefix that stays shut without a policy opens in
//! the filter and in the routes first, and then at the workers.

mod barrier;
pub(crate) mod checksums;
mod cluster;
mod counters;
mod guard;
mod held_mtus;
mod host_tun;
mod inherited;
mod line_rate;
mod opened;
mod outer_mtus;
mod plan;
mod port_mtus;
mod ports;
mod relay;
mod reopen;
mod sas;
mod shut;
mod sources;
mod spread;
mod start;
mod watch;
mod workers;

use crate::error::{Error, Result};
use crate::policies::{Change, Policies};
use checksums::Checksums;
pub(crate) use cluster::ClusterPlan;
use cluster::Clustered;
use guard::Guard;
pub(crate) use held_mtus::{HOLD, Released};
use host_tun::HostTun;
use outer_mtus::OuterMtus;
use port_mtus::PortMtus;
use ports::Ports;
pub(crate) use relay::RelayPeer;
use sas::Sas;
pub(crate) use sas::{Activation, Agreed, SaPackets};
pub(crate) use start::library;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_base::spi::{SenderId, Spi};
use testudo_cluster::member::Flushed;
use testudo_crypto::Library;
use testudo_fastpath::fib::Fib;
use testudo_fastpath::netlink::{FibHandle, Follower, Guard as RouteGuard};
use testudo_fastpath::worker::{WorkerCommand, WorkerEvent as FastEvent};
use testudo_ike::output::{ChildSaId, Path};
use testudo_ipsec::dataplane::{Command, Event, LocalAddrs, PolicyBlock};
use testudo_ipsec::number::WorkerId;
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::sa::Mss;
use testudo_ipsec::spd::PolicyId;
use workers::{WorkerReports, Workers};

/// After a look at all routes, or at all SAs because routes have changed, the next one waits this
/// many times as long as the last one took.
const MIN_REST_FACTOR: u32 = 50;

/// How long a new sender ID takes at most to get to all workers.
const SENDER_RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything below the control thread.
pub(crate) struct DataPath {
    workers: Workers,
    routing: FibHandle,
    /// Ends when this is dropped.
    _follower: Follower,
    fib: Arc<Fib>,
    guard: Guard,
    ports: Ports,
    /// Workers poll the devices of their ports.
    busy_poll: bool,
    /// Entries of each ring of a port.
    ring: u32,
    /// What a node of a cluster has in addition.
    cluster: Option<Clustered>,
    sas: Sas,
    library: Library,
    sender: SenderId,
    /// When the sender ID was last changed because a worker ran low on IVs.
    renewed: Option<Instant>,
    tun: HostTun,
    /// Policies with a number below have places for outbound SAs.
    places: u32,
    /// When housekeeping may ask the kernel for the routes again.
    next_reassertion: Instant,
    mtus: OuterMtus,
    port_mtus: PortMtus,
    checksums: Checksums,
    /// For [`DataPath::is_idle`].
    packets_seen: std::cell::Cell<u64>,
    /// Packets a second that the ports can bring in at most.
    line_rate: u64,
    /// Generation of the table that the workers were sent last.
    fib_sent: Option<u64>,
    /// Generation of the table that filter, routes and SAs have followed.
    followed: Option<u64>,
}

/// Events of workers that the data path does not handle by itself.
pub(crate) enum WorkerEvent {
    /// Traffic between our side and the peer's matches a policy that has no SA.
    NoSa { policy: PolicyId, local: IpAddr, remote: IpAddr },
    /// Authentic ESP of this Child SA comes from there now.
    Source(ChildSaId, SocketAddr),
    /// Something an operator should know.
    Warning(String),
    /// The sequence numbers of a Child SA run low.
    Exhausting(ChildSaId),
    /// A Child SA has reached the mark that [`DataPath::set_mark`] set.
    Carried(ChildSaId),
    /// A node of a cluster runs out of numbers on the SA with that inbound SPI, which sends that
    /// many packets a second.
    NumbersLow(Spi, u64),
    /// A node of a cluster runs out of IVs.
    IvLow,
    /// The workers are done with the packets of shards that were given up, and have accepted
    /// packets up to these numbers.
    Flushed(Flushed),
}

impl DataPath {
    /// Keeps the sockets of IKE out of the protected routes.
    pub(crate) const MARK: u32 = testudo_vici::mark::MARK;

    /// The sender ID of this run (RFC 6054).
    pub(crate) fn sender(&self) -> SenderId {
        self.sender
    }

    /// Routes, neighbours and ports as they are now.
    pub(crate) fn fib(&self) -> &Fib {
        &self.fib
    }

    /// Readable when routes or neighbours have changed.
    pub(crate) fn netlink_fd(&self) -> RawFd {
        self.routing.changed().as_raw_fd()
    }

    /// Readable when a worker has something to tell.
    pub(crate) fn events_fds(&self) -> impl Iterator<Item = RawFd> {
        self.workers.fds()
    }

    /// This machine's addresses, those of the ports first.
    pub(crate) fn local_addresses(&self) -> Vec<IpAddr> {
        // The VIPs come first: peers know them.
        let mut addresses: Vec<IpAddr> =
            self.cluster.iter().flat_map(|cluster| cluster.vips.clone()).collect();
        addresses.extend(self.fib.ports().iter().flat_map(|p| p.addresses.clone()));
        for addr in self.fib.addresses() {
            if !addresses.contains(addr) {
                addresses.push(*addr);
            }
        }
        addresses
    }

    /// Gives a new Child SA to the workers, which can decrypt its packets from now on. Outbound
    /// traffic waits for [`DataPath::set_policies`] or, if the SA replaces another, for
    /// [`DataPath::switch`].
    pub(crate) fn install(
        &mut self,
        child: ChildSaId,
        policy: PolicyId,
        agreed: Agreed<'_>,
        activation: Activation,
    ) -> Result<()> {
        let path_mtu = self.mtus.of(&self.fib, agreed.params.remote.ip());
        let commands = self.sas.install(child, policy, agreed, activation, path_mtu, self.library)?;
        if self.cluster.is_some() {
            // The filter records the highest number from the first packet on, for the node that
            // takes the SA over.
            self.guard.track(agreed.params.spi_in, agreed.spread.is_some())?;
        }
        if activation == Activation::SharedPolicy {
            self.send_all(commands);
        } else {
            // The commands leave with the policies.
            self.queue(commands);
        }
        Ok(())
    }

    /// Outbound traffic of one Child SA goes through another from now on.
    pub(crate) fn switch(&mut self, from: ChildSaId, to: ChildSaId) {
        let commands = self.sas.switch(from, to);
        self.send_all(commands);
    }

    /// What this worker sends of the policy's traffic goes through the Child SA from now on.
    pub(crate) fn bind(&mut self, child: ChildSaId, worker: WorkerId) {
        let commands = self.sas.bind(child, worker);
        self.send_all(commands);
    }

    /// The peer has moved: outbound traffic goes there from now on.
    pub(crate) fn update(&mut self, child: ChildSaId, path: Path) -> Result<()> {
        let path_mtu = self.mtus.of(&self.fib, path.remote.ip());
        let commands = self.sas.update(child, path, path_mtu)?;
        self.send_all(commands);
        Ok(())
    }

    /// Has workers report when one direction of a Child SA has carried that much.
    pub(crate) fn set_mark(&self, child: ChildSaId, packets: u64, bytes: u64) {
        let nodes = self.carriers(child);
        self.sas.set_mark(child, packets.div_ceil(nodes), bytes.div_ceil(nodes));
    }

    /// Sets how far the MSS of TCP connections through a Child SA is lowered.
    pub(crate) fn set_mss(&self, child: ChildSaId, mss: Mss) {
        self.sas.set_mss(child, mss);
    }

    /// Sets whether ICMP errors may pass through a Child SA by the packet that they quote.
    pub(crate) fn set_icmp(&self, child: ChildSaId, icmp: bool) {
        self.sas.set_icmp(child, icmp);
    }

    /// Takes a Child SA from the workers.
    pub(crate) fn remove(&mut self, child: ChildSaId) {
        if self.cluster.is_some()
            && let Some(spi) = self.sas.spi_of(child)
            && let Err(error) = self.guard.untrack(spi)
        {
            tracing::debug!("the filter still records SA {spi}: {error}");
        }
        let commands = self.sas.remove(child);
        self.send_all(commands);
    }

    /// Puts a virtual address on the TUN, by which packets to it and from it pass.
    pub(crate) fn add_address(&mut self, addr: IpAddr) -> Result<()> {
        Ok(self.tun.addresses.add(addr)?)
    }

    /// Takes a virtual address away again.
    pub(crate) fn remove_address(&mut self, addr: IpAddr) -> Result<()> {
        self.tun.addresses.remove(addr)?;
        // With its last IPv4 address an interface loses its IPv4 routes.
        self.reassert_routes();
        Ok(())
    }

    /// Brings filter, routes and workers up to date with the policies, and attaches new outbound
    /// SAs to theirs.
    pub(crate) fn set_policies(&mut self, policies: &mut Policies, change: Change) -> Result<()> {
        // Of what stays shut no policy tells the worker.
        for (prefix, is_shut) in self.guard.take_shut_changes() {
            policies.set_shut(&prefix, is_shut);
        }
        let spd = Arc::new(policies.spd()?.clone());
        if change == Change::Protection {
            let differences = policies.take_differences();
            self.guard.hold(differences, &policies.take_senders(), policies.take_new_homes())?;
        }
        self.make_places(policies.numbers());
        let homes = policies.take_policy_homes().into_iter();
        self.queue(homes.map(|(policy, home)| Command::SetHome(policy, Some(home))));
        // A policy must not be without its SA even for a moment. No SPD that the workers have had
        // names the number of a new policy, so its SA can be attached first.
        let outbound = self.sas.take_waiting();
        self.queue(outbound);
        self.send(Command::SetSpd(spd));
        if change == Change::Protection {
            self.guard.release()?;
            // The workers open a prefix last: if filter or routes fail to, it stays shut.
            if policies.open_released() {
                let spd = Arc::new(policies.spd()?.clone());
                self.send(Command::SetSpd(spd));
            }
        }
        Ok(())
    }

    /// Makes places at the workers for policies with numbers below `numbers`.
    fn make_places(&mut self, numbers: u32) {
        while self.places < numbers {
            let block = PolicyBlock::of(PolicyId(self.places));
            self.places += PolicyBlock::LENGTH;
            self.queue([Command::AddPolicies(Box::new(block))]);
        }
    }

    /// Prefixes of an earlier run that the policies protect too belong to the policies from now on.
    /// True if filter and routes have to be brought up to date.
    pub(crate) fn claim_inherited(&mut self) -> bool {
        self.guard.claim_inherited()
    }

    fn queue(&mut self, commands: impl IntoIterator<Item = Command>) {
        for command in commands {
            self.workers.queue(WorkerCommand::Ipsec(command));
        }
    }

    fn send_all(&mut self, commands: Vec<Command>) {
        self.queue(commands);
        self.flush();
    }

    fn send(&mut self, command: Command) {
        self.queue([command]);
        self.flush();
    }

    fn flush(&mut self) {
        self.workers.flush();
        if let Err(error) = self.move_fence() {
            tracing::error!("{error}");
        }
    }

    /// Takes the events of workers, and frees their garbage.
    pub(crate) fn events(&mut self) -> Vec<WorkerEvent> {
        let WorkerReports { noted, events } = self.workers.reports();
        self.flush();
        let flushed: Vec<_> = noted.into_iter().filter_map(|notes| self.note_flushed(notes)).collect();
        let flushed = flushed.into_iter().map(WorkerEvent::Flushed);
        flushed.chain(events.into_iter().filter_map(|event| self.event(event))).collect()
    }

    fn event(&mut self, event: FastEvent) -> Option<WorkerEvent> {
        match event {
            FastEvent::NeighbourMissing { port, addr } => {
                self.routing.resolve(port, addr);
                None
            }
            FastEvent::PathTooBig { remote, mtu } => {
                // A router may have told a smaller one meanwhile.
                self.sas.set_path_mtu(remote, mtu.min(self.mtus.of(&self.fib, remote)));
                None
            }
            FastEvent::Ipsec(Event::NoSa { policy, packet }) => {
                Some(WorkerEvent::NoSa { policy, local: packet.local(), remote: packet.remote() })
            }
            FastEvent::Ipsec(Event::KeyWanted { spi }) => self.sas.expand_keys(spi).err().map(|error| {
                // Its packets pass all the same, and only cost more.
                WorkerEvent::Warning(format!("SA {spi}: cannot make the schedules of its keys: {error}"))
            }),
            FastEvent::Ipsec(Event::IvLow) => self.iv_low(),
            FastEvent::Ipsec(Event::AddressChanged { spi, remote }) => {
                self.sas.note_source(spi, remote).map(|child| WorkerEvent::Source(child, remote))
            }
            FastEvent::Ipsec(Event::Carried { spi }) => self.sas.by_spi(spi).map(WorkerEvent::Carried),
            FastEvent::Ipsec(Event::SequenceLow { spi, rate }) if self.cluster.is_some() => {
                Some(WorkerEvent::NumbersLow(spi, rate))
            }
            FastEvent::Ipsec(Event::SequenceLow { spi, .. }) => {
                self.sas.by_spi(spi).map(WorkerEvent::Exhausting)
            }
        }
    }

    /// A worker has few IVs left: all workers go on with another sender ID. Others run low at about
    /// the same time, and are covered too. A worker that is still low a little later reports it
    /// again.
    fn iv_low(&mut self) -> Option<WorkerEvent> {
        let now = Instant::now();
        if self.renewed.is_some_and(|at| now.duration_since(at) < SENDER_RENEWAL_TIMEOUT) {
            return None;
        }
        self.renewed = Some(now);
        if self.cluster.is_some() { Some(WorkerEvent::IvLow) } else { self.renew_sender() }
    }

    /// The next incarnation of this node (design: node slot:5 | incarnation:11).
    fn renew_sender(&mut self) -> Option<WorkerEvent> {
        match self.sender.next_incarnation() {
            Some(sender) => {
                self.sender = sender;
                self.send(Command::SetSenderId(sender));
                None
            }
            None => Some(WorkerEvent::Warning("all sender IDs are used: restart testudod".into())),
        }
    }

    /// Routes, addresses or neighbours have changed.
    pub(crate) fn routes_changed(&mut self) -> Result<()> {
        self.routing.acknowledge();
        let fib = self.routing.fib();
        self.follow_ports(&fib);
        if fib.addresses() != self.fib.addresses() {
            let addresses: Arc<LocalAddrs> = Arc::new(fib.addresses().iter().copied().collect());
            self.send(Command::SetLocalAddrs(addresses));
        }
        if self.followed == Some(fib.generation()) {
            return Ok(());
        }
        if fib.ports() != self.fib.ports() {
            self.line_rate = line_rate::of(fib.ports());
        }
        let guarded = self.guard.follow(&fib);
        self.followed = guarded.is_ok().then(|| fib.generation());
        self.fib = Arc::clone(&fib);
        self.mtus.routes_changed();
        self.follow_mtus();
        // The port that can send the largest packets decides.
        if let Some(largest) = self.guard.largest() {
            self.tun.set_mtu(start::tun_mtu(&self.fib).min(largest));
        }
        if self.fib_sent != Some(self.fib.generation()) {
            self.fib_sent = Some(self.fib.generation());
            self.workers.queue(WorkerCommand::Fib(fib));
            self.flush();
        }
        // The workers need the routes all the same: what they send is encrypted, or may pass in
        // clear.
        guarded
    }

    /// Packets a second that the ports can bring in at most.
    pub(crate) fn line_rate(&self) -> u64 {
        self.line_rate
    }

    /// Whether the packet that a router quotes was sent here lately.
    pub(crate) fn has_sent(&self, told: &TooBig) -> bool {
        self.sas.has_sent(told)
    }

    /// Whether a Child SA sends to this peer.
    pub(crate) fn sends_to(&self, remote: IpAddr) -> bool {
        self.sas.sends_to(remote)
    }

    /// At that time a path took no more than `mtu`. True if that is news.
    pub(crate) fn learn_path_mtu(&mut self, at: Duration, remote: IpAddr, mtu: u16) -> bool {
        let smaller = self.mtus.learn(&self.fib, at, remote, mtu);
        if let Some(mtu) = smaller {
            self.sas.set_path_mtu(remote, mtu);
        }
        smaller.is_some()
    }

    /// Once a second.
    pub(crate) fn housekeeping(&mut self) -> Result<()> {
        self.workers.check()?;
        self.flush();
        self.follow_mtus();
        self.mtus.expire(&self.fib, &self.sas);
        self.guard.check_ports(&self.fib);
        self.check_attached();
        if self.next_reassertion <= Instant::now() {
            self.reassert_routes();
        }
        Ok(())
    }

    /// Brings the path MTUs of all SAs up to date, if that is due.
    fn follow_mtus(&mut self) {
        let relays = self.cluster.as_ref().map(|cluster| &cluster.relays);
        self.mtus.follow(&self.fib, &self.sas, relays);
    }

    /// Restores routes that were removed by others.
    fn reassert_routes(&mut self) {
        let begun = Instant::now();
        let routes = RouteGuard::open(start::GUARD, self.tun.ifindex).map_err(Error::from);
        if let Err(error) = routes.and_then(|routes| self.guard.reassert(routes)) {
            tracing::warn!("cannot restore the routes of table 220: {error}");
        }
        // With very many routes this takes long, and IKE waits for it.
        self.next_reassertion = Instant::now() + begun.elapsed() * MIN_REST_FACTOR;
    }

    /// Ends the workers. Filter, TUN and routes stay: without a daemon, protected traffic is
    /// dropped.
    pub(crate) fn stop(self) -> Result<()> {
        let Self { workers, .. } = self;
        workers.stop()
    }
}
