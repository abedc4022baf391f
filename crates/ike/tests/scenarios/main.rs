//! The endpoint in scenarios: a file each, in virtual time, every state serialised and restored after every event.

mod actions;
mod answers;
mod bad_auth;
mod certificates;
mod certificates_hostile;
mod collisions;
mod common;
mod computing;
mod configuration;
mod cookies;
mod counters;
mod deletion;
mod establishment;
mod farewell;
mod foul_weather;
mod fragments;
mod initiator_checks;
mod intermediate;
mod key_exchange;
mod liveness;
mod memory;
mod multiple_ke;
mod mutation;
mod nat;
#[path = "../pki/mod.rs"]
mod pki;
mod ppk;
mod reauthentication;
mod refusals;
mod rekeying;
mod repetition;
mod snapshots;
mod strangers;
mod takeover;
mod unreachable;
