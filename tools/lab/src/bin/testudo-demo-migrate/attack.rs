//! The attacker: sends packets of the SA that it has not made, with numbers that are still to come.

use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::forgeries::ahead;
use testudo_lab::inject::Injector;
use testudo_lab::topology::WIRE_PORTS;
use testudo_lab::{Error, Namespace, Result};

const LIMIT: Duration = Duration::from_secs(30);
/// More in a moment than any link damages.
const PACKETS: u32 = 128;
/// How far the forged numbers lie ahead.
const AHEAD: u32 = 1000;

/// Sees a packet of the SA on its way, and forges others like it.
pub(crate) fn forge(wire: &Namespace) -> Result<()> {
    let seen = Capture::esp(wire, WIRE_PORTS[0], 1)?;
    seen.await_packets(1, LIMIT)?;
    let frames = seen.stop()?.frames()?;
    let none = || Error::unexpected("a capture of ESP", "a packet with a sequence number", "none");
    let frame = frames.into_iter().next().ok_or_else(none)?;
    let injector = Injector::open(wire, WIRE_PORTS[1])?;
    (0..PACKETS).try_for_each(|more| injector.send(&ahead(&frame, AHEAD + more).ok_or_else(none)?))
}
