//! Several groups over an engine in memory.

mod alone;
mod aside;
mod clocks;
mod leases;
mod net;
mod ports;
mod pulses;
mod stability;
mod views;
