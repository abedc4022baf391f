//! `testudo` as a user runs it: in labs, on files, and against a daemon that answers from a script.

mod check;
mod cluster;
mod external;
mod load;
// Debian's emulator and kernel for the guest are x86-64's.
#[cfg(target_arch = "x86_64")]
mod migrate;
mod shut;
mod status;
mod support;
