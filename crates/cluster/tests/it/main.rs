//! Members on an engine in memory, with IKE endpoints as their peers, in virtual time.

mod asks;
mod changes;
mod config;
mod crash;
mod edges;
mod fitness;
mod following;
mod handovers;
mod leases;
mod leave;
mod listing;
mod nodes;
mod paths;
mod random;
mod routed;
mod spread;
mod suspicion;
mod syncs;
mod unique;
mod views;
mod world;

/// True for `make test-all`, whose tests try more of what those of `make test` try a part of.
fn is_thorough() -> bool {
    std::env::var_os("TESTUDO_THOROUGH").is_some()
}
