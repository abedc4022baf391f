//! What programs of Testudo show on a terminal: tables, numbers that people can read, and a line
//! that tells how far a command is.
#![forbid(unsafe_code)]

pub mod progress;
pub mod table;
pub mod units;
