//! How much longer a download takes if the node that carries it dies.
//!
//! Two consecutive downloads differ by more than the cost of a failover. So each one is paired with
//! a download in which nothing fails; the order alternates, and both are started and observed in
//! the same way. The difference between the two before the failure is chance, and shows how much of
//! the rest is chance. The cost of the failover is best seen within one download, compared with the
//! rest of it.

use super::crash::Crash;
use crate::error::BenchError;
use crate::figures::{Aim, Row, Source};
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::Cluster;
use testudo_lab::files::Sha256;
use testudo_lab::gateway::Kind;
use testudo_lab::nginx::Nginx;
use testudo_lab::topology::Family;
use testudo_lab::transfer::{SLOT, Transfer, Transferred};
use testudo_lab::{Error, Lab, Result};
use testudo_terminal::progress::Progress;

const FILE: &str = "file";
const LIMIT: Duration = Duration::from_secs(300);
/// Before a download the nodes get time: a node that has come back gets its shards back.
const QUIET: Duration = Duration::from_secs(3);
/// Part of the file after which the node dies.
const AT: f64 = 0.4;
/// Slots after the failure within which the download has stopped and continued: two seconds.
const AROUND: usize = 40;

/// The measurements of a download, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    whole: f64,
    /// Until the part of the file has arrived after which the node dies or would die.
    before: f64,
    /// The delay right after that.
    behind: Option<f64>,
    /// The longest time without data.
    still: f64,
}

/// Two downloads: one in which nothing fails, and one with a failover.
#[derive(Clone, Copy, Debug)]
struct Pair {
    quiet: Measured,
    struck: Measured,
}

pub(super) fn measure(
    repeats: u32,
    megabytes: u32,
    progress: &Progress,
) -> std::result::Result<Vec<Row>, BenchError> {
    let octets = u64::from(megabytes) * 1_000_000;
    let options = BedOptions { peers: vec![Kind::Testudo], ..BedOptions::default() };
    let bed = &mut Bed::start(&Lab::new("failover")?, &options)?;
    bed.bring_up(1)?;
    let nginx = Nginx::start(&bed.cluster.hosts[0])?;
    let expected = nginx.add_file(FILE, octets, 1)?;
    let mut pairs = Vec::new();
    progress.begin("failover, pairs of downloads", repeats.into());
    for repeat in 0..repeats {
        let mut of = |struck: bool| download(bed, struck, octets, &expected);
        // The first one is closer to the failover of the previous repeat.
        let struck_first = repeat % 2 == 1;
        let [first, second] = [of(struck_first)?, of(!struck_first)?];
        let [quiet, struck] = if struck_first { [second, first] } else { [first, second] };
        pairs.push(Pair { quiet, struck });
        progress.step();
    }
    Ok(rows(megabytes, &pairs))
}

fn download(bed: &mut Bed, struck: bool, octets: u64, expected: &Sha256) -> Result<Measured> {
    sleep(QUIET);
    let owner = bed.owner(1)?;
    let transfer = Transfer::start(&bed.cluster.client, Cluster::behind(1, Family::V4, 2), FILE)?;
    transfer.await_received(part(octets), LIMIT)?;
    if struck {
        Crash::Killed.strike(bed, owner)?;
    }
    let done = transfer.finish(LIMIT)?;
    if struck {
        Crash::Killed.mend(bed, owner)?;
    }
    if done.sha256 != *expected {
        return Err(Error::unexpected("a download", "the file of the server", "another"));
    }
    Ok(Measured::of(&done))
}

/// The octets after which the node dies.
fn part(octets: u64) -> u64 {
    (octets as f64 * AT).ceil() as u64
}

impl Measured {
    fn of(done: &Transferred) -> Self {
        let whole = done.elapsed.as_secs_f64();
        let (slot, amounts) = (SLOT.as_secs_f64(), done.over_time.amounts());
        let (at, before) = moment(amounts, part(done.bytes));
        let still = amounts.split(|octets| *octets > 0).map(<[u64]>::len).max().unwrap_or(0);
        let behind = behind(amounts, at, whole / slot).map(|slots| slots * slot);
        Self { whole, before: before * slot, behind, still: still as f64 * slot }
    }
}

