//! The interfaces of the ports.

use super::{Host, Report};
use crate::config::{Config, PortConfig, XdpMode};
use crate::datapath::checksums;
use crate::queue_assignment::numbered;
use testudo_fastpath::port::Facts;

/// The facts about each port, in order; `None` for an interface that is missing or cannot be a
/// port.
pub(super) fn look(config: &Config, host: &dyn Host, report: &mut Report) -> Vec<Option<Facts>> {
    config.ports.iter().map(|port| look_at(port, host, report)).collect()
}

fn look_at(port: &PortConfig, host: &dyn Host, report: &mut Report) -> Option<Facts> {
    let PortConfig { interface, place, .. } = port;
    let facts = match host.interface(interface) {
        Ok(Some(facts)) => facts,
        Ok(None) => {
            report.warn(format!(
                "{place}: found \"{interface}\", expected an interface of this host: there is none of that name now"
            ));
            return None;
        }
        Err(why) => {
            report.fault(format!("{place}: {why}"));
            return None;
        }
    };
    if !facts.ethernet {
        report.fault(format!("{place}: found \"{interface}\", expected an Ethernet interface"));
        return None;
    }
    if let Err(why) = numbered(interface, facts.queues) {
        report.fault(format!("{place}: {why}"));
        return None;
    }
    match (facts.up, facts.link) {
        (false, _) => report.warn(format!("{interface} is down: ip link set {interface} up")),
        (true, false) => report.warn(format!("{interface} is up and has no link")),
        (true, true) => {}
    }
    let facts = with_mtu(port, facts, report);
    report.would(attach(port, &facts));
    checksums::plan(port, facts.driver.as_deref()).into_iter().for_each(|line| report.would(line));
    Some(facts)
}

/// The facts as they are once the interface has the MTU that is configured.
fn with_mtu(port: &PortConfig, facts: Facts, report: &mut Report) -> Facts {
    let Some(mtu) = port.mtu.as_ref().map(|mtu| u32::from(mtu.octets)) else { return facts };
    if mtu != facts.mtu {
        report.would(format!("change the MTU of {} from {} to {mtu}", port.interface, facts.mtu));
    }
    Facts { mtu, ..facts }
}

/// Nodes that read several queues see packets in different orders.
pub(super) fn warn_of_queues(config: &Config, ports: &[Option<Facts>], report: &mut Report) {
    if config.spread.values().all(|spread| spread.turns().is_none()) {
        return;
    }
    for (port, facts) in config.ports.iter().zip(ports) {
        if let Some(queues @ 2..) = facts.as_ref().map(|facts| facts.queues.receive) {
            report.warn(format!(
                "{} has {queues} receive queues: packets of a connection whose [[spread]] takes turns must come by a \
                 port with one",
                port.interface
            ));
        }
    }
}

fn attach(port: &PortConfig, facts: &Facts) -> String {
    let mode = match port.mode {
        XdpMode::Native => "native",
        XdpMode::Generic => "generic",
    };
    let driver = facts.driver.as_deref().unwrap_or("unknown");
    let queues = match facts.queues.receive {
        1 => "1 queue".to_owned(),
        queues => format!("{queues} queues"),
    };
    format!("attach the filter to {} ({mode}; driver {driver}, MTU {}, {queues})", port.interface, facts.mtu)
}
