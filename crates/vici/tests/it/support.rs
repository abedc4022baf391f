//! A gateway that follows a script, and a server around it on a Unix socket.

mod gateway;
pub(crate) mod rig;
mod socket;

pub(crate) use gateway::{Gateway, net_sa};
pub(crate) use socket::TestServer;

use testudo_vici::message::Message;

/// A message written down: `(key, value)` pairs.
pub(crate) fn message(pairs: &[(&str, &str)]) -> Message {
    let mut message = Message::new();
    for (key, value) in pairs {
        message.add(key, *value);
    }
    message
}
