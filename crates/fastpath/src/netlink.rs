//! The kernel's view of the network, over rtnetlink. It is followed live for forwarding, and
//! programmed so that the kernel itself does not send protected traffic in clear.

mod addresses;
mod announced;
mod connection;
mod error;
mod follow;
mod guard;
mod handle;
mod links;
mod neighbours;
mod pace;
mod routes;
mod rules;
mod view;

pub use addresses::Addresses;
pub use announced::AnnouncedRoutes;
pub use error::{NetlinkError, Result};
pub use follow::Follower;
pub use guard::{Guard, GuardChanges, GuardConfig, GuardRoutes, GuardUse, remove as remove_guard};
pub use handle::{FibHandle, FollowStatistics};
pub use links::set_mtu;
pub use view::Interfaces;

pub(crate) use connection::Connection;
pub(crate) use links::{bring_up, dropped_sending, ifindex_of};
