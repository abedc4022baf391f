//! `testudo bench tunnels`: the pipeline's speed with very many SAs.
//!
//! A hub has a tunnel to each of its spokes, with its own outer address, policy and keys, and every
//! packet is for, or from, a random spoke: neither caches nor prefetching can predict it. Rounds
//! with many SAs and with one alternate, and the result is the remaining fraction of the one SA's
//! throughput. The spokes run between the measured stretches and use the same caches, which a real
//! hub would have for itself: the figures are slightly low. The SAs are on huge pages, as under
//! `testudod.service`, unless GLIBC_TUNABLES is already set. They are created once, and carry
//! packets of one size after another.

mod rig;
mod sites;

use crate::error::BenchError;
use crate::esp::{Suite, positive, traffic};
use crate::huge_pages;
use crate::machine::Machine;
use crate::pin::pin;
use crate::report::{self, Report};
use crate::stopwatch::{PerPacket, Stopwatch};
use rig::{Packets, Rig};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use testudo_crypto::Library;
use testudo_lab::plot::{Chart, Limit, Series, Style};
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

/// Goal for the largest number of SAs, in percent of one SA's throughput.
const AIM: f64 = 60.0;

/// Mean packets per SA before anything is measured.
const WARM_UP: u64 = 5;
/// Runs with packets of each size before they are measured, so that the frames have held one.
const WARM_UP_RUNS: u32 = 8;
/// Rounds with many SAs and with one.
const ROUNDS: u32 = 9;

/// Options of `testudo bench tunnels`.
#[derive(Debug, clap::Args)]
pub(crate) struct TunnelsArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the remaining percentage of one SA's throughput.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Cipher library: ipsec-mb or aws-lc [default: the faster one available].
    #[arg(long)]
    library: Option<Library>,
    /// Cipher, by strongSwan's name.
    #[arg(long, default_value = "aes128gcm16")]
    cipher: Suite,
    /// Numbers of SAs in each direction.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000, 10_000, 100_000],
          value_parser = clap::value_parser!(u32).range(1..=i64::from(sites::MOST)))]
    sas: Vec<u32>,
    /// Octets of the inner IP packets.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512, 1420],
          value_parser = clap::value_parser!(u16).range(crate::esp::traffic::SIZES))]
    sizes: Vec<u16>,
    /// Measured time of each row.
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    seconds: f64,
    /// CPU to run on [default: the last one allowed].
    #[arg(long)]
    cpu: Option<usize>,
}

const COLUMNS: [(&str, Align); 9] = [
    ("dir", Align::Left),
    ("octets", Align::Right),
    ("SAs", Align::Right),
    ("ns/packet", Align::Right),
    ("cycles", Align::Right),
    ("Mpps", Align::Right),
    ("Gb/s", Align::Right),
    ("ns of one", Align::Right),
    ("% of one", Align::Right),
];

/// One measured case.
#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    cipher: &'static str,
    sas: u32,
    /// Octets of the inner IP packet; rates count these.
    size: u16,
    /// The whole pipeline, per packet.
    ns: f64,
    /// The same in cycles of the time-stamp counter, if there is one.
    cycles: Option<f64>,
    mpps: f64,
    gbps: f64,
    /// The same with one SA, in the same rounds.
    ns_of_one: f64,
    /// The remaining percentage of one SA's throughput.
    percent_of_one: f64,
}

