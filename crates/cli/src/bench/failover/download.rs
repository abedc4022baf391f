//! How much longer a download takes in which the node dies that carries it.

use super::FailoverError;
use super::crash::Crash;
use super::figures::{Aim, Row};
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Kind;
use testudo_lab::nginx::Nginx;
use testudo_lab::stats::Statistics;
use testudo_lab::topology::Family;
use testudo_lab::transfer::{SLOT, Transfer, Transferred};
use testudo_lab::{Error, Lab, Result};

const FILE: &str = "file";
const LIMIT: Duration = Duration::from_secs(300);
/// Part of the file after which the node dies.
const AT: f64 = 0.4;

pub(super) fn measure(repeats: u32, megabytes: u32) -> std::result::Result<Vec<Row>, FailoverError> {
    let octets = u64::from(megabytes) * 1_000_000;
    let options = BedOptions { peers: vec![Kind::Testudo], ..BedOptions::default() };
    let bed = &mut Bed::start(&Lab::new("failover")?, &options)?;
    bed.bring_up(1)?;
    let nginx = Nginx::start(&bed.cluster.hosts[0])?;
    let expected = nginx.add_file(FILE, octets, 1)?;
    let [mut quiet, mut struck, mut still] = [const { Vec::new() }; 3];
    for _ in 0..repeats {
        let done = [start(bed)?.finish(LIMIT)?, with_failover(bed, octets)?];
        if done.iter().any(|one| one.sha256 != expected) {
            return Err(Error::unexpected("a download", "the file of the server", "another").into());
        }
        still.push(standstill(&done[1]));
        let [undisturbed, disturbed] = done.map(|one| one.elapsed.as_secs_f64());
        quiet.push(undisturbed);
        struck.push(disturbed);
    }
    // Single ones differ by more than a failover costs.
    let usual = Statistics::of(&quiet).map_or(f64::NAN, |statistics| statistics.median);
    let extra = struck.iter().map(|seconds| seconds - usual).collect();
    let of = |what: &str| format!("download of {megabytes} MB{what}");
    Ok(vec![
        Row::new(of(" with a failover, against the median without"), "s", extra)
            .ha("3-4 s")
            .aim(Aim::median_at_most(0.3)),
        Row::new(of(" with a failover"), "s", struck),
        Row::new(of(""), "s", quiet),
        Row::new("longest standstill of a download with a failover", "s", still),
    ])
}

/// The longest time, in whole slots, in which nothing came.
fn standstill(done: &Transferred) -> f64 {
    let slots = done.over_time.amounts().split(|octets| *octets > 0).map(<[u64]>::len);
    SLOT.as_secs_f64() * slots.max().unwrap_or(0) as f64
}

fn start(bed: &Bed) -> Result<Transfer> {
    Transfer::start(&bed.cluster.client, Cluster::behind(1, Family::V4, 2), FILE)
}

fn with_failover(bed: &mut Bed, octets: u64) -> Result<Transferred> {
    let victim = bed.owner(1)?;
    let transfer = start(bed)?;
    transfer.await_received((octets as f64 * AT).ceil() as u64, LIMIT)?;
    Crash::Killed.strike(bed, victim)?;
    let done = transfer.finish(LIMIT)?;
    Crash::Killed.mend(bed, victim)?;
    Ok(done)
}
