//! Headers read and written in place: Ethernet, IPv4, IPv6, UDP, TCP, ICMP, ESP and AH.
//!
//! Everything here works on borrowed octets: no allocation, no I/O, no panic on any input. A parser
//! returns an [`Error`] if the octets contradict themselves; its result borrows the octets that it
//! has checked.
#![forbid(unsafe_code)]
// The wire reaches all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod ah;
pub mod checksum;
mod error;
pub mod esp;
pub mod ethernet;
pub mod fragment;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod offload;
pub mod packet;
pub mod seam;
pub mod tcp;
pub mod udp;

pub use error::Error;
