//! The filter, tried on frames of every kind.
//!
//! They run in the kernel, so they need the rights to load a BPF program. A test run with an empty
//! socket map answers XDP_DROP for what is for a worker; the counter and the stamp tell it from
//! other drops.

mod bench;
mod cluster;
mod cost;
mod dispatch;
mod escape;
mod fixtures;
mod fragments;
mod frames;
mod sources;
mod spread;
mod switching;
mod tables;
mod turns;
mod verifier;
