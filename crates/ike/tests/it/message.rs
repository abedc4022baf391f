//! Messages, read and written.

mod errors;
mod hostile;
mod roundtrip;
mod strongswan;
