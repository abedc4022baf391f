//! The fast path in network namespaces of the tests' own, on real links.

mod cluster_flood;
mod fail_closed;
mod filter_environment;
mod filter_pins;
mod filter_ports;
mod flood;
mod hosts;
mod netlink_announced;
mod netlink_follow;
mod netlink_guard;
mod port_lost;
mod routed;
mod sa_changes;
mod streams;
mod support;
mod tun;
mod tunnel;
mod xdp_jumbo;
mod xdp_port;
