//! What a packet costs the node that works on it (R), and a node that drops it (Q).
//!
//! R is the worker's time, as in `testudo bench esp`, and the filter's; Q is the filter's alone.
//! The driver's part, which both have in common, is in neither. All pipelines alternate, and each
//! round gives one value of each figure, so that a disturbance affects all alike.

use super::filter::Filters;
use super::scheme::Scheme;
use super::{Direction, SpreadArgs};
use crate::error::BenchError;
use crate::esp::Suite;
use crate::esp::gateway::Membership;
use crate::esp::rig::Rig;
use crate::esp::traffic::Traffic;
use crate::pin::pinned;
use crate::stopwatch::{Stopwatch, median};
use std::time::Duration;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// Octets of the smaller packets: with the two sizes the cost of any size is estimated.
const SHORT: u16 = 64;
/// The pipelines alternate after this time.
const TURN: Duration = Duration::from_millis(2);

/// Nanoseconds of a packet, one value a round.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// For the node that works on it: R.
    pub(super) own: Vec<f64>,
    /// The same of a packet of [`SHORT`] octets.
    pub(super) short: Vec<f64>,
    /// For a node that drops it: Q. Empty for a gateway that is not in a cluster.
    pub(super) other: Vec<f64>,
}

/// The costs of a packet of the measured size.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    size: u16,
    /// Of a gateway that is not in a cluster, by direction.
    pub(super) alone: [Cost; 2],
    /// By scheme, in the order of [`Scheme::ALL`], and by direction.
    schemes: [[Cost; 2]; Scheme::ALL.len()],
}

/// The costs that a computation works with: medians.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    fixed: f64,
    octet: f64,
    pub(super) other: f64,
}

impl Costs {
    pub(super) fn of(&self, scheme: Scheme, direction: Direction) -> &Cost {
        &self.schemes[scheme as usize][direction as usize]
    }

    /// The cost of packets of any size.
    pub(super) fn model(&self, scheme: Scheme, direction: Direction) -> Model {
        let of = |values: &Vec<f64>| median(values.iter().copied()).unwrap_or(f64::NAN);
        let Cost { own, short, other } = self.of(scheme, direction);
        let octet = (of(own) - of(short)) / f64::from(self.size - SHORT);
        Model { fixed: of(short) - octet * f64::from(SHORT), octet, other: of(other) }
    }
}

impl Model {
    /// Of nodes that never see the packets of others. Only the ratio of its parts matters: of a
    /// packet of 1446 octets, the octets take about two thirds of the time.
    pub(super) fn behind_routers() -> Self {
        Self { fixed: 1.0, octet: 2.0 / 1446.0, other: 0.0 }
    }

    /// R of a packet without octets, R of each octet, and Q.
    #[cfg(test)]
    pub(super) fn of(fixed: f64, octet: f64, other: f64) -> Self {
        Self { fixed, octet, other }
    }

    /// R of so many packets of that many octets together.
    pub(super) fn own(&self, packets: f64, octets: f64) -> f64 {
        self.fixed * packets + self.octet * octets
    }
}

/// Two gateways at work, one of which encrypts what the other decrypts.
struct Pair {
    rigs: [Rig; 2],
    watches: [[Stopwatch; 2]; 2],
}

impl Pair {
    fn new(library: Library, membership: Membership, size: u16) -> Result<Self, BenchError> {
        let rig = |size| Rig::new(library, Suite::AES128GCM16, Traffic::of(size), membership);
        let watches = [const { [const { Stopwatch::new() }; 2] }; 2];
        Ok(Self { rigs: [rig(SHORT)?, rig(size)?], watches })
    }

    fn turn(&mut self) -> Result<(), BenchError> {
        for (rig, [outward, inward]) in self.rigs.iter_mut().zip(&mut self.watches) {
            let end = outward.time() + TURN;
            while outward.time() < end {
                rig.run(outward, inward)?;
            }
        }
        Ok(())
    }

    fn time(&self) -> Duration {
        self.watches.iter().map(|[outward, _]| outward.time()).min().unwrap_or_default()
    }

    /// Nanoseconds of a short packet and of one of the full size, by direction, since last asked.
    fn take(&mut self) -> [[f64; 2]; 2] {
        let [short, full] = self.watches.each_ref().map(|ways| ways.each_ref().map(|way| way.median().ns));
        self.watches.iter_mut().flatten().for_each(Stopwatch::reset);
        [[short[0], full[0]], [short[1], full[1]]]
    }
}

pub(super) fn measure(args: &SpreadArgs, progress: &Progress) -> Result<Costs, BenchError> {
    pinned(args.cpu, || rounds(args, progress))
}

fn rounds(args: &SpreadArgs, progress: &Progress) -> Result<Costs, BenchError> {
    let library = Library::detect();
    let memberships = [Membership::Alone].into_iter().chain(Scheme::ALL.map(Scheme::membership));
    let mut pairs: Vec<Pair> =
        memberships.map(|membership| Pair::new(library, membership, args.size)).collect::<Result<_, _>>()?;
    let filters = Scheme::ALL.map(Filters::new);
    let filters: Vec<Filters> = filters.into_iter().collect::<Result<_, _>>()?;
    let mut costs = Costs { size: args.size, alone: Default::default(), schemes: Default::default() };
    let round = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    progress.begin("spread, a packet at each node", u64::from(args.rounds) + 1);
    for number in 0..=args.rounds {
        while pairs.iter().any(|pair| pair.time() < round) {
            pairs.iter_mut().try_for_each(Pair::turn)?;
        }
        let worked: Vec<_> = pairs.iter_mut().map(Pair::take).collect();
        // The first round warms up caches, branch predictor and clock; it does not count.
        if number > 0 {
            costs.add(&worked, &filters)?;
        }
        progress.step();
    }
    Ok(costs)
}

impl Costs {
    /// Adds the values of a round: the workers' times, that of the gateway without a cluster first.
    fn add(&mut self, worked: &[[[f64; 2]; 2]], filters: &[Filters]) -> Result<(), BenchError> {
        let Some((alone, members)) = worked.split_first() else { return Ok(()) };
        for (cost, [short, full]) in self.alone.iter_mut().zip(alone) {
            cost.short.push(*short);
            cost.own.push(*full);
        }
        for ((costs, worked), filters) in self.schemes.iter_mut().zip(members).zip(filters) {
            for ((cost, [short, full]), direction) in costs.iter_mut().zip(worked).zip(Direction::ALL) {
                let filter = filters.cost(direction, self.size)?;
                cost.short.push(short + filter.own);
                cost.own.push(full + filter.own);
                cost.other.push(filter.other);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_any_size_lies_on_a_line() {
        let cost = Cost { own: vec![500.0, 510.0, 490.0], short: vec![100.0; 3], other: vec![40.0; 3] };
        let costs = Costs {
            size: SHORT + 400,
            alone: Default::default(),
            schemes: std::array::from_fn(|_| [cost.clone(), cost.clone()]),
        };
        let model = costs.model(Scheme::PacketHash, Direction::Out);
        let own = |octets: u16| model.own(1.0, octets.into());
        assert_eq!((own(SHORT), own(SHORT + 400), own(SHORT + 200)), (100.0, 500.0, 300.0));
        assert_eq!(model.other, 40.0);
    }
}
