//! Several groups over an engine in memory.

mod clocks;
mod net;
mod ports;
mod pulses;
mod views;
