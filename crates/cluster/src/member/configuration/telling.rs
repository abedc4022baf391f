//! How a joining node receives the configuration, and how pieces that were loaded without a view
//! reach the others.

use super::{ConfigPiece, Configuration};
use crate::member::core::Core;
use crate::member::replication::resync::CHUNK_OCTETS;
use crate::node::NodeId;
use crate::update::{Configure, Effect, Op, PieceName, Secret};
use std::collections::BTreeMap;

/// What a fresh node has received so far.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) pieces: BTreeMap<PieceName, Secret>,
    /// Commands that were delivered meanwhile. A piece that is received may be older or newer than
    /// they are, so they are carried out once more after it.
    pub(super) later: Vec<(NodeId, Configure)>,
}

impl Configuration {
    /// The names of the pieces, in the order in which they are loaded. Only the node that sends
    /// them to fresh nodes gets a list: the first of those that hold the state.
    pub(in crate::member) fn pieces_to_tell(&self, core: &Core) -> Option<Vec<PieceName>> {
        let tells = self.replicates_configuration(core) && core.table.synced().first() == Some(&core.node);
        tells.then(|| self.pieces.keys().cloned().collect())
    }

    /// An update with the piece as it is now.
    pub(in crate::member) fn piece_again(&self, core: &Core, name: &PieceName) -> Option<Op> {
        let piece = self.pieces.get(name)?;
        Some(Op::Piece { epoch: core.view.epoch, name: name.clone(), octets: piece.octets.clone() })
    }

    /// A fresh node has received a piece. A piece that was sent in an earlier view may not exist
    /// any more.
    pub(in crate::member) fn piece_told(&mut self, core: &Core, epoch: u64, name: PieceName, octets: Secret) {
        if let Some(hearing) = self.hearing.as_mut().filter(|_| epoch == core.view.epoch) {
            hearing.pieces.insert(name, octets);
        }
    }

    /// Publishes, part by part, the pieces loaded and removed here while there was no view.
    pub(in crate::member) fn tell_untold_pieces(&mut self, core: &mut Core) {
        if !self.may_be_untold {
            return;
        }
        let waits = self.said.is_some_and(|ticket| !core.commits.is_stable(ticket));
        let hears = self.hearing.is_some() || core.unheard_of.is_some();
        if waits || hears || !core.view.running || !self.replicates_configuration(core) {
            return;
        }
        let mut size = 0;
        let untold = self.pieces.iter().filter(|(_, piece)| piece.is_untold);
        let part = untold.take_while(|(_, piece)| {
            let fits = size < CHUNK_OCTETS;
            size += piece.octets.octets().len() + 96;
            fits
        });
        let op = |(name, ConfigPiece { octets, .. }): (&PieceName, &ConfigPiece)| {
            let effect = Effect::Set(name.clone());
            Op::Configure(Box::new(Configure { job: 0, effect, octets: octets.clone() }))
        };
        let gone = |(effect, octets)| Op::Configure(Box::new(Configure { job: 0, effect, octets }));
        // A name that was both removed and set is set last.
        let mut ops: Vec<Op> = std::mem::take(&mut self.untold).into_iter().map(gone).collect();
        ops.extend(part.map(op));
        self.may_be_untold = !ops.is_empty();
        if !ops.is_empty() {
            self.said = core.publish(ops);
        }
    }
}
