//! Packets in and out: AF_XDP ports, the XDP filter, the frame pool, the host TUN, routes and neighbours, workers.

pub mod error;
mod ethtool;
pub mod fib;
pub mod filter;
pub mod frame;
pub mod generation;
pub mod mac;
mod mmap;
pub mod netlink;
pub mod port;
pub mod prefix;
mod ring;
pub mod thread;
pub mod tun;
mod umem;
pub mod vip;
pub mod worker;
mod xsk;
