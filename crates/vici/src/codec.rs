//! The encoding of VICI: message elements, packets, and the stream of length-prefixed packets.
//!
//! Decoding is strict and bounded. A malformed message is an error of the whole connection, because
//! its sender speaks another protocol.

mod element;
mod frame;
mod packet;
mod reader;

pub use element::{encode, encoded_len, parse};
pub use frame::Deframer;
pub use packet::Packet;

/// Longest packet, without its length field.
pub const MAX_PACKET: usize = 512 * 1024;
/// Most octets that a host may pass to the server at once.
pub const MAX_READ: usize = 64 * 1024;
/// Deepest nesting of sections. Configurations need four levels.
pub const MAX_DEPTH: usize = 16;
