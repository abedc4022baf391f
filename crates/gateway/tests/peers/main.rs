//! testudod against real peers: Debian's strongSwan and itself, over real interfaces.
#![allow(missing_docs)]

mod ah;
mod bundle;
mod certificates;
mod checksums;
mod children;
mod cluster;
mod cluster_secrets;
mod common;
#[cfg(target_arch = "x86_64")]
mod esp_kernel;
mod esp_suites;
mod fail_closed;
mod failover;
mod fit;
mod fragments;
mod fragments_shared;
mod full_tunnel;
mod host;
mod hostile;
mod hub;
mod icmp;
mod jumbo;
// Debian's emulator and kernel for the guest are x86-64's.
#[cfg(target_arch = "x86_64")]
mod kernel;
mod lifecycle;
mod log;
mod mtu;
mod nat;
mod per_cpu;
mod ports;
mod post_quantum;
mod python;
mod reauthentication;
mod refusals;
mod rekeying;
mod reload;
mod remote_access;
mod rounds;
mod selectors;
mod start;
mod strongswan;
mod suites;
mod swanctl;
mod testudo;
mod transport;
mod updown;
// As the guest that is a peer.
#[cfg(target_arch = "x86_64")]
mod virtual_machine;
mod workers;
