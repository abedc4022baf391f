//! This node's state of all SAs of the cluster, and its replication: it publishes changes of its
//! own SAs, and applies those that other nodes publish.

pub(super) mod apply;
pub(super) mod changes;
pub(super) mod contacts;
pub(super) mod initiations;
pub(super) mod paths;
pub(super) mod proofs;
pub(super) mod remote_events;
pub(super) mod replicas;
pub(super) mod resync;
pub(super) mod turn;

use super::core::Core;
use super::numbers::Numbers;
use crate::group::Ticket;
use crate::update::Op;
use initiations::Initiations;
use paths::Paths;
use replicas::Replicas;
use resync::Resync;
use std::collections::BTreeSet;
use testudo_ike::message::IkeSpi;

/// The replicated state of all SAs.
pub(super) struct Replication {
    pub(super) replicas: Replicas,
    pub(super) numbers: Numbers,
    pub(super) paths: Paths,
    pub(super) resync: Resync,
    /// IKE SAs of other nodes whose whole state was requested, because a change did not fit.
    pub(super) wanted: BTreeSet<IkeSpi>,
    pub(super) initiations: Initiations,
}

impl Replication {
    /// `line_rate`: the most packets a second that this node's ports can receive.
    pub(super) fn new(line_rate: u64) -> Self {
        Self {
            replicas: Replicas::default(),
            numbers: Numbers::new(line_rate),
            paths: Paths::default(),
            resync: Resync::default(),
            wanted: BTreeSet::new(),
            initiations: Initiations::default(),
        }
    }

    /// Publishes the latest grants, with what else there is. `None` if nothing was published.
    pub(super) fn publish_grants(&mut self, core: &mut Core, ops: Vec<Op>) -> Option<Ticket> {
        let ticket = core.publish(ops)?;
        self.numbers.blocks_published(core, &mut self.replicas, ticket);
        Some(ticket)
    }
}
