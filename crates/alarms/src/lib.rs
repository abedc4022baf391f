//! The watch: what a gateway refuses or finds odd, as sightings, becomes alarms.
//!
//! A packet that a gateway drops is harmless. Many of a kind in a short time are an attack, or a
//! fault that an operator wants to know of. The watch counts sightings by kind and subject (a Child
//! SA, a peer, an address, a port), knows the usual noise of each, and raises an alarm when a second
//! has far more of them. An alarm lasts until its subject has been quiet for a time.
//!
//! No sockets, clocks or threads: sightings and the time come in, alarms come out.
#![forbid(unsafe_code)]
// Attackers choose what comes in: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod alarm;
mod kind;
mod rate;
mod rules;
mod watch;

pub use alarm::{Alarm, Source, Subject};
pub use kind::{Kind, Severity};
pub use rules::{Rule, Rules};
pub use watch::{News, Sighting, Watch};
