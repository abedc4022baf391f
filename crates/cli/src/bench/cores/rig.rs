//! Workers of two gateways on threads of their own: some have packets, each of an SA of its own, the others help.

use crate::bench::esp::gateway::{Side, tunnel};
use crate::bench::esp::node::{Link, MTU, Node, SetupError};
use crate::bench::esp::rig::Fault;
use crate::bench::esp::{BURST, Suite, traffic};
use crate::bench::pin::{allowed, pin};
use crate::bench::stopwatch::{PerPacket, Stopwatch, median};
use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};
use testudo_crypto::Library;
use testudo_fastpath::worker::Crew;
use testudo_ipsec::dataplane::Command;

/// Bursts that wait at a port together: more than a worker lays out at a time, and than its caches hold, so that packets are as far from
/// their owner as from a helper. Those that a network card writes are.
const BURSTS: usize = 128;
/// Packets of one stretch.
const PACKETS: usize = BURST * BURSTS;
/// Turns without work after which a worker that helps leaves the processor to others, who may have none.
const IDLE_TURNS: u32 = 64;

/// Nanoseconds without a sign of a helper after which it has no processor: several times what a burst takes it.
const ABSENCE: u64 = 50_000;

/// What a worker runs: both gateways' ends of what it does.
type Ends = [Node; 2];

/// So many workers, of which the first have packets.
pub(super) struct Rig {
    owners: Vec<Ends>,
    helpers: Vec<Ends>,
    sent: Vec<u8>,
    expected: Vec<u8>,
}

/// Encryption, or decryption, as a round has measured it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figure {
    /// All SAs together, by each owner's median stretch.
    pub(super) mpps: f64,
    /// Processor time of a packet: of all workers, as far as they worked.
    pub(super) cpu_ns: f64,
    /// Of the time-stamp counter, for a nanosecond.
    pub(super) cycles_per_ns: Option<f64>,
    /// Part of the packets that another worker has taken through the pipeline.
    pub(super) helped: f64,
    /// Part of the stretches that count, because all helpers had a processor.
    pub(super) undisturbed: f64,
}

/// What a helper tells of itself. Stretches in which it had no processor do not count: other processes have taken it.
#[derive(Debug, Default)]
struct Pulse {
    /// When it was last seen, in nanoseconds since the round began.
    seen: AtomicU64,
    /// How often it was away.
    absences: AtomicU64,
    /// Nanoseconds on others' packets, by direction.
    cpu: [AtomicU64; 2],
}

impl Pulse {
    fn beat(&self, now: u64) {
        if !self.is_here(now) {
            self.absences.fetch_add(1, Relaxed);
        }
        self.seen.store(now, Release);
    }

    fn is_here(&self, now: u64) -> bool {
        now.saturating_sub(self.seen.load(Acquire)) <= ABSENCE
    }

    /// How often it was away, where that counts.
    fn absences(&self, crowded: bool) -> u64 {
        if crowded { 0 } else { self.absences.load(Relaxed) }
    }
}

/// One stretch of one owner; times are a packet's.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    time: PerPacket,
    /// Of all workers, in nanoseconds.
    cpu: f64,
    helped: f64,
    is_undisturbed: bool,
}

/// Of one owner, one direction after the other.
type Stretches = [Vec<Stretch>; 2];

