//! The counters of two gateways, and whether they add up.

use super::{Row, SIDES};
use crate::error::BenchError;
use crate::forward::site::Site;
use std::collections::BTreeMap;
use testudo_lab::topology::{INNER, OUTER, Side};
use testudo_vici::client::Client;
use testudo_vici::counters::{Counters, Named, PortCounters};
use testudo_vici::message::Message;

/// Both gateways' counters, and those of the interfaces between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Books {
    sides: [Book; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Book {
    counters: Counters,
    /// Frames that the kernel has lost when they left the outer interface.
    lost_going_out: u64,
}

impl Books {
    pub(super) fn read(site: &Site) -> Result<Self, BenchError> {
        let read = |side: Side| {
            let Some((namespace, testudod)) = site.testudo(side) else {
                unreachable!("this bench starts testudod and nothing else")
            };
            let answer = Client::connect(testudod.socket())?.request("testudo-counters", Message::new())?;
            let counters = Counters::from_message(&answer)?;
            let lost_going_out = namespace.statistic(OUTER, "tx_dropped")?;
            Ok::<_, BenchError>(Book { counters, lost_going_out })
        };
        Ok(Self { sides: [read(Side::One)?, read(Side::Two)?] })
    }

    /// No gateway has an SA to replace, and none holds a packet.
    pub(super) fn is_calm(&self, tunnels: u8) -> bool {
        self.sides.iter().all(|book| {
            let calm = ["held", "away"].iter().all(|name| book.total(name) == 0);
            calm && ["inbound_sas", "outbound_sas"].iter().all(|name| book.total(name) == u64::from(tunnels))
        })
    }

    /// Every packet since an earlier reading is accounted for.
    pub(super) fn adds_up(&self, before: &Self) -> bool {
        SIDES
            .iter()
            .all(|side| self.missing_within(*side, before) == 0 && self.missing_between(*side, before) == 0)
    }

    fn missing_within(&self, side: Side, before: &Self) -> i64 {
        let [now, then] = [self, before].map(|books| books.sides[side.index()].missing());
        now - then
    }

    fn missing_between(&self, side: Side, before: &Self) -> i64 {
        let [now, then] = [self, before].map(|books| books.missing_behind(side));
        now - then
    }

    /// The changes since an earlier reading.
    pub(super) fn rows(&self, before: &Self) -> Vec<Row> {
        let sum = |of: &dyn Fn(&Book) -> u64| {
            let [now, then] = [self, before].map(|books| books.sides.iter().map(of).sum::<u64>());
            now as f64 - then as f64
        };
        let mut rows = vec![
            Row::new("from the hosts into the gateways", "packets", sum(&|book| book.port(INNER).rx_packets)),
            Row::new("out of the gateways to the hosts", "packets", sum(&|book| book.port(INNER).tx_packets)),
        ];
        let mut reasons = BTreeMap::new();
        for (books, sign) in [(self, 1.0), (before, -1.0)] {
            for (reason, count) in books.sides.iter().flat_map(|book| &book.counters.drops) {
                *reasons.entry(reason).or_insert(0.0) += sign * *count as f64;
            }
        }
        let dropped = reasons.into_iter().filter(|(_, count)| *count != 0.0);
        rows.extend(dropped.map(|(reason, count)| Row::new(format!("dropped: {reason}"), "packets", count)));
        rows.push(Row::new("lost by the kernel between", "packets", sum(&|book| book.lost_going_out)));
        for side in SIDES {
            let what = format!("not accounted for within gateway {}", side.index() + 1);
            rows.push(Row::new(what, "packets", self.missing_within(side, before) as f64).aim(0.0));
        }
        for side in SIDES {
            let [from, to] = [side, side.other()].map(|side| side.index() + 1);
            let what = format!("not accounted for between gateways {from} and {to}");
            rows.push(Row::new(what, "packets", self.missing_between(side, before) as f64).aim(0.0));
        }
        let left = |name: &'static str| sum(&|book| book.total(name));
        rows.push(Row::new("SAs left behind", "", left("inbound_sas") + left("outbound_sas")).aim(0.0));
        // Nobody attacks.
        rows.push(Row::new("alarms", "", sum(&|book| self::sum(&book.counters.alarms))).aim(0.0));
        rows
    }

    /// Packets that this side's gateway has sent to the other, and that neither the kernel has lost
    /// nor the other's port has seen.
    fn missing_behind(&self, side: Side) -> i64 {
        let [from, to] = [side, side.other()].map(|side| &self.sides[side.index()]);
        let PortCounters { rx_packets, drops, .. } = to.port(OUTER);
        let sent = from.port(OUTER).tx_packets - from.lost_going_out;
        sent.cast_signed() - (rx_packets + sum(drops)).cast_signed()
    }
}

impl Book {
    fn port(&self, name: &str) -> &PortCounters {
        let found = self.counters.ports.iter().find(|port| port.name == name);
        found.unwrap_or_else(|| unreachable!("both interfaces of a site are ports"))
    }

    fn total(&self, name: &str) -> u64 {
        self.counters.totals.iter().find(|(total, _)| total == name).map_or(0, |(_, count)| *count)
    }

    /// Packets that were received or created by the gateway, and neither sent, dropped nor held.
    fn missing(&self) -> i64 {
        let totals = |names: &[&str]| names.iter().map(|name| self.total(name)).sum::<u64>();
        let ports = |of: fn(&PortCounters) -> u64| self.counters.ports.iter().map(of).sum::<u64>();
        let dropped: u64 = self.counters.workers.iter().map(|worker| sum(&worker.drops)).sum();
        let came = ports(|port| port.rx_packets) + totals(&["from_tun", "icmp_sent", "split"]);
        let went = ports(|port| port.tx_packets) + totals(&["to_tun", "merged", "joined", "held", "away"]);
        came.cast_signed() - (went + dropped).cast_signed()
    }
}

fn sum(named: &Named) -> u64 {
    named.iter().map(|(_, count)| count).sum()
}
