//! The attacker: sends packets of the SA that it has not made, with numbers that are still to come.

use std::ops::Range;
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::inject::Injector;
use testudo_lab::topology::WIRE_PORTS;
use testudo_lab::{Error, Namespace, Result};

const LIMIT: Duration = Duration::from_secs(30);
/// More in a moment than any link damages.
const PACKETS: u32 = 128;
/// Behind Ethernet, IPv4 and the SPI.
const SEQUENCE: Range<usize> = 38..42;
/// How far the forged numbers lie ahead.
const AHEAD: u32 = 1000;

/// Sees a packet of the SA on its way, and forges others like it.
pub(crate) fn forge(wire: &Namespace) -> Result<()> {
    let seen = Capture::esp(wire, WIRE_PORTS[0], 1)?;
    seen.await_packets(1, LIMIT)?;
    let frames = seen.stop()?.frames()?;
    let none = || Error::unexpected("a capture of ESP", "a packet with a sequence number", "none");
    let mut frame = frames.into_iter().next().ok_or_else(none)?;
    let number: [u8; 4] = frame.get(SEQUENCE).and_then(|number| number.try_into().ok()).ok_or_else(none)?;
    let injector = Injector::open(wire, WIRE_PORTS[1])?;
    for more in 0..PACKETS {
        let forged = u32::from_be_bytes(number).wrapping_add(AHEAD + more);
        frame[SEQUENCE].copy_from_slice(&forged.to_be_bytes());
        injector.send(&frame)?;
    }
    Ok(())
}
