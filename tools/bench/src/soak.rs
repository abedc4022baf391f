//! `testudo bench soak`: two gateways under full load for minutes, in both directions, while their
//! SAs are constantly rekeyed; at the end every packet must be accounted for.
//!
//! The hosts send more than the gateways carry, so packets are lost: in the rings that the kernel
//! fills, and nowhere else. A packet that a gateway has received was sent, or is counted as dropped
//! with its reason. A packet that one gateway has sent has arrived at the other, or the kernel has
//! counted it as lost on the way. At the end there are as many SAs as at the beginning.

mod books;
mod renewals;

use crate::error::BenchError;
use crate::esp::positive;
use crate::forward::flood;
use crate::forward::site::{Site, System};
use crate::machine::Machine;
use crate::report::{self, Report};
use crate::setup::usage;
use books::Books;
use renewals::Renewals;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testudo_crypto::Library;
use testudo_lab::stats::Statistics;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::{Lab, interrupt};
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

const SIDES: [Side; 2] = [Side::One, Side::Two];
/// Time between two readings of the throughput.
const SLICE: Duration = Duration::from_secs(5);
/// Limit until packets in transit have arrived and replaced SAs are gone.
const CALM: Duration = Duration::from_secs(30);

/// Options of `testudo bench soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct SoakArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Duration.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    minutes: f64,
    /// Tunnels, all of which carry traffic and are rekeyed.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u8).range(1..=250))]
    tunnels: u8,
    /// Octets of the packets, from the IP header on.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(64..=1420))]
    size: u16,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<bool>,
}

impl Row {
    fn new(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { what: what.into(), unit, value: (value * 1e3).round() / 1e3, aim: None, reached: None }
    }

    /// Sets the goal: exactly this value.
    fn aim(self, aim: f64) -> Self {
        Self { aim: Some(aim), reached: Some(self.value == aim), ..self }
    }

    fn cells(&self) -> Vec<String> {
        let reached = self.reached.map_or("", |reached| if reached { "reached" } else { "MISSED" });
        let aim = self.aim.map(|aim| format!("aim {aim}")).unwrap_or_default();
        vec![self.what.clone(), self.value.to_string(), self.unit.into(), aim, reached.into()]
    }
}

/// Loads, rekeys, accounts, prints the table and writes the report.
pub(crate) fn run(args: &SoakArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("soak", Machine::here(Library::detect(), None));
    println!("{}, {} minutes, datagrams of {} octets\n", report.machine(), args.minutes, args.size);
    let rows = measure(args, progress)?;
    let columns = [Align::Left, Align::Right, Align::Left, Align::Left, Align::Left].map(|align| ("", align));
    report::show(&columns, rows.iter().map(Row::cells), progress);
    report.write(rows, args.json.as_deref())
}

fn measure(args: &SoakArgs, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    progress.begin("soak: bringing the tunnels up", 0);
    let lab = Lab::new("bench-soak")?;
    let site = Site::with_tunnels(&lab, System::Testudo, |side| tunnels(side, args.tunnels), args.tunnels)?;
    let before = settle(&site, args.tunnels, None)?;
    let renewals = Renewals::start(&site, args.tunnels)?;
    let begun = Instant::now();
    let (rates, grown) = load(args, &site, progress)?;
    let took = begun.elapsed();
    let renewed = renewals.stop()?;
    progress.begin("soak: waiting until nothing is on its way", 0);
    let after = settle(&site, args.tunnels, Some(&before))?;
    let mut rows = Vec::new();
    if let Some(rate) = Statistics::of(&rates) {
        rows.push(Row::new("carried to the hosts, median", "Gb/s", rate.median));
        rows.push(Row::new("carried to the hosts, least in 5 seconds", "Gb/s", rate.min));
    }
    rows.push(Row::new("SAs renewed, pairs", "", renewed as f64));
    rows.push(Row::new("SAs renewed, pairs", "a second", renewed as f64 / took.as_secs_f64()));
    rows.extend(after.rows(&before));
    rows.push(Row::new("memory of both gateways, grown in the last half", "KiB", grown / 1024.0));
    Ok(rows)
}

/// Tunnels from address to address, each with its own IKE SA.
fn tunnels(side: Side, count: u8) -> Vec<Connection> {
    let tunnel = |number: u8| {
        let mut tunnel = Connection::of(side, Family::V4);
        tunnel.name = name(number);
        for id in [&mut tunnel.local_id, &mut tunnel.remote_id] {
            *id = format!("{}.{id}", tunnel.name);
        }
        let [local, remote] = [side, side.other()].map(|side| format!("{}/32", Site::numbered(side, number)));
        (tunnel.local_ts, tunnel.remote_ts) = (vec![local], vec![remote]);
        tunnel
    };
    (0..count).map(tunnel).collect()
}

fn name(number: u8) -> String {
    format!("soak-{number}")
}

/// Floods for the configured time. Returns the throughput of each slice of that time, in Gb/s, and
/// the growth of the daemons' memory in octets after the first half; by then they have allocated
/// everything they need.
fn load(args: &SoakArgs, site: &Site, progress: &Progress) -> Result<(Vec<f64>, f64), BenchError> {
    let (begun, length) = (Instant::now(), Duration::from_secs_f64(args.minutes * 60.0));
    let (mut rates, mut at_half) = (Vec::new(), None);
    progress.begin("soak, seconds", length.as_secs());
    while begun.elapsed() < length {
        interrupt::check()?;
        if at_half.is_none() && begun.elapsed() >= length / 2 {
            at_half = Some(memory(site)?);
        }
        let slice = SLICE.min(length / 4);
        let flood = flood::run(site, args.size, slice, None)?;
        rates.push(flood.octets as f64 * 8e-9 / flood.elapsed.as_secs_f64());
        progress.reach(begun.elapsed().as_secs());
    }
    let after = memory(site)?;
    Ok((rates, after as f64 - at_half.unwrap_or(after) as f64))
}

/// Waits until no packet is in transit and no replaced SA is left, or until a timeout.
///
/// Constant counters do not prove that nothing is in transit: a worker without a processor for a
/// while leaves packets in its ring. So the counters must also add up since `before`. Packets that
/// are really lost never add up, and are reported after [`CALM`].
fn settle(site: &Site, tunnels: u8, before: Option<&Books>) -> Result<Books, BenchError> {
    let begun = Instant::now();
    loop {
        let books = Books::read(site)?;
        std::thread::sleep(Duration::from_millis(100));
        let adds_up = before.is_none_or(|before| books.adds_up(before));
        let rests = books.is_calm(tunnels) && adds_up && books == Books::read(site)?;
        if rests || begun.elapsed() > CALM {
            return Ok(books);
        }
    }
}

/// Octets of private memory of both daemons.
fn memory(site: &Site) -> Result<u64, BenchError> {
    let of = |side: Side| site.testudo(side).map_or(Ok(0), |(_, testudod)| usage::memory(testudod.pid()));
    Ok(of(Side::One)? + of(Side::Two)?)
}
