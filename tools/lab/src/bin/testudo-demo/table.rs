//! The report as text.

use crate::report::{Measured, Report, RunReport, WANTED_CPU, WANTED_SPEEDUP};
use std::collections::BTreeMap;
use std::fmt::Write;
use testudo_lab::gateway::Kind;

/// The IKE messages, and one echo request with its reply.
const SHOWN_PACKETS: usize = 6;

/// A row of the table: its name, and how to read its value.
type Row = (&'static str, fn(&Measured) -> String);

/// The whole text that the demo prints at its end.
pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n== swanctl --list-sas on {} with {} as the peer", run.gateway, run.peer);
        text.push_str(&run.measured.list_sas);
    }
    let runs: Vec<&RunReport> = [&report.baseline].into_iter().chain(&report.runs).collect();
    text.push_str(&first_packets(&report.runs));
    text.push_str(&figures(&runs));
    text.push_str(&goals(report));
    let problems = report.problems();
    if problems.is_empty() {
        let clear: u64 = runs.iter().filter_map(|run| run.measured.cleartext_packets).sum();
        let _ = writeln!(text, "\nEverything worked. cleartext packets: {clear}");
    } else {
        let _ = writeln!(text, "\nFAILED:");
        for problem in problems {
            let _ = writeln!(text, "  {problem}");
        }
        for shown in runs.iter().map(|run| &run.measured.clear_packets_shown).filter(|s| !s.is_empty()) {
            let _ = writeln!(text, "Clear packets:\n{shown}");
        }
    }
    text
}

fn first_packets(runs: &[RunReport]) -> String {
    let mut text = String::new();
    for run in runs {
        let _ = writeln!(text, "\n== First packets of the tunnel, {} to {}", run.gateway, run.peer);
        let of_tunnel = |line: &&str| line.contains("isakmp") || line.contains("ESP");
        for line in run.measured.setup.lines().filter(of_tunnel).take(SHOWN_PACKETS) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn figures(runs: &[&RunReport]) -> String {
    let mut text = String::from("\n== Figures\n");
    let titles = |run: &RunReport| format!("{} to {}", run.gateway, run.peer);
    row(&mut text, "", runs, titles);
    let rows: [Row; 9] = [
        ("download, MiB", |m| (m.download_bytes >> 20).to_string()),
        ("download, Gb/s", |m| format!("{:.2}", m.download_gbps)),
        ("iperf3 out, Gb/s", |m| format!("{:.2}", m.iperf_gbps_out)),
        ("iperf3 in, Gb/s", |m| format!("{:.2}", m.iperf_gbps_in)),
        ("CPU s/Gbit, gateway", |m| format!("{:.3}", m.cpu_s_per_gbit)),
        ("CPU s/Gbit, peer", |m| format!("{:.3}", m.peer_cpu_s_per_gbit)),
        ("ESP packets", |m| m.esp_packets.to_string()),
        ("cleartext packets", |m| m.cleartext_packets.map_or("unknown".into(), |n| n.to_string())),
        ("dropped by the gateway", |m| dropped(m)),
    ];
    for (name, value) in rows {
        row(&mut text, name, runs, |run| value(&run.measured));
    }
    for run in runs {
        for (reason, count) in run.measured.drops.iter().flatten().filter(|(_, count)| **count > 0) {
            let _ = writeln!(text, "{} to {} dropped {count}: {reason}", run.gateway, run.peer);
        }
    }
    text
}

fn dropped(measured: &Measured) -> String {
    let total = |drops: &BTreeMap<String, u64>| drops.values().sum::<u64>().to_string();
    measured.drops.as_ref().map_or_else(|| "not told".into(), total)
}

fn row(text: &mut String, name: &str, runs: &[&RunReport], value: impl Fn(&RunReport) -> String) {
    let _ = write!(text, "{name:<24}");
    for run in runs {
        let _ = write!(text, "{:>26}", value(run));
    }
    text.push('\n');
}

fn goals(report: &Report) -> String {
    let verdict = |reached: bool| if reached { "reached" } else { "NOT reached" };
    let comparison = &report.comparison;
    let base = &report.baseline.measured;
    let beside = report.runs.iter().find(|run| run.peer == Kind::Strongswan).map(|run| &run.measured);
    let mut text = String::from("\n== Numbers to reach\n");
    let _ = writeln!(
        text,
        "one TCP stream, Testudo to Testudo: {:.1} times strongSwan to strongSwan, {:.1} for the download (at least \
         {WANTED_SPEEDUP}): {}",
        comparison.speedup,
        comparison.download_speedup,
        verdict(comparison.speedup >= WANTED_SPEEDUP),
    );
    let _ = writeln!(
        text,
        "CPU per gigabit: {:.2} of strongSwan's (at most {WANTED_CPU}): {}",
        comparison.cpu_ratio,
        verdict(comparison.cpu_ratio > 0.0 && comparison.cpu_ratio <= WANTED_CPU),
    );
    if let Some(m) = beside {
        let _ = writeln!(
            text,
            "Testudo to strongSwan: out {:.2}, in {:.2} Gb/s; between strongSwans: out {:.2}, in {:.2} Gb/s",
            m.iperf_gbps_out, m.iperf_gbps_in, base.iperf_gbps_out, base.iperf_gbps_in,
        );
    }
    text
}
