//! Ethernet addresses.

pub use testudo_wire::ethernet::Mac as MacAddr;
