//! The lab itself: its topologies, instruments and daemons, without Testudo.

mod baseline;
mod cluster;
mod demo_ends;
mod demo_migrate;
mod demo_spread;
mod examples;
mod failover_instruments;
mod rfc_table;
mod sweep;
