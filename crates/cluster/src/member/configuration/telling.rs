//! How a node that comes hears of the configuration, and how what was loaded without a view comes to the others.

use super::Piece;
use crate::member::Member;
use crate::member::resync::CHUNK;
use crate::node::NodeId;
use crate::update::{Configure, Effect, Op, PieceName, Secret};
use std::collections::BTreeMap;

/// What a fresh node has heard so far.
#[derive(Default)]
pub(super) struct Hearing {
    pub(super) pieces: BTreeMap<PieceName, Secret>,
    /// Commands that have come meanwhile. What is told of the pieces may be older or newer: they are done once more behind it.
    pub(super) later: Vec<(NodeId, Configure)>,
}

impl Member {
    /// The names of the pieces, in the order in which they are loaded, for the one who tells fresh nodes of them: the first of those
    /// who hold the state.
    pub(in crate::member) fn pieces_to_tell(&self) -> Option<Vec<PieceName>> {
        let tells = self.replicates_configuration() && self.table.synced().first() == Some(&self.node);
        tells.then(|| self.configuration.pieces.keys().cloned().collect())
    }

    /// A piece as it is now.
    pub(in crate::member) fn piece_again(&self, name: &PieceName) -> Option<Op> {
        let piece = self.configuration.pieces.get(name)?;
        Some(Op::Piece { epoch: self.epoch, name: name.clone(), octets: piece.octets.clone() })
    }

    /// A fresh node hears of a piece. What was said in an earlier view may be there no more.
    pub(in crate::member) fn piece_told(&mut self, epoch: u64, name: PieceName, octets: Secret) {
        if let Some(hearing) = self.configuration.hearing.as_mut().filter(|_| epoch == self.epoch) {
            hearing.pieces.insert(name, octets);
        }
    }

    /// Tells the others what was loaded here, and what was taken away, when there was nobody to tell, part by part.
    pub(in crate::member) fn tell_untold_pieces(&mut self) {
        if !self.configuration.may_be_untold {
            return;
        }
        let waits = self.configuration.said.is_some_and(|ticket| !self.commits.is_stable(ticket));
        let hears = self.configuration.hearing.is_some() || self.unheard_of.is_some();
        if waits || hears || !self.running || !self.replicates_configuration() {
            return;
        }
        let mut size = 0;
        let untold = self.configuration.pieces.iter().filter(|(_, piece)| piece.is_untold);
        let part = untold.take_while(|(_, piece)| {
            let fits = size < CHUNK;
            size += piece.octets.octets().len() + 96;
            fits
        });
        let op = |(name, Piece { octets, .. }): (&PieceName, &Piece)| {
            let effect = Effect::Set(name.clone());
            Op::Configure(Box::new(Configure { job: 0, effect, octets: octets.clone() }))
        };
        let gone = |(effect, octets)| Op::Configure(Box::new(Configure { job: 0, effect, octets }));
        // What is both was set behind.
        let mut ops: Vec<Op> = std::mem::take(&mut self.configuration.untold).into_iter().map(gone).collect();
        ops.extend(part.map(op));
        self.configuration.may_be_untold = !ops.is_empty();
        if !ops.is_empty() {
            self.configuration.said = self.publish(ops);
        }
    }
}
