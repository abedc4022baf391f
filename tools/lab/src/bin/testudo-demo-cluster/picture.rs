//! The picture of the failover.

use crate::run::Outcome;
use testudo_lab::plot::{Data, Dot, Mark, Panel, Step, Timeline};
use testudo_lab::series::seconds;

/// Seconds of the download before and after the kill.
const AROUND: (f64, f64) = (-2.0, 4.0);
/// Milliseconds of the probe before and after the kill.
const NEAR: (f64, f64) = (-40.0, 100.0);

/// The download over some seconds, and every datagram of the probe near the kill.
pub(crate) fn draw(outcome: &Outcome) -> Timeline {
    let (trace, summary) = outcome.worst();
    let outage = summary.outage;
    let length = outage.length.as_secs_f64();
    let back = seconds(outcome.kill, outage.from + outage.length + outage.silence);
    let mut moments = vec![(0.0, format!("testudod of node {} killed", outcome.victim))];
    if let Some(detection) = outcome.detection {
        let after = detection.as_secs_f64();
        moments.push((after, format!("noticed after {:.1} ms", after * 1e3)));
    }
    moments.push((back, format!("traffic flows again after {:.1} ms", back * 1e3)));
    let marks = |unit: f64| {
        moments.iter().map(|(at, name)| Mark { at: at * unit, name: name.clone() }).collect::<Vec<_>>()
    };
    let rates = outcome.download.over_time.rates(outcome.kill);
    let edge = |found: Option<&(f64, f64)>, otherwise: f64| found.map_or(otherwise, |(at, _)| *at);
    let begin = edge(rates.first(), AROUND.0).max(AROUND.0);
    let end = edge(rates.last(), AROUND.1).clamp(back.max(0.0) + 0.5, AROUND.1.max(back + 0.5));
    let gigabits =
        rates.into_iter().map(|(from, octets)| Step { from, amount: octets * 8.0 / 1e9 }).collect();
    let dots = trace.delays().map(|(sent, delay)| Dot {
        at: seconds(outcome.kill, sent) * 1e3,
        amount: delay.map(|delay| delay.as_secs_f64() * 1e3),
    });
    Timeline {
        title: format!("One node of {} is killed", outcome.nodes),
        subtitle: format!(
            "HTTP download of {:.0} MB and a 1 kHz UDP probe through the same tunnel. Outage {:.1} ms, {} datagrams \
             lost, {} doubled; {} tunnels.",
            outcome.download.bytes as f64 / 1e6,
            length * 1e3,
            summary.lost,
            summary.duplicates,
            outcome.tunnels,
        ),
        panels: vec![
            Panel {
                data: Data::Steps(gigabits),
                x_name: "seconds after the kill".into(),
                x_range: begin..=end,
                y_name: "download, Gb/s".into(),
                marks: marks(1.0),
            },
            Panel {
                data: Data::Dots(dots.collect()),
                x_name: "milliseconds after the kill, by time of sending".into(),
                x_range: NEAR.0..=(back * 1e3 * 1.6).max(NEAR.1),
                y_name: "probe: delay, ms".into(),
                marks: marks(1e3),
            },
        ],
    }
}
