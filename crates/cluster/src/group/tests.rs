//! Several groups over an engine in memory.

mod agreement;
mod alone;
mod bulk;
mod clocks;
mod guards;
mod heartbeats;
mod last;
mod leases;
mod net;
mod ports;
mod relays;
mod rosters;
mod stability;
mod views;
