//! testudod against real peers: Debian's strongSwan and itself, over real interfaces.
#![allow(missing_docs)]

mod common;
mod fail_closed;
mod fragments;
mod hostile;
mod hub;
mod lifecycle;
mod mtu;
mod refusals;
mod selectors;
mod start;
mod strongswan;
mod suites;
mod testudo;
