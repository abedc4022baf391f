//! The ports, for people: state and traffic of each.

use super::text::reasons;
use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;
use testudo_terminal::units::{bytes, grouped, span};
use testudo_vici::counters::{PortCounters, PortStatus};

/// Two tables, and why ports wait.
pub(super) fn write(ports: &[PortCounters], out: &mut String) {
    conditions(ports, out);
    let waiting = ports.iter().filter_map(|port| Some((&port.name, port.status.why.as_ref()?)));
    for (name, why) in waiting {
        out.push_str(&format!("{name} cannot be used: {why}\n"));
    }
    traffic(ports, out);
}

fn conditions(ports: &[PortCounters], out: &mut String) {
    let mut table = Table::new(&[
        ("PORT", Left),
        ("STATE", Left),
        ("FOR", Left),
        ("LINK", Left),
        ("QUEUES", Right),
        ("ROUTES", Right),
        ("FILTER", Left),
    ]);
    for PortCounters { name, status, .. } in ports {
        table.row(vec![
            name.clone(),
            status.state.clone(),
            span(status.seconds),
            link(status),
            status.queues.to_string(),
            grouped(status.routes),
            status.filter.clone().unwrap_or_else(|| "none".to_owned()),
        ]);
    }
    out.push('\n');
    table.write(out, "");
}

fn link(status: &PortStatus) -> String {
    let mtu = status.mtu.map(|mtu| format!("MTU {mtu}"));
    let speed = status.speed.map(|speed| format!("{} Mb/s", grouped(speed)));
    let known: Vec<String> = mtu.into_iter().chain(speed).collect();
    if known.is_empty() { "-".to_owned() } else { known.join(", ") }
}

fn traffic(ports: &[PortCounters], out: &mut String) {
    let mut table = Table::new(&[
        ("PORT", Left),
        ("KIND", Left),
        ("RX PACKETS", Right),
        ("RX BYTES", Right),
        ("TX PACKETS", Right),
        ("TX BYTES", Right),
        ("DROPS", Left),
    ]);
    for port in ports {
        table.row(vec![
            port.name.clone(),
            port.kind.clone(),
            grouped(port.rx_packets),
            bytes(port.rx_bytes),
            grouped(port.tx_packets),
            bytes(port.tx_bytes),
            reasons(&port.drops),
        ]);
    }
    out.push('\n');
    table.write(out, "");
}
