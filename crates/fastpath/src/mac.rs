//! Ethernet addresses.

pub use testudo_wire::ethernet::MacAddr;
