//! Several groups over an engine in memory.

mod clocks;
mod leases;
mod net;
mod ports;
mod pulses;
mod stability;
mod views;
