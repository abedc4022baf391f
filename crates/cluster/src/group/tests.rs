//! Several groups over an engine in memory.

mod net;
mod views;
