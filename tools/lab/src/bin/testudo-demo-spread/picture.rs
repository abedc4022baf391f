//! The picture: what each node does over time, and every datagram near the kill.

use crate::outcome::{Outcome, Rate, rates};
use crate::run::INTERVAL;
use std::time::Duration;
use testudo_lab::plot::{Data, Dot, Line, Mark, Panel, Step, Timeline};
use testudo_lab::series::seconds;

/// Milliseconds of the traffic before and after the kill.
const NEAR: (f64, f64) = (-40.0, 150.0);

pub(crate) fn draw(outcome: &Outcome) -> Timeline {
    let takeovers = outcome.takeovers();
    let slower = usize::from(takeovers[1].length > takeovers[0].length);
    let takeover = takeovers[slower];
    let back = takeover.length.as_secs_f64() * 1e3;
    Timeline {
        title: "One tunnel on one node, on two, on all".into(),
        subtitle: format!(
            "{:.0} datagrams/s through one SA, whose packets all nodes share. Node {} is killed: {} of the {} \
             datagrams of {:.1} ms are lost in one direction.",
            2.0 / INTERVAL.as_secs_f64(),
            outcome.victim,
            takeover.lost,
            takeover.sent,
            back
        ),
        panels: vec![
            over_time(outcome, "packets of the tunnel, thousand/s", |rate| rate.packets_per_s / 1e3),
            over_time(outcome, "processor, %", |rate| rate.cpu_percent),
            near(outcome, slower, back),
        ],
    }
}

/// A line for each node, from the first sample on.
fn over_time(outcome: &Outcome, name: &str, amount: impl Fn(Rate) -> f64) -> Panel {
    let zero = outcome.samples.first().map_or(outcome.kill, |sample| sample.at);
    let nodes = outcome.samples.first().map_or(0, |sample| sample.nodes.len());
    let mut lines: Vec<Line> =
        (1..=nodes).map(|node| Line { name: format!("node {node}"), steps: Vec::new() }).collect();
    for (before, after) in outcome.samples.iter().zip(outcome.samples.iter().skip(1)) {
        let from = seconds(zero, before.at);
        for (line, rate) in lines.iter_mut().zip(rates(before, after)) {
            line.steps.push(Step { from, amount: rate.map_or(0.0, &amount) });
        }
    }
    let end = outcome.samples.last().map_or(1.0, |sample| seconds(zero, sample.at));
    let mark =
        |stage: &crate::outcome::Stage| Mark { at: seconds(zero, stage.begin), name: stage.name.clone() };
    Panel {
        data: Data::Lines(lines),
        x_name: "seconds".into(),
        x_range: 0.0..=end.max(1.0),
        y_name: name.into(),
        marks: outcome.stages.iter().map(mark).collect(),
    }
}

/// The datagrams of the direction with the slower takeover.
fn near(outcome: &Outcome, way: usize, back: f64) -> Panel {
    let dots = outcome.traces[way].delays().map(|(sent, delay)| Dot {
        at: seconds(outcome.kill, sent) * 1e3,
        amount: delay.map(|delay: Duration| delay.as_secs_f64() * 1e3),
    });
    let mut marks = vec![Mark { at: 0.0, name: format!("testudod of node {} killed", outcome.victim) }];
    if let Some(detection) = outcome.detection {
        let after = detection.as_secs_f64() * 1e3;
        marks.push(Mark { at: after, name: format!("noticed after {after:.1} ms") });
    }
    if back > 0.0 {
        marks.push(Mark { at: back, name: format!("all packets flow again after {back:.1} ms") });
    }
    Panel {
        data: Data::Dots(dots.collect()),
        x_name: "milliseconds after the kill, by time of sending".into(),
        x_range: NEAR.0..=(back * 1.6).max(NEAR.1),
        y_name: "delay, ms".into(),
        marks,
    }
}
