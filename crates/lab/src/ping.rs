//! Echo requests with statistics.

use crate::{Error, Namespace, Result};
use std::net::IpAddr;
use std::time::Duration;

/// What to send.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Where to.
    pub to: IpAddr,
    /// How many.
    pub count: u32,
    /// Octets of data in each.
    pub size: u32,
    /// Time between two.
    pub interval: Duration,
    /// Sets DF and never fragments (IPv4), or never fragments (IPv6).
    pub dont_fragment: bool,
    /// Octets that fill the data, over and over, behind the time stamp.
    pub pattern: Option<[u8; 8]>,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pong {
    /// Requests sent.
    pub sent: u32,
    /// Replies received, without duplicates.
    pub received: u32,
    /// Duplicate replies.
    pub duplicates: u32,
    /// Mean round-trip time, if anything came back.
    pub mean: Option<Duration>,
}

impl Ping {
    /// Ten requests of the usual size in 0.2 s.
    pub fn new(to: IpAddr) -> Self {
        Self {
            to,
            count: 10,
            size: 56,
            interval: Duration::from_millis(20),
            dont_fragment: false,
            pattern: None,
        }
    }

    /// How many to send.
    pub fn count(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// How many octets of data each has.
    pub fn size(mut self, size: u32) -> Self {
        self.size = size;
        self
    }

    /// Forbids fragments.
    pub fn dont_fragment(mut self) -> Self {
        self.dont_fragment = true;
        self
    }

    /// Marks the data, so that it can be looked for in a capture.
    pub fn pattern(mut self, octets: [u8; 8]) -> Self {
        self.pattern = Some(octets);
        self
    }

    /// Sends from that namespace, and waits two seconds for the last reply. That nothing comes back is no error.
    pub fn run(&self, from: &Namespace) -> Result<Pong> {
        let mut args = vec!["-n".into(), "-q".into(), "-W".into(), "2".into()];
        args.extend(["-c".into(), self.count.to_string(), "-s".into(), self.size.to_string()]);
        args.extend(["-i".into(), self.interval.as_secs_f64().to_string()]);
        if self.dont_fragment {
            args.extend(["-M".into(), "do".into()]);
        }
        if let Some(pattern) = self.pattern {
            args.extend(["-p".into(), pattern.iter().map(|octet| format!("{octet:02x}")).collect()]);
        }
        args.push(self.to.to_string());
        // On a machine that is busy otherwise the intervals become longer.
        let limit = self.interval * self.count * 3 + Duration::from_secs(30);
        let done = from.cmd("ping").args(&args).limit(limit).run_any()?;
        parse(&done.stdout)
            .ok_or_else(|| Error::unexpected("ping", "statistics", format!("{}{}", done.stdout, done.stderr)))
    }
}

fn parse(output: &str) -> Option<Pong> {
    let summary = output.lines().find(|line| line.contains("packets transmitted"))?;
    let count = |label: &str| {
        let part = summary.split(',').find(|part| part.contains(label))?;
        part.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
    };
    let mean = output.lines().find_map(|line| {
        let mean = line.strip_prefix("rtt ")?.split(" = ").nth(1)?.split('/').nth(1)?;
        Some(Duration::from_secs_f64(mean.parse::<f64>().ok()? / 1000.0))
    });
    Some(Pong {
        sent: count("transmitted")?,
        received: count("received")?,
        duplicates: count("duplicates").unwrap_or(0),
        mean,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read() {
        let output = "PING 10.2.0.2 (10.2.0.2) 56(84) bytes of data.\n\n--- 10.2.0.2 ping statistics ---\n\
            10 packets transmitted, 9 received, +2 duplicates, 10% packet loss, time 183ms\n\
            rtt min/avg/max/mdev = 0.100/1.500/2.000/0.010 ms\n";
        let mean = Some(Duration::from_micros(1500));
        assert_eq!(parse(output), Some(Pong { sent: 10, received: 9, duplicates: 2, mean }));
    }

    #[test]
    fn total_loss_has_no_mean() {
        let output = "3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 40ms\n";
        assert_eq!(parse(output), Some(Pong { sent: 3, received: 0, duplicates: 0, mean: None }));
    }
}
