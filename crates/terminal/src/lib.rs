//! Output on a terminal: tables, readable numbers, and a progress line.
#![forbid(unsafe_code)]

pub mod progress;
pub mod table;
pub mod units;
