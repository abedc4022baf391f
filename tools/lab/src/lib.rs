//! Real hosts in network namespaces: links, strongSwan peers, web servers, load, capture. For tests
//! and the demo.
//!
//! A [`Lab`] owns everything that it creates: namespaces (`tl<slot>-<pid>-<role>`), processes,
//! files. It removes all of it with its last handle, and a later lab sweeps what a killed one has
//! left. Labs take turns on a machine, so that tests do not disturb each other's timing; several
//! run at the same time if the machine has enough places ([`Lab::shared`]).
//!
//! Needs root. Nothing here touches the host's own network, and every wait has a limit.
#![forbid(unsafe_code)]

pub mod attack;
mod batch;
pub mod bed;
pub mod bird;
pub mod capture;
mod charon_keys;
pub mod cluster;
pub mod cluster_report;
pub mod command;
pub mod corosync;
pub mod count;
pub mod cpu;
pub mod demo;
pub mod download;
mod error;
pub mod files;
pub mod forgeries;
pub mod frames;
pub mod gateway;
pub mod guest;
pub mod hold;
pub mod inject;
pub mod interrupt;
mod ip;
pub mod iperf;
mod lab;
mod lock;
pub mod memory;
pub mod namespace;
pub mod nat;
mod netns;
pub mod nginx;
pub mod ping;
pub mod pki;
pub mod plot;
pub mod probe;
pub mod process;
mod receive;
pub mod router;
pub mod series;
pub mod stats;
pub mod streams;
pub mod strongswan;
pub mod swanctl;
pub mod swanctl_conf;
pub mod sweep;
pub mod testudo;
pub mod topology;
pub mod transfer;
mod wait;
pub mod witness;
mod worker;

pub use error::{Error, Result};
pub use lab::{Lab, places_beside_others};
pub use namespace::Namespace;
pub use topology::Topology;
pub use wait::wait_until;
