//! VICI: every process that may open the socket may send anything.

pub mod codec;
mod gateway;
pub mod schema;
pub mod server;
pub(crate) mod text;
