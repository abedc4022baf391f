//! The effects of an event on the users of the first peer's tunnel.

use std::time::Duration;
use testudo_lab::Result;
use testudo_lab::bed::Bed;
use testudo_lab::probe::Probe;

/// One value for each event.
#[derive(Default)]
pub(super) struct Noticed {
    /// The longest silence of a probe, in milliseconds.
    pub(super) silence: Vec<f64>,
    /// Datagrams of both probes.
    pub(super) lost: Vec<f64>,
    /// Duplicate datagrams of both probes.
    pub(super) duplicates: Vec<f64>,
    /// 1 if the tunnel was replaced or carried nothing afterwards.
    pub(super) tunnels: Vec<f64>,
}

impl Noticed {
    /// Ends the probes. `tunnel` is the SPI before the event. Returns the longest silence.
    pub(super) fn end(&mut self, bed: &Bed, probes: [Probe; 2], tunnel: Option<String>) -> Result<Duration> {
        let (mut silence, mut lost, mut duplicates) = (Duration::ZERO, 0, 0);
        for trace in probes.map(Probe::stop) {
            let summary = trace?.summary();
            silence = silence.max(summary.outage.length);
            lost += summary.lost;
            duplicates += summary.duplicates;
        }
        let kept = bed.tunnel_spi(1)? == tunnel && bed.carries(1)?;
        self.silence.push(silence.as_secs_f64() * 1e3);
        self.lost.push(lost as f64);
        self.duplicates.push(duplicates as f64);
        self.tunnels.push(if kept { 0.0 } else { 1.0 });
        Ok(silence)
    }
}
