//! ESP in tunnel mode (outer header, sizes, fields that cross between inner and outer header) and
//! in transport mode.

mod outer;
pub(crate) mod transport;
pub(crate) mod tunnel;

pub(crate) use outer::{Marks, Outer, Overhead};
