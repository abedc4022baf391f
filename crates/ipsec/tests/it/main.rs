//! The whole pipeline from outside: clear packets in, ESP out, and back again; what that costs.

mod accounting;
mod ah;
mod bundle;
mod clear;
mod clear_fragments;
mod cluster;
mod cluster_models;
mod control;
mod forge;
mod harness;
mod hostile;
mod hub;
mod icmp;
mod icmp_quotes;
mod inside;
// Of the instructions of one architecture.
#[cfg(target_arch = "x86_64")]
mod instructions;
mod memory;
mod mss;
mod own;
mod packets;
mod relay;
mod relay_heads;
mod relay_models;
mod relay_nodes;
mod round_trip;
mod scapy;
mod separate;
mod spread;
mod spread_models;
mod spread_routed;
mod spread_trains;
mod trains;
mod transit;
mod transport;
mod tshark;
mod tunnel;
mod turns;
mod vectors;
