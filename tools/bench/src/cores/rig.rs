//! Workers of two gateways in their own threads: some have packets of their own SAs, the others
//! help.

use super::gate::Gate;
use crate::esp::gateway::{Membership, Side, tunnel};
use crate::esp::node::{Link, MTU, Node, SetupError};
use crate::esp::rig::Fault;
use crate::esp::{BURST, Suite, traffic};
use crate::pin::{allowed, pin};
use crate::stopwatch::{PerPacket, Stopwatch, median};
use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};
use testudo_crypto::Library;
use testudo_fastpath::worker::{Sharing, WorkerPool};
use testudo_ipsec::dataplane::Command;

/// Bursts that wait at a port: more than a worker prepares at a time and than its caches hold, so
/// that packets are as far from their owner as from a helper, like those that a network card
/// writes.
const BURSTS: usize = 128;
/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;
/// Idle turns after which a helping worker yields the processor, which others may need.
const IDLE_TURNS: u32 = 64;

/// Nanoseconds without a sign of a helper after which it counts as having no processor: several
/// times the duration of a burst.
const ABSENCE: u64 = 50_000;
/// An owner without its processor for longer than this within a stretch was disturbed.
const AWAY: Duration = Duration::from_nanos(ABSENCE);

/// The nodes of a worker at both gateways.
type Ends = [Node; 2];

/// That many workers, of which the first ones have packets.
pub(super) struct Rig {
    owners: Vec<Ends>,
    helpers: Vec<Ends>,
    sent: Vec<u8>,
    expected: Vec<u8>,
}

/// The figures of a round for encryption or decryption.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figure {
    /// Packets of all SAs by the wall clock, the median of the stretches. None if workers wait for
    /// each other's processor: then it would show how the kernel divides the processors.
    pub(super) mpps: Option<f64>,
    /// Processor time per packet: the working time of all workers.
    pub(super) cpu_ns: f64,
    /// Cycles of the time-stamp counter per nanosecond.
    pub(super) cycles_per_ns: Option<f64>,
    /// Fraction of the packets that another worker has processed in the pipeline.
    pub(super) helped: f64,
    /// Fraction of the stretches that count because all workers had a processor. None if there are
    /// not enough processors.
    pub(super) undisturbed: Option<f64>,
}

/// Processors that workers may run on.
pub(super) fn processors() -> usize {
    allowed().map_or(1, |cpus| cpus.len())
}

/// Signs of life of a helper. Stretches in which it had no processor do not count: other processes
/// took it.
#[derive(Debug, Default)]
struct Heartbeat {
    /// Its last sign, in nanoseconds since the round began.
    seen: AtomicU64,
    /// How often it had no processor.
    absences: AtomicU64,
    /// Nanoseconds spent on others' packets, by direction.
    cpu: [AtomicU64; 2],
}

impl Heartbeat {
    fn beat(&self, now: u64) {
        if !self.is_here(now) {
            self.absences.fetch_add(1, Relaxed);
        }
        self.seen.store(now, Release);
    }

    fn is_here(&self, now: u64) -> bool {
        now.saturating_sub(self.seen.load(Acquire)) <= ABSENCE
    }

    /// How often it had no processor; always 0 if that does not count.
    fn absences(&self, crowded: bool) -> u64 {
        if crowded { 0 } else { self.absences.load(Relaxed) }
    }
}

/// One stretch of one owner; times are per packet.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    time: PerPacket,
    /// Beginning and end, since the round began.
    span: [Duration; 2],
    /// Of all workers, in nanoseconds.
    cpu: f64,
    helped: f64,
    is_undisturbed: bool,
}

/// The stretches of one owner, by direction.
type Stretches = [Vec<Stretch>; 2];