impl Rig {
    pub(super) fn new(
        library: Library,
        suite: Suite,
        (workers, sas): (usize, usize),
        size: u16,
    ) -> Result<Self, SetupError> {
        let sides = [Side::Near, Side::Far];
        let owner = |crews: &[Arc<Crew>; 2]| -> Result<(Ends, [Vec<Command>; 2]), SetupError> {
            let [near, far] = sides.map(|side| tunnel(side, (library, suite), false, MTU));
            let tunnels = [near?, far?];
            let node = |end: usize| {
                let node = Node::with_depth(sides[end], &tunnels[end], PACKETS)?;
                Ok::<_, SetupError>(node.joining(Arc::clone(&crews[end]), 0))
            };
            Ok(([node(0)?, node(1)?], tunnels))
        };
        // Who has packets of an SA of its own needs no help, and gives none.
        let size_of_crew = if sas > 1 { 1 } else { workers };
        let crews: Vec<[Arc<Crew>; 2]> =
            (0..sas).map(|_| [Crew::new(size_of_crew), Crew::new(size_of_crew)]).collect();
        let owners: Vec<_> = crews.iter().map(owner).collect::<Result<_, SetupError>>()?;
        let helper = |place: usize| {
            let node = |end: usize| {
                let node = Node::without_ports(sides[end], &owners[0].1[end], place as u8)?;
                Ok::<_, SetupError>(node.joining(Arc::clone(&crews[0][end]), place))
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

    /// Runs for so long, each worker on a processor of its own as far as there are some. Figures are of encryption and of decryption.
    pub(super) fn round(&mut self, time: Duration) -> Result<[Figure; 2], Fault> {
        let Self { owners, helpers, sent, expected } = self;
        let (sas, workers) = (owners.len(), owners.len() + helpers.len());
        let (begun, crowded) = (Instant::now(), workers > allowed().map_or(1, |cpus| cpus.len()));
        let pulses: Vec<Pulse> = helpers.iter().map(|_| Pulse::default()).collect();
        let round = Round { begun, until: begun + time, crowded, pulses: &pulses };
        let packets = (sent.as_slice(), expected.as_slice());
        let found: Vec<Result<Stretches, Fault>> = thread::scope(|scope| {
            for ((place, ends), pulse) in (sas..).zip(helpers).zip(&pulses) {
                scope.spawn(move || {
                    settle(place, workers);
                    help(ends, pulse, round);
                });
            }
            let owners = owners.iter_mut().enumerate().map(|(place, ends)| {
                scope.spawn(move || {
                    settle(place, workers);
                    carry(ends, packets, round)
                })
            });
            let threads: Vec<_> = owners.collect();
            threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
        });
        let found: Vec<Stretches> = found.into_iter().collect::<Result<_, Fault>>()?;
        Ok([0, 1].map(|direction| Figure::of(found.iter().map(|both| both[direction].as_slice()))))
    }
}

/// What all threads of a round know.
#[derive(Clone, Copy)]
struct Round<'r> {
    begun: Instant,
    until: Instant,
    /// More workers than processors.
    crowded: bool,
    pulses: &'r [Pulse],
}

impl Round<'_> {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// How often helpers were away. None if one is; never where not all can be there.
    fn absences(&self) -> Option<u64> {
        let now = self.now();
        let absences =
            |pulse: &Pulse| (self.crowded || pulse.is_here(now)).then(|| pulse.absences(self.crowded));
        self.pulses.iter().map(absences).sum()
    }

    /// Processor time that helpers have spent on others' packets of a direction, in nanoseconds.
    fn helpers_cpu(&self, direction: usize) -> u64 {
        self.pulses.iter().map(|pulse| pulse.cpu[direction].load(Relaxed)).sum()
    }

    /// Turns a worker until all that waits at its ports has left by one.
    fn measure(&self, node: &mut Node, to: Link, direction: usize) -> Stretch {
        let mut watch = Stopwatch::new();
        let (absences, helped, helpers) = (self.absences(), node.helped(), self.helpers_cpu(direction));
        let before = cpu_time();
        // A packet that is lost is found to be missing behind the clock.
        watch.measure(PACKETS, || while node.sent(to) < PACKETS && node.shared_turn() {});
        let own = cpu_time().saturating_sub(before).as_nanos() as f64;
        let others = (self.helpers_cpu(direction) - helpers) as f64;
        Stretch {
            time: watch.median(),
            cpu: (own + others) / PACKETS as f64,
            helped: (node.helped() - helped) as f64 / PACKETS as f64,
            is_undisturbed: absences.is_some() && absences == self.absences(),
        }
    }
}

/// Takes a processor for each worker, where there are enough, from the last one on: the first serves most interrupts.
fn settle(place: usize, workers: usize) {
    let cpus = allowed().unwrap_or_default();
    if let Some(cpu) = cpus.iter().rev().nth(place).filter(|_| workers <= cpus.len()) {
        // Where the kernel does not let it, it decides by itself.
        let _anywhere = pin(Some(*cpu));
    }
}

/// What a worker does that has packets: encrypts, carries over, decrypts, compares. Only the turns are measured.
fn carry(
    [near, far]: &mut Ends,
    (sent, expected): (&[u8], &[u8]),
    round: Round<'_>,
) -> Result<Stretches, Fault> {
    let mut stretches = Stretches::default();
    while Instant::now() < round.until {
        if !(0..PACKETS).all(|_| near.arrive(Link::Lan, sent)) {
            return Err(Fault::Full);
        }
        stretches[0].push(round.measure(near, Link::Wan, 0));
        let mut found = 0;
        near.take_sent(Link::Wan, |packet| {
            found += 1;
            far.arrive(Link::Wan, packet).then_some(()).ok_or(Fault::Full)
        })?;
        all("encrypting", found)?;
        stretches[1].push(round.measure(far, Link::Lan, 1));
        found = 0;
        far.take_sent(Link::Lan, |packet| {
            found += 1;
            (packet == expected).then_some(()).ok_or(Fault::Altered)
        })?;
        all("decrypting", found)?;
    }
    Ok(stretches)
}

fn all(gateway: &'static str, found: usize) -> Result<(), Fault> {
    (found == PACKETS).then_some(()).ok_or(Fault::Lost { gateway, found, expected: PACKETS })
}

/// What a worker does that has none. Of its time counts what it spends on others' packets.
fn help(ends: &mut Ends, pulse: &Pulse, round: Round<'_>) {
    // Where all have a processor of their own time is processor time, and quicker to ask for.
    let spent = || if round.crowded { cpu_time() } else { round.begun.elapsed() };
    let (mut idle, mut before) = (0, spent());
    while Instant::now() < round.until {
        let mut any = false;
        for (node, cpu) in ends.iter_mut().zip(&pulse.cpu) {
            pulse.beat(round.now());
            let helped = node.shared_turn();
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
    fn of<'m>(owners: impl Iterator<Item = &'m [Stretch]> + Clone) -> Self {
        let all = || owners.clone().flatten();
        let undisturbed = all().filter(|stretch| stretch.is_undisturbed).count();
        // Figures of a crowded moment are better than none.
        let counts = |stretch: &&Stretch| stretch.is_undisturbed || undisturbed == 0;
        let mean = |figure: fn(&Stretch) -> f64| {
            all().filter(counts).map(figure).sum::<f64>() / all().filter(counts).count() as f64
        };
        let rate = |stretches: &[Stretch]| {
            let ns = median(stretches.iter().filter(counts).map(|stretch| stretch.time.ns));
            ns.map_or(0.0, |ns| 1e3 / ns)
        };
        let clock = |stretch: &Stretch| stretch.time.cycles.map(|cycles| cycles / stretch.time.ns);
        Self {
            mpps: owners.clone().map(rate).sum(),
            cpu_ns: mean(|stretch| stretch.cpu),
            cycles_per_ns: all().find_map(clock),
            helped: mean(|stretch| stretch.helped),
            undisturbed: undisturbed as f64 / all().count() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_through_however_many_workers_there_are() {
        for case in [(1, 1), (2, 2), (3, 1)] {
            let mut rig = Rig::new(Library::detect(), Suite::AES128GCM16, case, 1000).expect("a rig");
            for figure in rig.round(Duration::from_millis(50)).expect("nothing is lost") {
                assert!(figure.mpps > 0.0 && figure.cpu_ns > 0.0, "{case:?}: {figure:?}");
                assert!(case.0 > 1 || figure.helped == 0.0, "{case:?}: {figure:?}");
            }
        }
    }
}
