//! Several groups over an engine in memory.

mod clocks;
mod net;
mod pulses;
mod views;
