//! `testudo bench migrate`: how long a virtual machine takes to move between two hosts, compared by
//! what protects it: the measurements of [MIG], and those of QEMU's own TLS and of ssh.
//!
//! Each way has two hosts, joined by a veth, and a virtual machine of its own. It moves to and fro,
//! and is stopped while the others move. All ways exist at the same time and take turns, round by
//! round, so that disturbances affect all alike. Both hosts share the processors.

mod channel;
mod hosts;
mod picture;
mod row;
mod tls;
mod way;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::{self, Report};
use hosts::Hosts;
use row::{COLUMNS, LARGEST, Link, MAX_SEGMENT, Row};
use std::path::PathBuf;
use testudo_crypto::Library;
use testudo_lab::Lab;
use testudo_terminal::progress::Progress;
use tls::Tls;
use way::Way;

/// Options of `testudo bench migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// What to compare.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Way::ALL)]
    ways: Vec<Way>,
    /// MTUs of the link between the hosts.
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 3000, 4500, 6000, 8000, 9000],
          value_parser = clap::value_parser!(u16).range(1400..=9000))]
    mtus: Vec<u16>,
    /// Largest TCP segments, in octets, over a link with an MTU of 8000; 0: none.
    #[arg(long, value_delimiter = ',', default_values_t = [1460, 2960, 4460, 5960, 7960],
          value_parser = segment)]
    segments: Vec<u16>,
    /// Further connections by which QEMU sends memory (multifd); 0: it sends all by one.
    #[arg(long, value_delimiter = ',', default_values_t = [0])]
    multifd: Vec<u8>,
    /// Migrations there and back, for each way and link.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Memory of the virtual machine, in MiB; all but 192 is filled.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(256..=4096))]
    memory: u32,
    /// Pings through each channel.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pings: u16,
}

fn segment(text: &str) -> Result<u16, String> {
    let expected = || format!("expected 0, or 536 to {MAX_SEGMENT}");
    let octets = text.parse().map_err(|_| expected())?;
    match octets {
        0 | 536..=MAX_SEGMENT => Ok(octets),
        _ => Err(expected()),
    }
}

/// Measures, prints the table, writes report and pictures.
pub(crate) fn run(args: &MigrateArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("migrate", Machine::here(Library::detect(), None));
    println!("{}, virtual machines of {} MiB without KVM\n", report.machine(), args.memory);
    let lab = Lab::new("bench-migrate")?;
    let tls = Tls::new(&lab)?;
    progress.begin("migrate", args.ways.len() as u64);
    let mut all = Vec::new();
    for way in &args.ways {
        progress.doing(format!("migrate: a virtual machine boots ({})", way.name()));
        all.push(Hosts::start(&lab, *way, args.memory, tls.clone())?);
        progress.step();
    }
    let by_mtu = args.mtus.iter().map(|mtu| Link { mtu: *mtu, segment: None, multifd: 0 });
    let segments = args.segments.iter().filter(|octets| **octets > 0);
    let by_segment = segments.map(|octets| Link { segment: Some(*octets), ..LARGEST });
    let with = |link: Link| args.multifd.iter().map(move |multifd| Link { multifd: *multifd, ..link });
    let links: Vec<Link> = by_mtu.chain(by_segment).flat_map(with).collect();
    progress.begin("migrate", (links.len() * all.len()) as u64 * u64::from(args.repeats) * 2);
    let mut rows = Vec::new();
    for link in links {
        rows.extend(measure(args, &mut all, link, progress)?);
    }
    row::compare(&mut rows);
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    progress.aside(|| print!("{}", row::aims(&rows)));
    if let Some(directory) = &args.plots {
        for (name, svg) in picture::all(&rows) {
            report::draw(Some(&directory.join(format!("migrate-{name}.svg"))), || svg)?;
        }
    }
    report.write(rows, args.json.as_deref())
}

/// All ways over links of one kind, by turns.
fn measure(
    args: &MigrateArgs,
    all: &mut [Hosts],
    link: Link,
    progress: &Progress,
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for hosts in all.iter_mut() {
        progress.doing(format!("migrate, {link}: opening {}", hosts.way.name()));
        hosts.open(link)?;
        let pings = hosts.way.takes_pings() && link.segment.is_none() && link.multifd == 0;
        let latency = pings.then(|| hosts.latency(args.pings)).transpose()?;
        rows.push(Row::new(hosts.way, link, latency));
    }
    for _ in 0..args.repeats {
        for (hosts, row) in all.iter_mut().zip(&mut rows) {
            for _ in 0..2 {
                progress.doing(format!("migrate, {link}, {}", hosts.way.name()));
                row.add(hosts.trip()?);
                progress.step();
            }
        }
    }
    for (hosts, row) in all.iter().zip(&mut rows) {
        (row.alarms, row.suite) = (hosts.alarms()?, hosts.suite());
    }
    Ok(rows)
}
