//! The status for people.

use super::children;
use super::ports;
use super::sa::{ChildSa, Direction, Endpoint, IkeSa};
use super::snapshot::{Daemon, Snapshot};
use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;
use testudo_terminal::units::{bytes, grouped, span};
use testudo_vici::counters::{Counters, Named};

/// The whole status.
pub(super) fn format(snapshot: &Snapshot) -> String {
    let mut out = daemon(&snapshot.daemon, snapshot.ike_sas.len());
    children::format(&snapshot.children, &mut out);
    for sa in &snapshot.ike_sas {
        out.push('\n');
        ike_sa(sa, &mut out);
    }
    counters(&snapshot.counters, &mut out);
    out
}

fn daemon(daemon: &Daemon, ike_sas: usize) -> String {
    let sas = if ike_sas == 1 { "IKE SA" } else { "IKE SAs" };
    format!(
        "{} {}, up {} (since {}), {ike_sas} {sas}, {} half-open\n",
        daemon.name, daemon.version, daemon.uptime, daemon.since, daemon.half_open
    )
}

fn ike_sa(sa: &IkeSa, out: &mut String) {
    let since = sa.established.map(|seconds| format!(" {}", span(seconds))).unwrap_or_default();
    let role = if sa.initiator { "initiator" } else { "responder" };
    out.push_str(&format!("{} #{}  {}{since}  {role}", sa.connection, sa.id, sa.state));
    if !sa.suite.is_empty() {
        out.push_str(&format!("  {}", sa.suite));
    }
    out.push_str(&format!("\n  {} === {}\n", endpoint(&sa.local), endpoint(&sa.remote)));
    for child in &sa.children {
        child_sa(child, out);
    }
}

fn endpoint(end: &Endpoint) -> String {
    let address = &end.address;
    let address = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    format!("{address}:{} ({})", end.port, end.identity)
}

fn child_sa(child: &ChildSa, out: &mut String) {
    let esn = if child.esn { " ESN" } else { "" };
    let udp = if child.udp { " in UDP" } else { "" };
    out.push_str(&format!(
        "  {} #{}  {} {}  ESP {}{esn}{udp}\n    {} === {}\n",
        child.name,
        child.id,
        child.state,
        span(child.installed),
        child.cipher,
        child.local_ts.join(" "),
        child.remote_ts.join(" "),
    ));
    let mut table = Table::new(&[("", Left), ("", Left), ("", Right), ("", Right), ("", Left)]);
    for (name, direction) in [("in", &child.inbound), ("out", &child.outbound)] {
        table.row(direction_row(name, direction));
    }
    table.write(out, "    ");
}

fn direction_row(name: &str, direction: &Direction) -> Vec<String> {
    let last = direction.idle.map(|seconds| format!("last {} ago", span(seconds)));
    vec![
        name.to_owned(),
        direction.spi.clone(),
        format!("{} packets", grouped(direction.packets)),
        bytes(direction.bytes),
        last.unwrap_or_else(|| "unused".to_owned()),
    ]
}

fn counters(counters: &Counters, out: &mut String) {
    ports::write(&counters.ports, out);
    workers(counters, out);
    named("Data plane", &counters.totals, out);
    named("Key exchange", &counters.ike, out);
    named("Dropped", &counters.drops, out);
    if !counters.inherited.is_empty() {
        out.push_str("\nLeft by an earlier process or an unloaded connection, dropped until a connection claims them (`testudo shut`):\n");
        for prefix in &counters.inherited {
            out.push_str(&format!("  {prefix}\n"));
        }
    }
}

fn workers(counters: &Counters, out: &mut String) {
    let mut table = Table::new(&[
        ("WORKER", Left),
        ("CPU", Right),
        ("CIPHER", Left),
        ("BURSTS", Right),
        ("PACKETS", Right),
        ("PER BURST", Right),
        ("DROPS", Left),
    ]);
    for worker in &counters.workers {
        let per_burst = worker.packets as f64 / worker.bursts.max(1) as f64;
        table.row(vec![
            worker.index.to_string(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            worker.cipher.clone(),
            grouped(worker.bursts),
            grouped(worker.packets),
            format!("{per_burst:.1}"),
            reasons(&worker.drops),
        ]);
    }
    out.push('\n');
    table.write(out, "");
}

/// The reasons that occurred, in one cell.
pub(super) fn reasons(drops: &Named) -> String {
    let occurred = drops.iter().filter(|(_, count)| *count > 0);
    let shown: Vec<_> = occurred.map(|(reason, count)| format!("{reason} {}", grouped(*count))).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Counters that are not zero, one line each.
fn named(title: &str, counters: &Named, out: &mut String) {
    let mut table = Table::new(&[("", Left), ("", Right)]);
    let mut any = false;
    for (name, count) in counters.iter().filter(|(_, count)| *count > 0) {
        table.row(vec![name.clone(), grouped(*count)]);
        any = true;
    }
    out.push_str(&format!("\n{title}{}\n", if any { "" } else { ": nothing" }));
    table.write(out, "  ");
}