impl Rig {
    pub(super) fn new(
        library: Library,
        suite: Suite,
        [workers, sas]: [usize; 2],
        size: u16,
        sharing: Option<Sharing>,
    ) -> Result<Self, SetupError> {
        let sides = [Side::Near, Side::Far];
        let owner = |pools: &[Arc<WorkerPool>; 2]| -> Result<(Ends, [Vec<Command>; 2]), SetupError> {
            let [near, far] = sides.map(|side| tunnel(side, library, suite, Membership::Alone, MTU));
            let tunnels = [near?, far?];
            let node = |end: usize| {
                let node = Node::with_depth(sides[end], &tunnels[end], PACKETS)?;
                Ok::<_, SetupError>(node.in_pool(Arc::clone(&pools[end]), 0))
            };
            Ok(([node(0)?, node(1)?], tunnels))
        };
        // A worker with its own SA needs no help, and gives none.
        let pool_size = if sas > 1 { 1 } else { workers };
        let pool = || WorkerPool::new(pool_size, sharing.unwrap_or(Sharing::Steal));
        let pools: Vec<[Arc<WorkerPool>; 2]> = (0..sas).map(|_| [pool(), pool()]).collect();
        let owners: Vec<_> = pools.iter().map(owner).collect::<Result<_, SetupError>>()?;
        let helper = |index: usize| {
            let node = |end: usize| {
                let node = Node::without_ports(sides[end], &owners[0].1[end], index as u8)?;
                Ok::<_, SetupError>(node.in_pool(Arc::clone(&pools[0][end]), index))
            };
            Ok([node(0)?, node(1)?])
        };
        let helpers = (sas..workers).map(helper).collect::<Result<_, SetupError>>()?;
        Ok(Self {
            owners: owners.into_iter().map(|(ends, _)| ends).collect(),
            helpers,
            sent: traffic::packet(size, traffic::TTL),
            expected: traffic::packet(size, traffic::TTL - 2),
        })
    }

    /// Runs for that long, each worker on its own processor if there are enough. Returns the
    /// figures of encryption and of decryption.
    pub(super) fn round(&mut self, time: Duration) -> Result<[Figure; 2], Fault> {
        let Self { owners, helpers, sent, expected } = self;
        let (sas, workers) = (owners.len(), owners.len() + helpers.len());
        let (begun, crowded) = (Instant::now(), workers > processors());
        let heartbeats: Vec<Heartbeat> = helpers.iter().map(|_| Heartbeat::default()).collect();
        // Owners that wait for a processor cannot keep step, and the beginnings of their stretches
        // do not matter.
        let gate = Gate::of(if crowded { 1 } else { sas }, begun + time);
        let done = AtomicBool::new(false);
        let round = Round { begun, done: &done, crowded, heartbeats: &heartbeats, gate: &gate };
        let (sent, expected) = (sent.as_slice(), expected.as_slice());
        let found: Vec<Result<Stretches, Fault>> = thread::scope(|scope| {
            for ((place, ends), heartbeat) in (sas..).zip(helpers).zip(&heartbeats) {
                scope.spawn(move || {
                    settle(place, workers);
                    help(ends, heartbeat, round);
                });
            }
            let owners = owners.iter_mut().enumerate().map(|(place, ends)| {
                scope.spawn(move || {
                    settle(place, workers);
                    carry(ends, sent, expected, round)
                })
            });
            let threads: Vec<_> = owners.collect();
            let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
            // Not before: an owner may wait until a helper has done what it was chosen for.
            done.store(true, Relaxed);
            ended.into_iter().map(|end| end.expect("no worker panics")).collect()
        });
        let found: Vec<Stretches> = found.into_iter().collect::<Result<_, Fault>>()?;
        let of = |direction: usize| found.iter().map(|both| both[direction].as_slice()).collect::<Vec<_>>();
        Ok([0, 1].map(|direction| Figure::of(&of(direction), crowded)))
    }
}

/// Data that all threads of a round share.
#[derive(Clone, Copy)]
struct Round<'r> {
    begun: Instant,
    /// All workers with packets are done.
    done: &'r AtomicBool,
    /// More workers than processors.
    crowded: bool,
    heartbeats: &'r [Heartbeat],
    gate: &'r Gate,
}

impl Round<'_> {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// How often helpers had no processor. None if one has none now; not checked if there are too
    /// few processors.
    fn absences(&self) -> Option<u64> {
        let now = self.now();
        let absences = |heartbeat: &Heartbeat| {
            (self.crowded || heartbeat.is_here(now)).then(|| heartbeat.absences(self.crowded))
        };
        self.heartbeats.iter().map(absences).sum()
    }

    /// Processor time that helpers have spent on others' packets of a direction, in nanoseconds.
    fn helpers_cpu(&self, direction: usize) -> u64 {
        self.heartbeats.iter().map(|heartbeat| heartbeat.cpu[direction].load(Relaxed)).sum()
    }

    /// Turns a worker until all packets that wait at its ports have left through one.
    fn measure(&self, node: &mut Node, to: Link, direction: usize) -> Stretch {
        let mut watch = Stopwatch::new();
        let (absences, helped, helpers) = (self.absences(), node.helped(), self.helpers_cpu(direction));
        let (before, begun) = (cpu_time(), self.begun.elapsed());
        // A lost packet is detected after the measurement.
        watch.measure(PACKETS, || while node.sent(to) < PACKETS && node.turn_in_pool() {});
        let ended = self.begun.elapsed();
        let own = cpu_time().saturating_sub(before);
        let others = (self.helpers_cpu(direction) - helpers) as f64;
        Stretch {
            time: watch.median(),
            span: [begun, ended],
            cpu: (own.as_nanos() as f64 + others) / PACKETS as f64,
            helped: (node.helped() - helped) as f64 / PACKETS as f64,
            is_undisturbed: absences.is_some()
                && absences == self.absences()
                && (self.crowded || (ended - begun).saturating_sub(own) <= AWAY),
        }
    }
}

