//! What this node holds of all SAs of the cluster, and what keeps that alike on all nodes: it tells
//! what changes in its own, and does what others tell of theirs.

pub(super) mod apply;
pub(super) mod changes;
pub(super) mod contacts;
pub(super) mod initiations;
pub(super) mod paths;
pub(super) mod remote_events;
pub(super) mod replicas;
pub(super) mod resync;
pub(super) mod turn;

use super::numbers::Numbers;
use initiations::Initiations;
use paths::Paths;
use replicas::Replicas;
use resync::Resync;
use std::collections::BTreeSet;
use testudo_ike::message::IkeSpi;

/// See the module.
pub(super) struct Replication {
    pub(super) replicas: Replicas,
    pub(super) numbers: Numbers,
    pub(super) paths: Paths,
    pub(super) resync: Resync,
    /// IKE SAs of others that were asked for: what was told of them did not fit.
    pub(super) wanted: BTreeSet<IkeSpi>,
    pub(super) initiations: Initiations,
}

impl Replication {
    /// `line_rate`: packets a second that this node can be brought at most.
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
}
