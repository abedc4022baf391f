//! Packets in and out: AF_XDP ports, the XDP filter, the frame pool, the host TUN, routes and
//! neighbours, workers.

#![deny(unsafe_code)]
// The wire and the kernel reach all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod claims;
pub mod error;
pub mod fib;
pub mod filter;
#[allow(unsafe_code, reason = "a frame is the right to use a piece of memory that the kernel writes too")]
pub mod frame;
pub mod generation;
pub mod mac;
pub mod netlink;
pub mod port;
#[allow(unsafe_code, reason = "a ring is memory shared with the kernel")]
mod ring;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
pub mod thread;
pub mod tun;
mod umem;
pub mod vip;
pub mod worker;
mod xsk;