/// Binds each worker to a processor, if there are enough, beginning with the last: the first serves
/// most interrupts.
fn settle(place: usize, workers: usize) {
    let cpus = allowed().unwrap_or_default();
    if let Some(cpu) = cpus.iter().rev().nth(place).filter(|_| workers <= cpus.len()) {
        // If the kernel refuses, it chooses the processor itself.
        let _anywhere = pin(Some(*cpu));
    }
}

/// The work of a worker with packets: encrypts, transfers, decrypts, compares. Only the turns are
/// measured, together with those of all workers with packets.
fn carry([near, far]: &mut Ends, sent: &[u8], expected: &[u8], round: Round<'_>) -> Result<Stretches, Fault> {
    let mut stretches = Stretches::default();
    let place = round.gate.place();
    loop {
        if !(0..PACKETS).all(|_| near.arrive(Link::Lan, sent)) {
            return Err(Fault::Full);
        }
        place.pass();
        stretches[0].push(round.measure(near, Link::Wan, 0));
        let mut found = 0;
        near.take_sent(Link::Wan, |packet| {
            found += 1;
            far.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
        })?;
        all("encrypting", found)?;
        place.pass();
        stretches[1].push(round.measure(far, Link::Lan, 1));
        found = 0;
        far.take_sent(Link::Lan, |packet| {
            found += 1;
            (packet == expected).then_some(()).ok_or(Fault::Altered)
        })?;
        all("decrypting", found)?;
        if !place.pass() {
            return Ok(stretches);
        }
    }
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    (found == PACKETS).then_some(()).ok_or(Fault::Lost { gateway, found, expected: PACKETS })
}

