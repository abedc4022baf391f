//! The rows about costs, and the speed-up that follows from them.

use super::costs::{Cost, Costs};
use super::formula::{even, speed_up};
use super::lanes::Carriers;
use super::scheme::Scheme;
use super::{Direction, SpreadArgs};
use crate::figures::{Aim, Row, Source};
use crate::stopwatch::median;
use testudo_lab::plot::{Chart, Series, Style};

/// Q / R of [FLAT] for packets of 1446 octets.
const PAPER: f64 = 0.0172;
/// Nanoseconds for a packet that is dropped, at most.
const MAX_Q: f64 = 60.0;
/// The same, where it is counted too.
const MAX_Q_IN_TURN: f64 = 90.0;
/// The part of the ideal speed-up that six nodes reach, at least.
const EFFICIENCY: f64 = 0.9;

pub(super) fn rows(args: &SpreadArgs, costs: &Costs) -> Vec<Row> {
    let mut rows = Vec::new();
    for direction in Direction::ALL {
        let way = direction.name();
        let alone = costs.alone[direction as usize].own.clone();
        rows.push(Row::new(format!("R {way}, not in a cluster"), "ns", alone));
        for scheme in Scheme::ALL {
            let cost = costs.of(scheme, direction);
            let name = scheme.name();
            rows.push(Row::new(format!("R {way}, {name}"), "ns", cost.own.clone()));
            let dropped = Row::new(format!("Q {way}, {name}"), "ns", cost.other.clone());
            let counts =
                direction == Direction::Out && scheme.spread().is_some_and(|by| by.turns().is_some());
            rows.push(dropped.aim(Aim::median_at_most(if counts { MAX_Q_IN_TURN } else { MAX_Q })));
            let parts = cost.own.iter().zip(&cost.other).map(|(own, other)| other / own).collect();
            rows.push(Row::new(format!("Q {way}, {name}"), "R", parts).others(Source::Flat, "0.0172"));
        }
    }
    for nodes in &args.nodes {
        let shares = Carriers::of(*nodes).shares();
        for direction in Direction::ALL {
            for scheme in Scheme::SPREAD {
                let cost = costs.of(scheme, direction);
                let name = |table| format!("{nodes} nodes, {}, {}, {table}", direction.name(), scheme.name());
                let by_table = Row::new(name("lanes by the shard table"), "times", all(cost, &shares));
                rows.push(judged(by_table, *nodes));
                rows.push(Row::new(name("the same number of lanes each"), "times", all(cost, &even(*nodes))));
            }
        }
    }
    rows
}

/// The speed-up of every round.
fn all(cost: &Cost, shares: &[f64]) -> Vec<f64> {
    cost.own.iter().zip(&cost.other).map(|(own, other)| speed_up(*own, *other, shares)).collect()
}

fn judged(row: Row, nodes: u8) -> Row {
    match nodes {
        2 => row.others(Source::Flat, "1.97"),
        3 => row.others(Source::Flat, "2.91"),
        6 => row.others(Source::Flat, "5.51").aim(Aim::median_at_least(EFFICIENCY * 6.0)),
        _ => row,
    }
}

/// The speed-up over the number of nodes.
pub(super) fn picture(args: &SpreadArgs, costs: &Costs) -> String {
    let line = |name: String, of: &dyn Fn(u8) -> Option<f64>| Series {
        name,
        values: args.nodes.iter().map(|nodes| of(*nodes)).collect(),
    };
    let mut series = vec![
        line("ideal".into(), &|nodes| Some(nodes.into())),
        line("[FLAT], Q = 0.0172 R".into(), &|nodes| Some(speed_up(1.0, PAPER, &even(nodes)))),
    ];
    for direction in Direction::ALL {
        for scheme in Scheme::SPREAD {
            let cost = costs.of(scheme, direction);
            let name = format!("{}, {}", direction.name(), scheme.name());
            series.push(line(name, &|nodes| median(all(cost, &Carriers::of(nodes).shares()).into_iter())));
        }
    }
    Chart {
        title: "One SA on several nodes".into(),
        subtitle: format!(
            "Computed from the measured cost of a packet of {} octets at the node that works on it and at one that \
             drops it",
            args.size
        ),
        x_name: "nodes".into(),
        y_name: "times the throughput of one node".into(),
        cases: args.nodes.iter().map(u8::to_string).collect(),
        series,
        style: Style::Lines,
        limits: Vec::new(),
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(own: &[f64], other: &[f64]) -> Cost {
        Cost { own: own.to_vec(), other: other.to_vec(), ..Cost::default() }
    }

    #[test]
    fn each_round_gives_a_speed_up() {
        let cost = cost(&[1000.0, 2000.0], &[0.0, 2000.0]);
        assert_eq!(all(&cost, &even(4)), [4.0, 1.0]);
    }

    #[test]
    fn six_nodes_are_judged_and_compared() {
        let row = |values: &[f64]| judged(Row::new("x", "times", values.to_vec()), 6);
        let json = |row| serde_json::to_value(row).expect("it serialises");
        assert_eq!(json(row(&[5.4]))["reached"], true);
        assert_eq!(json(row(&[5.39]))["reached"], false);
        assert_eq!(json(row(&[5.4]))["others"]["figure"], "5.51");
        assert!(json(judged(Row::new("x", "times", vec![1.0]), 5))["others"].is_null());
    }
}
