//! The endpoint in scenarios: a file each, in virtual time, every state serialised and restored after every event.

mod common;
mod establishment;
