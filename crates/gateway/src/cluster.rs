//! What a member of a cluster needs of its machine: the key, the sockets of its heartbeats, its
//! state on disk, and its engine.

mod announcer;
mod diagnosis;
mod differences;
mod disk;
mod heartbeats;
pub(crate) mod key;
mod load;
mod node;
mod report;
pub(crate) mod rollback;
pub(crate) mod roster;

use announcer::Announcer;
use disk::{Disk, Writer};
use heartbeats::{Heartbeats, Received};
pub(crate) use load::Load;
pub(crate) use node::{Node, Prepared, corosync_libraries};
pub(crate) use report::report;
