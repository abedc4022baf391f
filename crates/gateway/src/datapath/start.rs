//! Building the data path, in the order that never leaves a gap: first what keeps clear text in,
//! then what lets protected packets through.

use super::checksums::Checksums;
use super::guard::Guard;
use super::host_tun::HostTun;
use super::outer_mtus::OuterMtus;
use super::port_mtus::PortMtus;
use super::ports::{PortLine, Ports};
use super::sas::Sas;
use super::spread;
use super::workers::{Bay, Running, Workers};
use super::{ClusterPlan, DataPath, line_rate};
use crate::clock::time_of_day;
use crate::config::{Cipher, Config, PortConfig, XdpMode};
use crate::error::{Error, Result};
use crate::queue_assignment::{AssignedWorker, QueueAssignment, WorkerFrames};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use testudo_base::spi::SenderId;
use testudo_crypto::Library;
use testudo_fastpath::fib::{Fib, PortIndex, PortSet};
use testudo_fastpath::filter::{Filter, FilterPort, Instance, cleanup};
use testudo_fastpath::frame::{FramePool, JUMBO_MTU};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::netlink::{Follower, Guard as RouteGuard, GuardConfig, Interfaces, remove_guard};
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::thread::raise_session;
use testudo_fastpath::tun::{self, Tun};
use testudo_fastpath::vip::host;
use testudo_fastpath::worker::{Fence, PortChanges, Worker, WorkerConfig, WorkerHandle, WorkerPool};
use testudo_ike::suite::Entropy;
use testudo_ipsec::dataplane::{Command, Config as PipelineConfig, Dataplane, LocalAddrs};
use testudo_ipsec::number::WorkerId;

/// The sender ID of a gateway that stands alone: its SAs do not outlive it, so no key meets the IVs
/// of an earlier run.
const FIRST_SENDER: SenderId = SenderId(1);
/// Table and priority that IPsec daemons use on Linux.
pub(super) const GUARD: GuardConfig = GuardConfig { table: 220, priority: 220, mark: DataPath::MARK };

impl DataPath {
    /// Shuts the protected prefixes, then opens ports and starts the workers. A failure leaves
    /// everything but MTUs as it was: shut where an earlier run had shut it. So does a signal that
    /// sets `called` before the workers run; later ones are for the control thread.
    pub(crate) fn start(
        config: &Config,
        assignment: &QueueAssignment,
        cluster: Option<&ClusterPlan<'_>>,
        called: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let library = library(config.worker.cipher)?;
        let instance = Instance::new(&config.instance)?;
        go_on(called)?;
        let filter = Filter::open(&instance)?;
        let inherited = filter.is_inherited();
        let tun = go_on(called).and_then(|()| Ok(Tun::open(&config.tun, MIN_TUN_MTU)?));
        let has_tun = tun.is_ok();
        let built =
            tun.and_then(|tun| Self::build(config, assignment, cluster, called, library, filter, tun));
        built.map_err(|error| match inherited {
            true => error,
            false => match take_away(config, &instance, has_tun) {
                Ok(_) => error,
                Err(cleanup) => Error::LeftBehind { start: Box::new(error), cleanup: Box::new(cleanup) },
            },
        })
    }

