//! Why a quorate view does not begin, for logs and operators.

use crate::node::{NodeId, names};
use std::fmt;

/// Why a quorate view does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// These members have not said yet what they hold.
    Unheard(Vec<NodeId>),
    /// None of the members holds the latest state, and one of these nodes may.
    State(Vec<NodeId>),
    /// The members may not go on, and some of these nodes may.
    Outvoted(Vec<NodeId>),
    /// These members cannot be understood, and the others are not more than half.
    Unreadable(Vec<NodeId>),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no view: ")?;
        match self {
            Self::Unheard(nodes) => write!(f, "nodes {} have not said yet what they hold", names(nodes)),
            Self::State(nodes) if nodes.is_empty() => {
                f.write_str("what nodes have forgotten may be known to those who are not here")
            }
            Self::State(nodes) => write!(
                f,
                "none of its nodes is known to hold the latest state; waiting for nodes {}",
                names(nodes)
            ),
            Self::Outvoted(nodes) if nodes.is_empty() => {
                f.write_str("none of its nodes remembers a view of all; all configured nodes have to be here")
            }
            Self::Outvoted(nodes) => write!(
                f,
                "others may have gone on, whatever corosync calls quorate; waiting for nodes {}",
                names(nodes)
            ),
            Self::Unreadable(nodes) if nodes.is_empty() => {
                f.write_str("none of its nodes is one of the cluster's")
            }
            Self::Unreadable(nodes) => write!(
                f,
                "nodes {} have another cluster key or version, and those that have ours are not more than half",
                names(nodes)
            ),
        }
    }
}