impl Row {
    fn new(
        direction: &'static str,
        cipher: Suite,
        sas: u32,
        size: u16,
        many: PerPacket,
        one: PerPacket,
    ) -> Self {
        let mpps = 1e3 / many.ns;
        Self {
            direction,
            cipher: cipher.name(),
            sas,
            size,
            ns: many.ns,
            cycles: many.cycles,
            mpps,
            gbps: mpps * f64::from(size) * 8.0 / 1e3,
            ns_of_one: one.ns,
            percent_of_one: 100.0 * one.ns / many.ns,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.direction.to_owned(),
            self.size.to_string(),
            self.sas.to_string(),
            format!("{:.1}", self.ns),
            self.cycles.map_or("-".into(), |cycles| format!("{cycles:.0}")),
            format!("{:.2}", self.mpps),
            format!("{:.2}", self.gbps),
            format!("{:.1}", self.ns_of_one),
            format!("{:.0}", self.percent_of_one),
        ]
    }
}

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &TunnelsArgs, progress: &Progress) -> Result<(), BenchError> {
    huge_pages::ask();
    let library = args.library.unwrap_or_else(Library::detect);
    library.available()?;
    let report = Report::new("tunnels", Machine::here(library, Some(pin(args.cpu)?)));
    println!("{}, {}\n", report.machine(), args.cipher.name());
    let rounds = (args.sas.len() * args.sizes.len()) as u64 * u64::from(ROUNDS);
    progress.begin("tunnels", rounds);
    let mut one = Rig::new(library, args.cipher, 1)?;
    let mut by_sas = Vec::new();
    for &sas in &args.sas {
        by_sas.push(measure(args, library, &mut one, sas, progress)?);
    }
    let rows = by_size(by_sas);
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    report::draw(args.svg.as_deref(), || picture(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// In the order of the table: all numbers of SAs of one size, then those of the next. Each number
/// of SAs has rows of the same sizes.
fn by_size(by_sas: Vec<Vec<[Row; 2]>>) -> Vec<Row> {
    let mut by_sas: Vec<_> = by_sas.into_iter().map(Vec::into_iter).collect();
    let mut rows = Vec::new();
    loop {
        let of_size: Vec<[Row; 2]> = by_sas.iter_mut().filter_map(Iterator::next).collect();
        if of_size.is_empty() {
            return rows;
        }
        rows.extend(of_size.into_iter().flatten());
    }
}

/// That many SAs with packets of each size, alternating with one SA; both directions.
fn measure(
    args: &TunnelsArgs,
    library: Library,
    one: &mut Rig,
    sas: u32,
    progress: &Progress,
) -> Result<Vec<[Row; 2]>, BenchError> {
    progress.doing(format!("tunnels, making {sas} SAs"));
    let mut many = Rig::new(library, args.cipher, sas)?;
    progress.doing(format!("tunnels, {sas} SAs: a few packets of each"));
    // Until nearly all SAs have been used: the first packet of each has no flow entry. Its size
    // does not matter.
    let mut packets = Packets::of(*traffic::SIZES.start() as u16);
    let [mut outward, mut inward] = [const { Stopwatch::new() }; 2];
    while outward.packets() < WARM_UP * u64::from(sas) {
        many.run(&mut packets, &mut outward, &mut inward)?;
    }
    let sizes = args.sizes.iter();
    sizes.map(|size| measure_size(args, [&mut many, &mut *one], sas, *size, progress)).collect()
}

/// Both directions of one case.
fn measure_size(
    args: &TunnelsArgs,
    [many, one]: [&mut Rig; 2],
    sas: u32,
    size: u16,
    progress: &Progress,
) -> Result<[Row; 2], BenchError> {
    progress.doing(format!("tunnels, {sas} SAs, {size} octets"));
    let mut packets = Packets::of(size);
    let [mut outward, mut inward, mut one_out, mut one_in] = [const { Stopwatch::new() }; 4];
    for _ in 0..WARM_UP_RUNS {
        many.run(&mut packets, &mut outward, &mut inward)?;
        one.run(&mut packets, &mut one_out, &mut one_in)?;
    }
    [&mut outward, &mut inward, &mut one_out, &mut one_in].into_iter().for_each(Stopwatch::reset);
    let round = Duration::from_secs_f64(args.seconds / f64::from(ROUNDS));
    for number in 1..=ROUNDS {
        let end = round * number;
        while outward.time().min(inward.time()) < end {
            many.run(&mut packets, &mut outward, &mut inward)?;
        }
        while one_out.time().min(one_in.time()) < end {
            one.run(&mut packets, &mut one_out, &mut one_in)?;
        }
        progress.step();
    }
    let row = |direction, many: &Stopwatch, one: &Stopwatch| {
        Row::new(direction, args.cipher, sas, size, many.median(), one.median())
    };
    Ok([row("out", &outward, &one_out), row("in", &inward, &one_in)])
}

fn picture(args: &TunnelsArgs, rows: &[Row]) -> String {
    let series = args.sizes.iter().flat_map(|size| ["out", "in"].map(|direction| (*size, direction)));
    let values = |size, direction: &'static str| {
        let of = move |row: &&Row| row.size == size && row.direction == direction;
        let figure =
            |sas: &u32| rows.iter().filter(of).find(|row| row.sas == *sas).map(|row| row.percent_of_one);
        args.sas.iter().map(figure).collect()
    };
    Chart {
        title: "Throughput with many SAs".into(),
        subtitle: format!("{}, each packet of an SA drawn at random; one core", args.cipher.name()),
        x_name: "SAs in each direction".into(),
        y_name: "% of one SA's throughput".into(),
        cases: args.sas.iter().map(u32::to_string).collect(),
        series: series
            .map(|(size, direction)| Series {
                name: format!("{size} octets, {direction}"),
                values: values(size, direction),
            })
            .collect(),
        style: Style::Lines,
        limits: vec![Limit { at: AIM, name: "aim at 100 000".into() }],
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_by_size_whatever_was_measured_first() {
        let per_packet = PerPacket { ns: 100.0, cycles: None };
        let row =
            |direction, sas, size| Row::new(direction, Suite::AES128GCM16, sas, size, per_packet, per_packet);
        let of = |sas| [64, 1420].map(|size| ["out", "in"].map(|way| row(way, sas, size))).into();
        let rows = by_size(vec![of(10), of(1000)]);
        let cases: Vec<_> = rows.iter().map(|row| (row.size, row.sas, row.direction)).collect();
        let expected = [
            (64, 10, "out"),
            (64, 10, "in"),
            (64, 1000, "out"),
            (64, 1000, "in"),
            (1420, 10, "out"),
            (1420, 10, "in"),
            (1420, 1000, "out"),
            (1420, 1000, "in"),
        ];
        assert_eq!(cases, expected);
    }
}
