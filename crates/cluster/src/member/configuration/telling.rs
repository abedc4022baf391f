//! How a node that comes hears of the configuration, and how what was loaded without a view comes
//! to the others.

use super::{ConfigPiece, Configuration};
use crate::member::core::Core;
use crate::member::replication::resync::CHUNK_OCTETS;
use crate::node::NodeId;
use crate::update::{Configure, Effect, Op, PieceName, Secret};
use std::collections::BTreeMap;

/// What a fresh node has heard so far.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) pieces: BTreeMap<PieceName, Secret>,
    /// Commands that have come meanwhile. What is told of the pieces may be older or newer: they
    /// are done once more behind it.
    pub(super) later: Vec<(NodeId, Configure)>,
}

impl Configuration {
    /// The names of the pieces, in the order in which they are loaded, for the one who tells fresh
    /// nodes of them: the first of those who hold the state.
    pub(in crate::member) fn pieces_to_tell(&self, core: &Core) -> Option<Vec<PieceName>> {
        let tells = self.replicates_configuration(core) && core.table.synced().first() == Some(&core.node);
        tells.then(|| self.pieces.keys().cloned().collect())
    }

    /// A piece as it is now.
    pub(in crate::member) fn piece_again(&self, core: &Core, name: &PieceName) -> Option<Op> {
        let piece = self.pieces.get(name)?;
        Some(Op::Piece { epoch: core.view.epoch, name: name.clone(), octets: piece.octets.clone() })
    }

    /// A fresh node hears of a piece. What was said in an earlier view may be there no more.
    pub(in crate::member) fn piece_told(&mut self, core: &Core, epoch: u64, name: PieceName, octets: Secret) {
        if let Some(hearing) = self.hearing.as_mut().filter(|_| epoch == core.view.epoch) {
            hearing.pieces.insert(name, octets);
        }
    }

    /// Tells the others what was loaded here, and what was taken away, when there was nobody to
    /// tell, part by part.
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
        // What is both was set behind.
        let mut ops: Vec<Op> = std::mem::take(&mut self.untold).into_iter().map(gone).collect();
        ops.extend(part.map(op));
        self.may_be_untold = !ops.is_empty();
        if !ops.is_empty() {
            self.said = core.publish(ops);
        }
    }
}
