//! The cost of a packet for its owner, compared with a gateway that is not in a cluster.
//!
//! Both pipelines run in this process, in alternating rounds, as in `testudo bench esp`: one behind
//! a fence, with shards to check and granted sequence numbers, the other without. So both run under
//! the same conditions, and their cycles can be compared.

use crate::error::BenchError;
use crate::esp::Suite;
use crate::esp::gateway::Membership;
use crate::esp::rig::Rig;
use crate::esp::traffic::Traffic;
use crate::figures::{Aim, Row, Source};
use crate::pin::pinned;
use crate::stopwatch::Stopwatch;
use std::time::Duration;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// Octets of the inner IP packets.
const SIZES: [u16; 2] = [64, 1420];
/// Measured time of a repeat, for each pipeline.
const STRETCH: Duration = Duration::from_millis(60);
/// The two alternate after this time, so that a disturbance affects both.
const TURN: Duration = Duration::from_millis(2);

pub(super) fn measure(repeats: u32, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    pinned(None, || {
        let mut rows = Vec::new();
        progress.begin("failover, a packet at its owner", SIZES.len() as u64 * u64::from(repeats + 1));
        for size in SIZES {
            rows.extend(cycles(repeats, size, progress)?);
        }
        Ok(rows)
    })
}

fn cycles(repeats: u32, size: u16, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let library = Library::detect();
    let suite = Suite::AES128GCM16;
    let mut rigs = [
        Rig::new(library, suite, Traffic::of(size), Membership::Alone)?,
        Rig::new(library, suite, Traffic::of(size), Membership::Home)?,
    ];
    // Cycles without a cluster and as a member, in both directions together.
    let [mut alone, mut member, mut extra] = [const { Vec::new() }; 3];
    for repeat in 0..=repeats {
        let mut watches = [const { [const { Stopwatch::new() }; 2] }; 2];
        while watches.iter().flatten().any(|watch| watch.time() < STRETCH) {
            for (rig, [outward, inward]) in rigs.iter_mut().zip(&mut watches) {
                let end = outward.time() + TURN;
                while outward.time() < end {
                    rig.run(outward, inward)?;
                }
            }
        }
        // The first repeat warms up.
        if repeat > 0 {
            let [a, m] = watches.map(|[outward, inward]| both_ways(&outward, &inward));
            alone.push(a);
            member.push(m);
            extra.push((m / a - 1.0) * 100.0);
        }
        progress.step();
    }
    let of = |what: &str| format!("{what}, {size} octets in and out");
    Ok(vec![
        Row::new(of("owner against alone"), "% more", extra)
            .others(Source::Ha, "+35 % system time of a download")
            .aim(Aim::median_at_most(2.0)),
        Row::new(of("a packet at the owner"), unit(), member),
        Row::new(of("a packet alone"), unit(), alone),
    ])
}

fn unit() -> &'static str {
    if cfg!(target_arch = "x86_64") { "cycles" } else { "ns" }
}

/// Cycles of a packet out and one in.
fn both_ways(outward: &Stopwatch, inward: &Stopwatch) -> f64 {
    [outward, inward].map(|watch| watch.median()).iter().map(|one| one.cycles.unwrap_or(one.ns)).sum()
}
