//! The whole pipeline from outside: clear packets in, ESP out, and back again.

mod forge;
mod harness;
mod hostile;
mod packets;
mod round_trip;
