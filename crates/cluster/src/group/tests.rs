//! Several groups over an engine in memory.

mod agreement;
mod alone;
mod bulk;
mod clocks;
mod guards;
mod heartbeats;
mod last;
mod late;
mod leases;
mod net;
mod ports;
mod proofs;
mod relays;
mod rosters;
mod sessions;
mod stability;
mod views;
