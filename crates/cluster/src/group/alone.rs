//! Alone of two nodes, by the vote of a witness.
//!
//! Any two views of more than half of the nodes have one in common, who knows in the later what the
//! earlier has come to. Those of one node of two have none: a witness that counts for one, and for
//! the other when that one is gone, would let the second go on from what both had before, with
//! numbers that the first has used since.
//!
//! So a node goes on alone straight from a view of both, or when it was the last to do so. The
//! other cannot have gone on in between: a witness counts for nobody anew before the other has
//! heard, or can have found out, that it has no vote, and a node without both is told by its engine
//! then that it has no quorum. After that it waits for the other.

use super::Group;
use crate::engine::View;
use testudo_ike::output::LogLevel;

impl Group {
    /// The view as this node believes it.
    pub(super) fn believe(&mut self, view: View) -> View {
        let alone = self.core.config.nodes.len() == 2 && view.members.len() == 1;
        if !view.quorate || !alone || self.unbroken {
            return view;
        }
        let line = "quorate alone, but the other node may have gone on without this one: waiting for it";
        self.core.log(LogLevel::Warning, line.to_owned());
        View { quorate: false, ..view }
    }

    /// There was a moment without quorum, or without an engine.
    pub(super) fn interrupted(&mut self) {
        // Who went on alone last is the only one who can.
        self.unbroken &= self.durable.begun.nodes().count() == 1;
    }
}
