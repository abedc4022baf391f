//! testudod against real peers: Debian's strongSwan and itself, over real interfaces.
#![allow(missing_docs)]

mod common;
mod fail_closed;
mod lifecycle;
mod mtu;
mod refusals;
mod start;
mod strongswan;
mod testudo;
