//! DPDK's example gateway, ipsec-secgw, on the same core: the cost of the same packets in another
//! complete pipeline.
//!
//! No Debian package contains the program; `scripts/build-secgw.sh` builds it. It needs no network
//! card: its port replays a capture endlessly and discards what is sent. The cost of that alone is
//! measured with `dpdk-testpmd`, which only passes packets from receiving to sending. Our own
//! figures include our in-memory ports, so the fair comparison is with a value between its figure
//! and that figure less testpmd's.
//!
//! Repeated packets are replays. So its SA has no anti-replay window, while ours keeps its own.

mod error;
mod meter;
mod packets;
mod setup;

use super::Suite;
use super::traffic::Traffic;
use crate::stopwatch::PerPacket;
use error::SecgwError;
use meter::Meter;
use packets::Packets;
use setup::{Case, Memory};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The cost of a packet in the other gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rival {
    /// From receiving to sending.
    pub(crate) whole: PerPacket,
    /// Without receiving and sending.
    pub(crate) net: PerPacket,
}

/// The direction of packets through the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It encrypts.
    Out,
    /// It decrypts.
    In,
}

/// The gateway and the forwarding program, for both directions. Only one of them runs at a time, so
/// that all are measured under the same conditions as our pipeline.
struct Contest {
    out: [Meter; 2],
    inward: [Meter; 2],
    /// The programs' files; removed after they have ended.
    _dir: TempDir,
}

/// The program and its running instances.
pub(super) struct Secgw {
    program: PathBuf,
    cpu: usize,
    memory: Memory,
    contest: Option<Contest>,
    failed: bool,
}

impl Secgw {
    /// The program on this CPU.
    pub(super) fn new(program: &Path, cpu: usize) -> Result<Self, SecgwError> {
        let unusable = |source| SecgwError::File { path: program.to_owned(), source };
        let program = program.canonicalize().map_err(unusable)?;
        Ok(Self { program, cpu, memory: Memory::detect(), contest: None, failed: false })
    }

    /// Explains its figures.
    pub(super) fn note(&self) -> String {
        format!(
            "secgw: cycles of DPDK's ipsec-secgw; net: less those of dpdk-testpmd, which only receives and sends the same. \
             No window against replays, {}.",
            self.memory
        )
    }

    /// Begins a case. Only AES-GCM has figures; after a failure there are none.
    pub(super) fn start(&mut self, suite: Suite, traffic: Traffic) {
        let algorithm = setup::keyword(suite).filter(|_| !self.failed);
        let contest = algorithm.map(|algorithm| Contest::start(self, suite, algorithm, traffic));
        self.contest = self.unless_failed(contest.transpose()).flatten();
    }

    /// Lets each program run for that long.
    pub(super) fn round(&mut self, time: Duration) {
        let done = self.contest.as_mut().map(|contest| contest.round(time)).transpose();
        self.unless_failed(done);
    }

    /// Discards the measurements.
    pub(super) fn reset(&mut self) {
        self.contest.iter_mut().flat_map(Contest::meters).for_each(Meter::reset);
    }

    /// Ends the case; returns the figures of both directions.
    pub(super) fn finish(&mut self) -> Option<[Rival; 2]> {
        let rivals = self.contest.take().map(|contest| contest.rivals()).transpose();
        self.unless_failed(rivals).flatten()
    }

    /// Prints why there are no more figures.
    fn unless_failed<T>(&mut self, result: Result<T, SecgwError>) -> Option<T> {
        if let Err(reason) = &result {
            println!("No more figures of DPDK's ipsec-secgw: {reason}");
            (self.contest, self.failed) = (None, true);
        }
        result.ok()
    }
}

impl Contest {
    fn start(
        secgw: &Secgw,
        suite: Suite,
        algorithm: (&'static str, usize),
        traffic: Traffic,
    ) -> Result<Self, SecgwError> {
        let dir = tempfile::tempdir().map_err(SecgwError::Directory)?;
        let both = |way| -> Result<[Meter; 2], SecgwError> {
            let packets = Packets::new(way, suite, traffic)?;
            let place = dir.path().join(format!("{way:?}"));
            let case = Case { way, algorithm, traffic, memory: secgw.memory, cpu: secgw.cpu, dir: &place };
            case.write(&packets).map_err(|source| SecgwError::File { path: place.clone(), source })?;
            Ok([
                Meter::start(&case.gateway(&secgw.program), &place.join("gateway"), packets.sent)?,
                Meter::start(&case.forwarder(), &place.join("forwarder"), packets.received)?,
            ])
        };
        Ok(Self { out: both(Way::Out)?, inward: both(Way::In)?, _dir: dir })
    }

    fn meters(&mut self) -> impl Iterator<Item = &mut Meter> {
        self.out.iter_mut().chain(&mut self.inward)
    }

    fn round(&mut self, time: Duration) -> Result<(), SecgwError> {
        self.meters().try_for_each(|meter| meter.round(time))
    }

    fn rivals(&self) -> Result<[Rival; 2], SecgwError> {
        let rival = |[gateway, ports]: &[Meter; 2]| -> Result<Rival, SecgwError> {
            let (whole, ports) = (gateway.median()?, ports.median()?);
            Ok(Rival { whole, net: less(whole, ports) })
        };
        Ok([rival(&self.out)?, rival(&self.inward)?])
    }
}

fn less(whole: PerPacket, ports: PerPacket) -> PerPacket {
    PerPacket {
        ns: whole.ns - ports.ns,
        cycles: whole.cycles.zip(ports.cycles).map(|(whole, ports)| whole - ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_the_ports_is_subtracted() {
        let whole = PerPacket { ns: 200.0, cycles: Some(500.0) };
        let ports = PerPacket { ns: 40.0, cycles: Some(100.0) };
        assert_eq!(less(whole, ports), PerPacket { ns: 160.0, cycles: Some(400.0) });
        assert_eq!(less(whole, PerPacket { cycles: None, ..ports }).cycles, None);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Secgw::new(Path::new("/nowhere/ipsec-secgw"), 0).err();
        let error = error.expect("there is no such program").to_string();
        assert!(error.starts_with("/nowhere/ipsec-secgw: No such file"), "{error}");
    }
}