    fn build(
        config: &Config,
        assignment: &QueueAssignment,
        cluster: Option<&ClusterPlan<'_>>,
        called: &Arc<AtomicBool>,
        library: Library,
        mut filter: Filter,
        tun: Tun,
    ) -> Result<Self> {
        // An earlier run may have been a node of a cluster.
        let former = filter.vips();
        let selected: BTreeSet<_> = filter.addresses().difference(filter.unselected()).copied().collect();
        let clustered = match cluster {
            Some(plan) => Some(plan.begin(&mut filter, &former)?),
            None => {
                host::set_addresses(&BTreeSet::new(), &former)?;
                filter.set_cluster(None)?;
                None
            }
        };
        let mut host_tun = HostTun::new(&tun, MIN_TUN_MTU)?;
        host_tun.addresses.clear()?;
        // The first table shows them already: frames are made for the largest.
        let port_mtus = PortMtus::of(config);
        port_mtus.set_all()?;
        let follower = Follower::start(interfaces(config, &tun))?;
        let fib = follower.handle().fib();
        go_on(called)?;
        host_tun.mtu = tun_mtu(&fib);
        tun::set_mtu(&config.tun, host_tun.mtu)?;
        let filtered = filter_ports(config, assignment, &fib)?;
        let mut ports = Ports::new(&filtered, Instant::now());
        ports.missing().for_each(PortLine::log);
        let routes = RouteGuard::open(GUARD, tun.ifindex())?;
        let mut guard = Guard::new(filter, selected, routes, filtered, time_of_day())?;
        guard.follow(&fib)?;
        guard.attach()?;

        let checksums = Checksums::of(config);
        let builder = WorkerBuilder {
            config,
            fills: filled_ports(config, &checksums)?,
            fib: &fib,
            sender: clustered.is_none().then_some(FIRST_SENDER),
            fence: clustered.as_ref().map(|clustered| &clustered.fence),
            // At most 64.
            workers: assignment.0.len() as u8,
            called,
        };
        let priority = config.worker.priority;
        if priority > 0
            && let Err(error) = raise_session(priority)
        {
            tracing::warn!(priority, %error, "other sessions come before this one");
        }
        let workers = builder.start(assignment, tun, &mut guard, &mut ports)?;
        let mut this = Self {
            tun: host_tun,
            mtus: OuterMtus::new(),
            port_mtus,
            checksums,
            fib_sent: None,
            followed: None,
            workers: Workers::new(workers),
            routing: follower.handle(),
            _follower: follower,
            guard,
            ports,
            busy_poll: !config.worker.busy_poll.is_zero(),
            ring: config.worker.ring,
            sas: Sas::new(clustered.is_some()),
            cluster: clustered,
            library,
            sender: FIRST_SENDER,
            renewed: None,
            places: 0,
            next_reassertion: Instant::now(),
            packets_seen: std::cell::Cell::new(0),
            line_rate: line_rate::of(fib.ports()),
            fib,
        };
        let addresses: LocalAddrs = this.fib.addresses().iter().copied().collect();
        this.send(Command::SetLocalAddrs(Arc::new(addresses)));
        if let Some(plan) = cluster {
            this.send_all(plan.commands().into());
        }
        if let Some(clustered) = &this.cluster {
            let clock = spread::clock(&clustered.clocks);
            this.send(clock);
        }
        Ok(this)
    }

    /// Takes away all that an instance has left: filter, routes, TUN.
    pub(crate) fn cleanup(config: &Config) -> Result<()> {
        let instance = Instance::new(&config.instance)?;
        let ports = take_away(config, &instance, true)?;
        tracing::info!("removed: filter from {ports} ports, routes, TUN");
        Ok(())
    }
}

/// Takes away the filter, and the TUN with the routes into it. Answers how many ports had the
/// filter.
fn take_away(config: &Config, instance: &Instance, with_tun: bool) -> Result<usize> {
    let cleaned = cleanup(instance)?;
    let configured = config.cluster.iter().flat_map(|cluster| &cluster.vips);
    let vips = cleaned.vips.iter().chain(configured).copied().collect();
    host::set_addresses(&BTreeSet::new(), &vips)?;
    if with_tun {
        remove_guard(&GUARD)?;
        tun::remove(&config.tun)?;
    }
    Ok(cleaned.ports.len())
}

/// A worker's flow cache has 2^17 sets: 16 MiB, of which a gateway with few flows touches little.
/// Flows that find no room cost a look into the policies for each packet, microseconds where there
/// are 100 000.
const FLOW_CACHE_BITS: u32 = 17;

/// Of the TUN before the ports are known, and at least.
const MIN_TUN_MTU: u16 = 1500;

/// The kernel's packets may be as long as the route's port allows. Workers answer packets that are
/// too long for a tunnel. Frames hold no more.
pub(super) fn tun_mtu(fib: &Fib) -> u16 {
    let largest = fib.ports().iter().map(|link| link.mtu).max().unwrap_or(MIN_TUN_MTU);
    // Below 16384.
    largest.clamp(MIN_TUN_MTU, JUMBO_MTU as u16)
}

