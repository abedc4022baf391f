//! The crate as its users see it: octets, sessions, configuration, and the real `swanctl`.

mod alarms;
mod children;
mod client;
mod cluster;
mod codec;
mod connections;
mod counters;
mod monitor;
mod names;
mod path_mtu;
mod post_quantum;
mod ppk;
mod replication;
mod secrets;
mod server;
mod server_bounds;
mod shut;
mod support;
mod swanctl;
