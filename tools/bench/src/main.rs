//! testudo-bench, which `testudo bench` runs: the cost of the packet path, the handshakes and the
//! cluster on this machine, without a network.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its terminal")]

mod cores;
mod detect;
mod error;
mod esp;
mod failover;
mod figures;
mod forward;
mod host;
mod huge_pages;
mod latency;
mod machine;
mod migrate;
mod pin;
mod rates;
mod report;
mod setup;
mod soak;
mod spread;
mod stopwatch;
mod tunnels;
mod wireguard;

use clap::Parser as _;
use std::process::ExitCode;
use testudo_terminal::progress::Progress;

/// Measures the packet path and the handshakes of this machine, without a network.
#[derive(Debug, clap::Parser)]
#[command(name = "testudo-bench", bin_name = "testudo bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

/// Benchmarks.
#[derive(Debug, clap::Subcommand)]
enum Bench {
    /// Measure one SA, one flow, on several workers, beside as many SAs as workers.
    Cores(cores::CoresArgs),
    /// Measure how long it takes until an attack is noticed, for each kind of attack, with real
    /// daemons in the lab.
    Detect(detect::DetectArgs),
    /// Measure the whole ESP pipeline on one core, and beside it the bare cipher; also as DPDK's
    /// dpdk-test-crypto-perf has it, where that is installed (Debian's dpdk-dev), and the whole
    /// pipeline of DPDK's ipsec-secgw, where scripts/build-secgw.sh has built it.
    Esp(esp::EspArgs),
    /// Measure what a cluster of three nodes costs, and what it loses when one of them dies, with
    /// real daemons in the lab.
    Failover(failover::FailoverArgs),
    /// Measure what two gateways carry between the hosts behind them, beside other systems, with
    /// real daemons in the lab.
    Forward(forward::ForwardArgs),
    /// Measure TCP between two machines' own stacks through a tunnel, beside other systems, with
    /// real daemons in the lab.
    Host(host::HostArgs),
    /// Measure how long packets take through two gateways under load, beside the kernel's
    /// forwarding, with real daemons in the lab.
    Latency(latency::LatencyArgs),
    /// Measure how long a virtual machine takes to move to another host, in clear, through Testudo,
    /// QEMU's TLS and ssh, with real daemons and QEMUs in the lab.
    Migrate(migrate::MigrateArgs),
    /// Measure how much it costs to set up tunnels, with a real testudod in a namespace of its own.
    Setup(setup::SetupArgs),
    /// Load two gateways fully for minutes while their SAs are renewed, and account for every
    /// packet, with real daemons in the lab.
    Soak(soak::SoakArgs),
    /// Measure one tunnel that all nodes of a cluster work on: the speed-up, what becomes of the
    /// order of packets, and what is lost when a node dies; partly with real daemons in the lab.
    Spread(spread::SpreadArgs),
    /// Measure the pipeline with many SAs and traffic that chooses among them at random.
    Tunnels(tunnels::TunnelsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let progress = Progress::new();
    let result = match &cli.bench {
        Bench::Cores(args) => cores::run(args, &progress),
        Bench::Detect(args) => detect::run(args, &progress),
        Bench::Esp(args) => esp::run(args, &progress),
        Bench::Failover(args) => failover::run(args, &progress),
        Bench::Forward(args) => forward::run(args, &progress),
        Bench::Host(args) => host::run(args, &progress),
        Bench::Latency(args) => latency::run(args, &progress),
        Bench::Migrate(args) => migrate::run(args, &progress),
        Bench::Setup(args) => setup::run(args, &progress),
        Bench::Soak(args) => soak::run(args, &progress),
        Bench::Spread(args) => spread::run(args, &progress),
        Bench::Tunnels(args) => tunnels::run(args, &progress),
    };
    // An error must not be printed after the progress line.
    drop(progress);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testudo bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/bench.md"));

    #[test]
    fn every_benchmark_and_option_is_documented() {
        let missing = testudo_manual::missing(&Cli::command(), "testudo bench", PAGE);
        assert_eq!(missing, Vec::<String>::new());
    }
}