/// The slot in which that many octets have arrived, and the number of slots until then, the last
/// one in proportion.
fn moment(amounts: &[u64], octets: u64) -> (usize, f64) {
    let mut left = octets;
    for (slot, amount) in amounts.iter().enumerate() {
        if *amount >= left {
            return (slot, slot as f64 + left as f64 / (*amount).max(1) as f64);
        }
        left -= amount;
    }
    (amounts.len(), amounts.len() as f64)
}

/// How many slots more the following [`AROUND`] took than the same octets take in the rest of the
/// download. `None` if the rest is too short.
fn behind(amounts: &[u64], at: usize, whole: f64) -> Option<f64> {
    let around: u64 = amounts.get(at..at + AROUND)?.iter().sum();
    let rest = amounts.iter().sum::<u64>() - around;
    let length = whole - AROUND as f64;
    (rest > 0 && length >= AROUND as f64).then(|| AROUND as f64 - around as f64 * length / rest as f64)
}

fn rows(megabytes: u32, pairs: &[Pair]) -> Vec<Row> {
    let of = |what: &str| format!("download of {megabytes} MB{what}");
    let both = |get: fn(&Pair) -> f64| pairs.iter().map(get).collect::<Vec<_>>();
    let some = |get: fn(&Pair) -> Option<f64>| pairs.iter().filter_map(get).collect::<Vec<_>>();
    vec![
        Row::new(
            of(" with a failover, more than one beside it"),
            "s",
            both(|p| p.struck.whole - p.quiet.whole),
        )
        .others(Source::Ha, "1.7-3.2 s")
        .aim(Aim::median_at_most(0.3)),
        Row::new("of that before the failover: chance", "s", both(|p| p.struck.before - p.quiet.before)),
        Row::new("fallen behind its own rate in the 2 s of the failover", "s", some(|p| p.struck.behind)),
        Row::new("the same where nothing failed: chance", "s", some(|p| p.quiet.behind)),
        Row::new(of(" with a failover"), "s", both(|p| p.struck.whole)),
        Row::new(of(""), "s", both(|p| p.quiet.whole)),
        Row::new("longest standstill of a download with a failover", "s", both(|p| p.struck.still)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use testudo_lab::series::Series;

    /// A download of that many slots at a constant rate that stops for `still` of them after its
    /// part has arrived.
    fn download(slots: usize, still: usize) -> Measured {
        const RATE: u64 = 1000;
        let start = Instant::now();
        let mut over_time = Series::new(start, SLOT);
        let octets = slots as u64 * RATE;
        let (mut bytes, mut at) = (0, start);
        while bytes < octets {
            over_time.add(at, RATE);
            bytes += RATE;
            let pause = if bytes == part(octets) { 1 + still } else { 1 };
            at += SLOT * u32::try_from(pause).unwrap();
        }
        Measured::of(&Transferred { bytes, elapsed: at - start, over_time, sha256: Sha256(String::new()) })
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn the_delay_of_a_stalled_download_is_measured() {
        let [quiet, struck] = [download(200, 0), download(200, 10)];
        assert_near(struck.whole - quiet.whole, 0.5);
        assert_near(struck.before - quiet.before, 0.0);
        assert_near(quiet.before, 4.0);
        assert_near(quiet.behind.unwrap(), 0.0);
        assert_near(struck.behind.unwrap(), 0.5);
        assert_near(struck.still, 0.5);
    }

    /// The machine gets slower from one download to the next, and nothing fails.
    #[test]
    fn a_slower_download_has_not_fallen_behind() {
        let [fast, slow] = [download(200, 0), download(300, 0)];
        assert_near(slow.whole - fast.whole, 5.0);
        assert_near(slow.before - fast.before, 2.0);
        assert_near(slow.behind.unwrap(), 0.0);
    }

    #[test]
    fn a_download_that_ends_too_early_gives_no_figure() {
        assert_eq!(download(60, 0).behind, None);
        assert_near(moment(&[0, 4, 6], 7).1, 2.5);
        assert_eq!(moment(&[1], 2).0, 1);
    }
}
