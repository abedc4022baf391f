//! The lab itself: what its topologies, instruments and daemons do before Testudo enters it.

mod baseline;
mod cluster;
mod demo_ends;
mod examples;
mod failover_instruments;
mod rfc_table;
mod sweep;
