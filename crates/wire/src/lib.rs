//! Headers read and written in place: Ethernet, IPv4, IPv6, UDP, TCP, ICMP and ESP.
//!
//! Everything here works on borrowed bytes: no allocation, no I/O, no panic on any input. A parser answers
//! `None` or an error where the bytes do not hold what they claim.
#![forbid(unsafe_code)]

pub mod packet;
