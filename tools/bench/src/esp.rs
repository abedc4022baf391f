//! `testudo bench esp`: the packet pipeline from end to end on one core, compared with the bare
//! cipher.
//!
//! Rounds of pipeline, cipher and, if available, another gateway alternate, so that all are
//! measured under the same conditions. The figures are medians over stretches of a few bursts, so
//! that a disturbed stretch does not count. Only the pipeline's own work is measured: packets are
//! written before and checked afterwards.

mod cipher;
mod dpdk;
pub(super) mod gateway;
pub(super) mod node;
mod picture;
pub(super) mod relay;
pub(super) mod rig;
mod secgw;
mod suite;
pub(super) mod traffic;

use crate::error::{BenchError, TimeError};
use crate::machine::Machine;
use crate::pin::pin;
use crate::report::{self, Header, Labels, Report, Row};
use crate::stopwatch::Stopwatch;
use cipher::BareCipher;
use dpdk::Dpdk;
use gateway::Membership;
use rig::Rig;
pub(super) use secgw::Rival;
use secgw::Secgw;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use suite::Suite;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;
use traffic::Traffic;

/// Packets in a burst, as in the worker.
pub(super) const BURST: usize = 64;
/// Bursts that are prepared together: 256 frames stay in the second-level cache, as freshly
/// received ones do.
pub(super) const BURSTS: usize = 4;

/// Options of `testudo bench esp`.
#[derive(Debug, clap::Args)]
pub(crate) struct EspArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cipher library: ipsec-mb or aws-lc [default: the faster one available].
    #[arg(long)]
    library: Option<Library>,
    /// Also draw nanoseconds per packet as a picture (SVG).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Octets of the inner IP packets; or imix: seven of 64, four of 570 and one of 1420. Those
    /// above 1446 cross links with an MTU of 9000.
    #[arg(long, value_delimiter = ',', default_value = "64,256,512,1024,1420,4096,8900,imix")]
    sizes: Vec<Traffic>,
    /// Ciphers, by strongSwan's names, such as aes128gcm16, aes128-sha1 or null-sha256.
    #[arg(long, value_delimiter = ',', default_value = "aes128gcm16")]
    ciphers: Vec<Suite>,
    /// Measured time of each row, for the pipeline and for the cipher each.
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    seconds: f64,
    /// Rounds that this time is divided into.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// CPU to run on [default: the last one allowed].
    #[arg(long)]
    cpu: Option<usize>,
    /// Measure instead what a packet costs at the nodes of a cluster that relay it and carry it,
    /// beside a packet that has reached the right node.
    #[arg(long, conflicts_with_all = ["svg", "secgw"])]
    relayed: bool,
    /// DPDK's example gateway, for comparison; scripts/build-secgw.sh builds it.
    #[arg(long, value_name = "PROGRAM", default_value = "target/secgw/ipsec-secgw")]
    secgw: PathBuf,
}

pub(super) fn positive(text: &str) -> Result<f64, TimeError> {
    TimeError::check(text, "seconds", 3600.0)
}

/// Measures, prints the table, writes the report.
pub(crate) fn run(args: &EspArgs, progress: &Progress) -> Result<(), BenchError> {
    let library = args.library.unwrap_or_else(Library::detect);
    library.available()?;
    if args.relayed {
        return relay::run(args, library, progress);
    }
    let mut rows: Vec<Row> = Vec::new();
    let cpu = pin(args.cpu)?;
    let report = Report::new("esp", Machine::here(library, Some(cpu)));
    println!("{}\n", report.machine());
    progress.begin("DPDK's dpdk-test-crypto-perf", 0);
    let dpdk = Dpdk::run(cpu, &args.ciphers, &args.sizes);
    let say = |line: &str| progress.aside(|| println!("{line}"));
    if let Err(reason) = &dpdk {
        say(&format!("No figures of DPDK's bench, which Debian's package dpdk-dev brings: {reason}\n"));
    }
    let secgw = Secgw::new(&args.secgw, cpu);
    say(&match &secgw {
        Ok(secgw) => format!("{}\n", secgw.note()),
        Err(reason) => {
            format!("No figures of DPDK's ipsec-secgw, which scripts/build-secgw.sh builds: {reason}\n")
        }
    });
    let mut secgw = secgw.ok();
    say(&Header.to_string());
    // Each row has an additional first round.
    progress.begin("esp", (args.ciphers.len() * args.sizes.len()) as u64 * u64::from(args.rounds + 1));
    for suite in &args.ciphers {
        for traffic in &args.sizes {
            progress.doing(format!("esp, {}, {traffic} octets", suite.name()));
            for mut row in measure(args, library, *suite, *traffic, secgw.as_mut(), progress)? {
                row.dpdk_ns = dpdk.as_ref().ok().and_then(|dpdk| dpdk.ns(row.direction(), *suite, *traffic));
                say(&row.to_string());
                rows.push(row);
            }
        }
    }
    report::draw(args.svg.as_deref(), || picture::draw(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// Both directions of one case.
fn measure(
    args: &EspArgs,
    library: Library,
    suite: Suite,
    traffic: Traffic,
    mut secgw: Option<&mut Secgw>,
    progress: &Progress,
) -> Result<[Row; 2], BenchError> {
    let mut rig = Rig::new(library, suite, traffic, Membership::Alone)?;
    let mut cipher = BareCipher::new(library, suite, rig.text_lens())?;
    let [mut outward, mut inward, mut seal, mut open] = [const { Stopwatch::new() }; 4];
    if let Some(secgw) = &mut secgw {
        secgw.start(suite, traffic);
    }
    let round = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    for number in 0..=args.rounds {
        // The first round warms up caches, branch predictor and clock; it does not count.
        if number == 1 {
            [&mut outward, &mut inward, &mut seal, &mut open].into_iter().for_each(Stopwatch::reset);
            if let Some(secgw) = &mut secgw {
                secgw.reset();
            }
        }
        let end = round * number.max(1);
        while outward.time().min(inward.time()) < end {
            rig.run(&mut outward, &mut inward)?;
        }
        while seal.time().min(open.time()) < end {
            if !cipher.run(&mut seal, &mut open) {
                return Err(BenchError::Cipher);
            }
        }
        if let Some(secgw) = &mut secgw {
            secgw.round(round);
        }
        progress.step();
    }
    let labels = |direction| Labels { direction, cipher: suite.name(), traffic };
    let mut rows = [Row::new(labels("out"), &outward, &seal), Row::new(labels("in"), &inward, &open)];
    let rivals = secgw.and_then(Secgw::finish);
    rows.iter_mut().zip(rivals.iter().flatten()).for_each(|(row, rival)| row.set_rival(*rival));
    Ok(rows)
}
