//! The whole pipeline from outside: clear packets in, ESP out, and back again.

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
mod inside;
mod packets;
mod round_trip;
mod scapy;
mod separate;
mod trains;
mod transit;
mod transport;
mod tshark;
mod tunnel;
mod turns;
mod vectors;
