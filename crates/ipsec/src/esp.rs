//! ESP in tunnel mode: the outer header, how much fits, what crosses between inner and outer
//! header; and in transport mode.

mod outer;
pub(crate) mod transport;
pub(crate) mod tunnel;

pub(crate) use outer::{Marks, Outer, Overhead};
