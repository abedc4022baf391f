//! Headers: parsed, changed in place, split, answered.

pub mod fragment;
pub mod headers;
pub mod icmp;
pub mod offload;

use crate::input::{Input, bit};
use crate::repair;

/// The rest of the input as a packet, repaired as requested by `flags`.
fn packet(input: &mut Input<'_>, flags: u8) -> Vec<u8> {
    let mut packet = input.rest().to_vec();
    if bit(flags, 0) {
        repair::length(&mut packet);
    }
    if bit(flags, 1) {
        repair::checksum(&mut packet);
    }
    packet
}