/// The cipher library that is asked for, if this machine has it.
pub(crate) fn library(cipher: Cipher) -> Result<Library> {
    let library = match cipher {
        Cipher::Auto => Library::detect(),
        Cipher::IpsecMb => Library::IpsecMb,
        Cipher::AwsLc => Library::AwsLc,
    };
    library.available()?;
    Ok(library)
}

/// The ports with their numbers.
fn numbered(config: &Config) -> impl Iterator<Item = (PortIndex, &PortConfig)> {
    config.ports.iter().enumerate().map(|(n, port)| (PortIndex(n as u16), port))
}

fn interfaces(config: &Config, tun: &Tun) -> Interfaces {
    Interfaces {
        ports: numbered(config).map(|(index, port)| (index, port.interface.clone())).collect(),
        tun: Some(tun.name().to_owned()),
    }
}

/// Those whose interfaces were missing when their queues were counted have number 0.
fn filter_ports(config: &Config, assignment: &QueueAssignment, fib: &Fib) -> Result<Vec<FilterPort>> {
    let one = |(index, port): (PortIndex, &PortConfig)| {
        let is_expected =
            assignment.0.iter().flat_map(|assigned| &assigned.queues).any(|(of, _)| *of == index);
        let link = fib.port(index).filter(|link| link.ifindex != 0 && is_expected);
        if is_expected && link.is_none() {
            let PortConfig { place, interface, .. } = port.clone();
            return Err(Error::InterfaceGone { place, interface });
        }
        Ok(FilterPort {
            index,
            name: port.interface.clone(),
            ifindex: link.map_or(0, |link| link.ifindex),
            mac: link.map_or(MacAddr([0; 6]), |link| link.mac),
            cluster_mac: config.cluster.as_ref().map(|cluster| cluster.mac_on(index.0.into())),
            check_source: true,
            allow_generic: port.mode == XdpMode::Generic,
        })
    };
    numbered(config).map(one).collect()
}

/// The ports on which open checksums are filled in.
fn filled_ports(config: &Config, checksums: &Checksums) -> Result<PortSet> {
    let one = |index| -> Result<Option<PortIndex>> { Ok(checksums.are_filled(index)?.then_some(index)) };
    numbered(config).filter_map(|(index, _)| one(index).transpose()).collect()
}

/// What all workers are made from.
struct WorkerBuilder<'a> {
    config: &'a Config,
    fills: PortSet,
    fib: &'a Arc<Fib>,
    sender: Option<SenderId>,
    fence: Option<&'a Arc<Fence>>,
    workers: u8,
    /// A signal asks for the end.
    called: &'a Arc<AtomicBool>,
}

/// A worker before it runs.
struct BuiltWorker {
    worker: Worker<XdpPort, Tun, Dataplane>,
    bay: Option<Bay>,
}

