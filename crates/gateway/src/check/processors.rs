//! Workers, and the processors and the memory that they take.

use super::cpu_list::parse;
use super::{Host, Report};
use crate::config::Config;
use crate::privileges;
use crate::queue_assignment::{AssignedWorker, QueueAssignment};
use std::collections::BTreeSet;
use testudo_fastpath::frame::ChunkSize;
use testudo_fastpath::port::{Facts, Queues};

/// The processors of a machine, as the kernel shows them.
struct Processors {
    present: BTreeSet<usize>,
    online: BTreeSet<usize>,
    isolated: BTreeSet<usize>,
    /// Where this process may run.
    allowed: BTreeSet<usize>,
    /// By NUMA node.
    nodes: Vec<(usize, BTreeSet<usize>)>,
}

impl Processors {
    fn of(host: &dyn Host) -> Self {
        let list = |path: &str| host.read(path).map(|text| parse(&text)).unwrap_or_default();
        let status = host.read("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let nodes = list("/sys/devices/system/node/online").into_iter();
        Self {
            present: list("/sys/devices/system/cpu/present"),
            online: list("/sys/devices/system/cpu/online"),
            isolated: list("/sys/devices/system/cpu/isolated"),
            allowed: allowed.map(parse).unwrap_or_default(),
            nodes: nodes
                .map(|node| (node, list(&format!("/sys/devices/system/node/node{node}/cpulist"))))
                .collect(),
        }
    }

    fn node_of(&self, cpu: usize) -> Option<usize> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(node, _)| *node)
    }

    /// Why a worker cannot be pinned to a processor.
    fn refusal(&self, cpu: usize) -> Option<&'static str> {
        // Where the kernel shows nothing, the processor is taken to be there.
        let lacks = |set: &BTreeSet<usize>| !set.is_empty() && !set.contains(&cpu);
        if lacks(&self.present) {
            Some("this machine has no such processor")
        } else if lacks(&self.online) {
            Some("that processor is offline")
        } else if lacks(&self.allowed) {
            Some("this process may not run there (Cpus_allowed_list)")
        } else {
            None
        }
    }
}

pub(super) fn look(config: &Config, ports: &[Option<Facts>], host: &dyn Host, report: &mut Report) {
    let processors = Processors::of(host);
    let queues: Vec<Option<Queues>> =
        ports.iter().map(|facts| facts.as_ref().map(|facts| facts.queues)).collect();
    let assignment = QueueAssignment::with(&queues, config.worker.count, &config.worker.cpus);
    let (workers, online) = (assignment.0.len(), processors.online.len());
    if online > 0 && workers > online {
        report.warn(format!(
            "worker.count: {workers} workers for {online} processors that are online: they take turns, and a packet costs \
             more"
        ));
    }
    for (number, assigned) in assignment.0.iter().enumerate() {
        report.would(run(config, number, assigned, &processors));
        if let Some(cpu) = assigned.cpu {
            look_at_processor(config, Kept { number, assigned, cpu }, &processors, host, report);
        }
    }
    if !config.worker.busy_poll.is_zero() && config.worker.cpus.is_empty() {
        report.warn(
            "worker.busy_poll: workers go on looking at their ports, and keep to no processors of their own: set \
             worker.cpus",
        );
    }
    memory(config, &assignment, ports, host, report);
}

/// A worker that is pinned to a processor.
struct Kept<'a> {
    number: usize,
    assigned: &'a AssignedWorker,
    cpu: usize,
}

fn look_at_processor(
    config: &Config,
    Kept { number, assigned, cpu }: Kept<'_>,
    processors: &Processors,
    host: &dyn Host,
    report: &mut Report,
) {
    if let Some(why) = processors.refusal(cpu) {
        report.warn(format!("worker.cpus: worker {number} cannot keep to processor {cpu}: {why}"));
        return;
    }
    let Some(node) = processors.node_of(cpu) else { return };
    let mut told = BTreeSet::new();
    for (port, _) in &assigned.queues {
        let Some(port) = config.ports.get(usize::from(port.0)) else { continue };
        let interface = &port.interface;
        let of = host.read(&format!("/sys/class/net/{interface}/device/numa_node"));
        // -1: not known.
        let of: Option<usize> = of.and_then(|node| node.trim().parse().ok());
        if let Some(of) = of.filter(|of| *of != node && told.insert(interface)) {
            report.warn(format!(
                "worker.cpus: processor {cpu} of worker {number} is of NUMA node {node}, and {interface} is at node {of}: \
                 its packets cross from one to the other"
            ));
        }
    }
}

/// `run worker 0 on processor 1 (isolated), with 3 AF_XDP sockets: queues 0 2 of eth0, 0 of eth1`.
fn run(config: &Config, number: usize, assigned: &AssignedWorker, processors: &Processors) -> String {
    let place = match assigned.cpu {
        None => "wherever there is a processor".to_owned(),
        Some(cpu) if processors.isolated.contains(&cpu) => format!("on processor {cpu} (isolated)"),
        Some(cpu) => format!("on processor {cpu}"),
    };
    let of_port = |(index, port): (usize, &crate::config::PortConfig)| {
        let mine = assigned.queues.iter().filter(|(of, _)| usize::from(of.0) == index);
        let queues: Vec<String> = mine.map(|(_, queue)| queue.to_string()).collect();
        (!queues.is_empty()).then(|| format!("{} of {}", queues.join(" "), port.interface))
    };
    let queues: Vec<String> = config.ports.iter().enumerate().filter_map(of_port).collect();
    match assigned.queues.len() {
        0 if assigned.carries => {
            format!(
                "run worker {number} {place}, without queues while the interfaces of its ports are missing"
            )
        }
        0 => format!("run worker {number} {place}, without queues: it helps the others"),
        1 => format!("run worker {number} {place}, with 1 AF_XDP socket: queue {}", queues.join(", ")),
        sockets => {
            format!(
                "run worker {number} {place}, with {sockets} AF_XDP sockets: queues {}",
                queues.join(", ")
            )
        }
    }
}

/// The frames of workers are locked memory.
fn memory(
    config: &Config,
    assignment: &QueueAssignment,
    ports: &[Option<Facts>],
    host: &dyn Host,
    report: &mut Report,
) {
    // An interface that is missing may come, and is given its MTU then.
    let configured = config.ports.iter().filter_map(|port| Some(u32::from(port.mtu.as_ref()?.octets)));
    let mtu = ports.iter().flatten().map(|facts| facts.mtu).chain(configured).max().unwrap_or(1500);
    let chunk = ChunkSize::for_mtu(mtu).unwrap_or(ChunkSize::K4).octets();
    let frames: usize = assignment.0.iter().map(|assigned| assigned.frames(config).single).sum();
    let octets = frames * chunk;
    report.would(format!("lock {} MiB of memory for frames at least", octets >> 20));
    let status = host.read("/proc/self/status").unwrap_or_default();
    if privileges::locks_memory(&status) {
        return;
    }
    let limits = host.read("/proc/self/limits").unwrap_or_default();
    if let Some(limit) = locked_at_most(&limits).filter(|limit| *limit < octets) {
        report.warn(format!(
            "this user may lock {} MiB of memory: raise it (LimitMEMLOCK=infinity in the unit, ulimit -l), or grant \
             CAP_IPC_LOCK",
            limit >> 20
        ));
    }
}

/// The hard limit, in octets. `None`: there is none.
fn locked_at_most(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}
