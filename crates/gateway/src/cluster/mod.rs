//! What a member of a cluster needs of its machine: the key, the sockets of its pulses, a number that outlives it, its engine.

mod differences;
mod disk;
pub(crate) mod key;
mod load;
mod node;
mod pulses;
mod report;
pub(crate) mod rollback;
mod why;

use disk::{Disk, Writer};
pub(crate) use load::Load;
pub(crate) use node::{Node, Prepared};
use pulses::{Pulses, Received};
pub(crate) use report::report;