impl WorkerBuilder<'_> {
    /// Opens all ports before the first worker starts: what can fail comes first. Each worker with
    /// ports has a queue of the TUN too.
    fn start(
        &self,
        assignment: &QueueAssignment,
        tun: Tun,
        guard: &mut Guard,
        ports: &mut Ports,
    ) -> Result<Vec<Running>> {
        let mut queues = Vec::new();
        for _ in assignment.0.iter().skip(1).filter(|assigned| assigned.carries) {
            queues.push(tun.another()?);
        }
        let tuns = std::iter::once(tun).chain(queues).map(Some).chain(std::iter::repeat_with(|| None));
        let numbered = (0..).zip(&assignment.0).zip(tuns);
        let mut workers = numbered
            .map(|((id, assigned), tun)| self.worker(id, assigned, tun, guard, ports))
            .collect::<Result<Vec<_>>>()?;
        if workers.len() > 1 {
            let pool = WorkerPool::new(workers.len(), self.config.worker.sharing);
            let indexed = workers.into_iter().enumerate();
            workers = indexed
                .map(|(index, BuiltWorker { worker, bay })| BuiltWorker {
                    worker: worker.in_pool(Arc::clone(&pool), index),
                    bay,
                })
                .collect();
        }
        let run = |(worker, assigned): (_, &AssignedWorker)| self.run(worker, assigned);
        workers.into_iter().zip(&assignment.0).map(run).collect()
    }

    fn run(&self, BuiltWorker { worker, bay }: BuiltWorker, assigned: &AssignedWorker) -> Result<Running> {
        let pipeline = Arc::clone(worker.pipeline().counters());
        let handle = WorkerHandle::spawn(worker)?;
        Ok(Running::new(handle, pipeline, assigned.cpu).with_bay(bay))
    }

    fn worker(
        &self,
        id: u8,
        assigned: &AssignedWorker,
        tun: Option<Tun>,
        guard: &mut Guard,
        all: &mut Ports,
    ) -> Result<BuiltWorker> {
        go_on(self.called)?;
        let (ports, pool) = self.open_ports(assigned)?;
        for (port, (_, queue)) in ports.iter().zip(&assigned.queues) {
            guard.set_socket(*queue, port)?;
            all.add_socket(port.info().index, port.losses());
        }
        let memory = Arc::clone(pool.memory());
        let ports_with = |has: fn(&PortConfig) -> bool| {
            numbered(self.config).filter(move |(_, port)| has(port)).map(|(index, _)| index).collect()
        };
        let settings = WorkerConfig {
            cpu: assigned.cpu,
            priority: self.config.worker.priority,
            busy_poll: self.config.worker.busy_poll,
            unchecked: ports_with(|port| !port.source_check),
            fills: self.fills,
            clear_by_default: ports_with(|port| port.clear_by_default),
            ..WorkerConfig::new(id)
        };
        let pipeline = dataplane(id, self.workers, self.sender)?;
        let worker = Worker::new(settings, ports, tun, pool, Arc::clone(self.fib), pipeline)?;
        let worker = match self.fence {
            Some(fence) => worker.behind(Arc::clone(fence)),
            None => worker,
        };
        if !assigned.carries {
            return Ok(BuiltWorker { worker, bay: None });
        }
        let changes = Arc::new(PortChanges::default());
        let worker = worker.changing(Arc::clone(&changes));
        Ok(BuiltWorker { worker, bay: Some(Bay { memory, changes }) })
    }

    fn open_ports(&self, assigned: &AssignedWorker) -> Result<(Vec<XdpPort>, FramePool)> {
        // An interface that is missing may come, and is given its MTU then.
        let configured = self.config.ports.iter().filter_map(|port| Some(port.mtu.as_ref()?.octets));
        let mtus = self.fib.ports().iter().map(|link| link.mtu).chain(configured);
        let mtu = u32::from(mtus.max().unwrap_or(1500));
        let WorkerFrames { single, jumbo } = assigned.frames(self.config);
        let pool = FramePool::for_mtu(mtu, single, jumbo)?;
        let (octets, huge) = pool.memory().pages();
        let mib = |octets: usize| octets >> 20;
        tracing::info!(mib = mib(octets), on_huge_pages = mib(huge), "memory for frames of a worker");
        let called_off = || Some(Arc::clone(self.called));
        let open = |port| {
            XdpPort::open(&XdpConfig { called_off: called_off(), ..port }, pool.memory()).map_err(Error::from)
        };
        let ports = assigned.ports(self.config).into_iter().map(open).collect::<Result<_>>();
        // Then a queue that was not released yet is no reason.
        go_on(self.called)?;
        Ok((ports?, pool))
    }
}

/// Fails if a signal asks for the end.
fn go_on(called: &AtomicBool) -> Result<()> {
    if called.load(Ordering::Relaxed) { Err(Error::CalledOff) } else { Ok(()) }
}

fn dataplane(worker: u8, workers: u8, sender: Option<SenderId>) -> Result<Dataplane> {
    let worker = WorkerId::new(worker).ok_or(Error::WorkerNumber)?;
    let mut seed = [0; 8];
    crate::entropy::OsEntropy.fill(&mut seed);
    let config = PipelineConfig::new(worker, sender, u64::from_le_bytes(seed));
    Ok(Dataplane::new(&PipelineConfig { workers, flow_bits: FLOW_CACHE_BITS, ..config }))
}
