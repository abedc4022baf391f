//! ESP in tunnel mode: the outer header, how much fits, what crosses between inner and outer header.

mod outer;
pub(crate) mod tunnel;

pub(crate) use outer::{Marks, Outer, Overhead};