/// The work of a worker without packets. Only its time on others' packets counts.
fn help(ends: &mut Ends, heartbeat: &Heartbeat, round: Round<'_>) {
    // If all have their own processor, time equals processor time, and is faster to read.
    let spent = || if round.crowded { cpu_time() } else { round.begun.elapsed() };
    let (mut idle, mut before) = (0, spent());
    while !round.done.load(Relaxed) {
        let mut any = false;
        for (node, cpu) in ends.iter_mut().zip(&heartbeat.cpu) {
            heartbeat.beat(round.now());
            let helped = node.turn_in_pool();
            let now = spent();
            if helped {
                cpu.fetch_add(now.saturating_sub(before).as_nanos() as u64, Relaxed);
            }
            (any, before) = (any || helped, now);
        }
        idle = if any { 0 } else { idle + 1 };
        if round.crowded && idle >= IDLE_TURNS {
            thread::yield_now();
        }
    }
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Figure {
    /// Figures from the stretches of each owner. Stretches of the same index began together, and
    /// count together.
    fn of(owners: &[&[Stretch]], crowded: bool) -> Self {
        let number = owners.iter().map(|stretches| stretches.len()).min().unwrap_or(0);
        let all = (0..number).map(|number| owners.iter().map(move |stretches| &stretches[number]));
        let undisturbed: Vec<_> =
            all.clone().filter(|together| together.clone().all(|one| one.is_undisturbed)).collect();
        let part = undisturbed.len() as f64 / number as f64;
        // Disturbed figures are better than none; the number that counted is reported.
        let counted = if undisturbed.is_empty() { all.collect() } else { undisturbed };
        let each = || counted.iter().flat_map(Clone::clone);
        let mean = |figure: fn(&Stretch) -> f64| each().map(figure).sum::<f64>() / each().count() as f64;
        let clock = |stretch: &Stretch| stretch.time.cycles.map(|cycles| cycles / stretch.time.ns);
        Self {
            mpps: (!crowded).then(|| median(counted.iter().cloned().map(rate))).flatten(),
            cpu_ns: mean(|stretch| stretch.cpu),
            cycles_per_ns: each().find_map(clock),
            helped: mean(|stretch| stretch.helped),
            undisturbed: (!crowded).then_some(part),
        }
    }
}

/// Packets of several owners in millions per second, from the first beginning to the last end.
fn rate<'m>(stretches: impl Iterator<Item = &'m Stretch> + Clone) -> f64 {
    let begun = stretches.clone().map(|stretch| stretch.span[0]).min().unwrap_or_default();
    let ended = stretches.clone().map(|stretch| stretch.span[1]).max().unwrap_or_default();
    (stretches.count() * PACKETS) as f64 / (ended - begun).as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_through_however_many_workers_there_are() {
        let (steal, hash) = (Some(Sharing::Steal), Some(Sharing::Hash { over: 3 }));
        for case in [(1, 1, None), (2, 2, None), (3, 1, steal), (3, 1, hash), (3, 3, None)] {
            let (workers, sas, by) = case;
            let mut rig =
                Rig::new(Library::detect(), Suite::AES128GCM16, [workers, sas], 1000, by).expect("a rig");
            for figure in rig.round(Duration::from_millis(50)).expect("nothing is lost") {
                assert!(figure.mpps.is_none_or(|mpps| mpps > 0.0), "{case:?}: {figure:?}");
                assert_eq!(figure.mpps.is_some(), workers <= processors(), "{case:?}: {figure:?}");
                assert!(figure.cpu_ns > 0.0, "{case:?}: {figure:?}");
                assert!(workers > 1 || figure.helped == 0.0, "{case:?}: {figure:?}");
            }
        }
    }

    /// A stretch between two times in microseconds.
    fn stretch(from: u64, to: u64) -> Stretch {
        let ns = (to - from) as f64 * 1e3 / PACKETS as f64;
        Stretch {
            time: PerPacket { ns, cycles: Some(2.0 * ns) },
            span: [from, to].map(Duration::from_micros),
            cpu: ns,
            helped: 0.0,
            is_undisturbed: true,
        }
    }

    #[track_caller]
    fn assert_rate(owners: &[&[Stretch]], packets: usize, microseconds: f64) {
        let found = Figure::of(owners, false).mpps.expect("a rate");
        let expected = packets as f64 / microseconds;
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn throughput_is_that_of_the_wall_clock() {
        assert_rate(&[&[stretch(0, 1000)]], PACKETS, 1000.0);
        assert_rate(&[&[stretch(0, 1000)], &[stretch(0, 1000)]], 2 * PACKETS, 1000.0);
        // Two that took turns are no faster than one: each had the processor half of the time.
        assert_rate(&[&[stretch(0, 1000)], &[stretch(1000, 2000)]], 2 * PACKETS, 2000.0);
        // The first to finish waits for the other.
        assert_rate(&[&[stretch(0, 1000)], &[stretch(0, 4000)]], 2 * PACKETS, 4000.0);
    }

    #[test]
    fn a_stretch_in_which_one_was_disturbed_counts_for_nobody() {
        let disturbed = |from, to| Stretch { is_undisturbed: false, ..stretch(from, to) };
        let a = [stretch(0, 1000), stretch(5000, 6000), stretch(8000, 9000)];
        let b = [disturbed(0, 4000), stretch(5000, 7000), stretch(8000, 10_000)];
        assert_rate(&[&a, &b], 2 * PACKETS, 2000.0);
        let part = Figure::of(&[&a, &b], false).undisturbed.expect("all may have a processor");
        assert!((part - 2.0 / 3.0).abs() < 1e-9, "{part}");
        // Without others they count.
        assert_rate(&[&a[..1], &b[..1]], 2 * PACKETS, 4000.0);
        assert_eq!(Figure::of(&[&a[..1], &b[..1]], false).undisturbed, Some(0.0));
    }

    #[test]
    fn more_workers_than_processors_have_no_throughput() {
        let (a, b) = ([stretch(0, 1000)], [stretch(1000, 2000)]);
        let figure = Figure::of(&[&a, &b], true);
        assert_eq!((figure.mpps, figure.undisturbed), (None, None));
        assert!((figure.cpu_ns * PACKETS as f64 / 1e6 - 1.0).abs() < 1e-9, "{figure:?}");
    }
}
