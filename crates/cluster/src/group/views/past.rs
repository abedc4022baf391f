//! The views that a node has begun before the last one, as far as they may have made something
//! stable.
//!
//! A view that has begun at some of its members only has made nothing stable, and the exchange
//! looks at the view before. A node that was fresh in the void view may be the only one here that
//! was in that view before: it has acknowledged messages there, and holds nothing of them any more.
//! Without its word the exchange would take a still older view for the latest. So a node remembers
//! the views that it has begun, until it knows that one of them has begun everywhere: no exchange
//! goes back beyond that one.
//!
//! This is kept in memory. A node that has begun again knows the last view only, and says that it
//! does not know the views before.

use crate::group::durable::Begun;
use serde::{Deserialize, Serialize};

/// At most this many views are remembered. Each of them has not begun at a member that has been
/// away since, so more than a few are rare.
const MAX_VIEWS: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::group) struct Past {
    /// Ascending, without the last view that the node has begun.
    views: Vec<Begun>,
    /// No earlier view counts.
    whole: bool,
}

impl Past {
    /// No view before the last one counts: that has begun everywhere, or there is none.
    pub(in crate::group) const CLOSED: Self = Self { views: Vec::new(), whole: true };

    /// At the start of a node, with the last view that it has begun.
    pub(in crate::group) fn new(last: &Begun) -> Self {
        Self { whole: !last.is_any(), ..Self::default() }
    }

    /// A view begins, and `last` was the last one before. `void`: views that have made nothing
    /// stable.
    pub(in crate::group) fn begin(&mut self, last: Begun, void: &[Begun]) {
        self.views.extend(Some(last).filter(Begun::is_any));
        self.views.retain(|view| !void.contains(view));
        if self.views.len() > MAX_VIEWS {
            self.views.remove(0);
            self.whole = false;
        }
    }

    pub(in crate::group) fn views(&self) -> impl Iterator<Item = Begun> + '_ {
        self.views.iter().copied()
    }

    /// The first view that the node remembers. `last`: the last one that it has begun.
    fn first<'a>(&'a self, last: &'a Begun) -> &'a Begun {
        self.views.first().unwrap_or(last)
    }

    /// True if the node knows that it has never begun that view, or that the view is void. It says
    /// so of no view before the first that it remembers, even if it knows of none: it may have had
    /// a disk that is lost, and have begun any view with that.
    pub(in crate::group) fn never_began(&self, last: &Begun, view: &Begun) -> bool {
        last.is_any() && self.first(last) < view && last != view && !self.views.contains(view)
    }

    /// True if the node knows every view that it has begun since that one.
    pub(in crate::group) fn remembers_since(&self, last: &Begun, view: &Begun) -> bool {
        last.is_any() && self.first(last) <= view
    }

    /// True if the node may have begun views after that one that it does not remember.
    pub(in crate::group) fn is_silent_after(&self, last: &Begun, view: &Begun) -> bool {
        !self.whole && view < self.first(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RingId;

    fn view(epoch: u64) -> Begun {
        Begun { ring: RingId { seq: epoch, node: 1 }, epoch, members: 0b1110 }
    }

    #[test]
    fn a_node_knows_what_it_has_begun_since_a_view_that_began_everywhere() {
        let mut past = Past::CLOSED;
        past.begin(view(4), &[]);
        past.begin(view(6), &[]);
        past.begin(view(7), &[view(6)]);
        assert_eq!(past.views().collect::<Vec<_>>(), [view(4), view(7)]);
        let never: Vec<u64> = (1..=9).filter(|epoch| past.never_began(&view(8), &view(*epoch))).collect();
        assert_eq!(never, [5, 6, 9]);
        assert!(!past.is_silent_after(&view(8), &view(3)), "what was before does not count");
    }

    #[test]
    fn a_node_that_begins_again_knows_its_last_view_only() {
        let mut past = Past::new(&view(4));
        assert!(past.is_silent_after(&view(4), &view(3)) && !past.is_silent_after(&view(4), &view(4)));
        assert!(!past.never_began(&view(4), &view(3)));
        past.begin(view(4), &[]);
        assert!(past.is_silent_after(&view(5), &view(3)) && !past.is_silent_after(&view(5), &view(4)));
        let new = Past::new(&Begun::default());
        assert!(!new.is_silent_after(&Begun::default(), &view(3)), "there was none");
        assert!(!new.never_began(&Begun::default(), &view(3)), "the disk may be a new one");
    }

    #[test]
    fn a_node_with_a_new_disk_denies_nothing_before_the_first_view_that_it_remembers() {
        let mut past = Past::new(&Begun::default());
        past.begin(Begun::default(), &[]);
        past.begin(view(4), &[view(4)]);
        let never: Vec<u64> = (1..=6).filter(|epoch| past.never_began(&view(5), &view(*epoch))).collect();
        assert_eq!(never, [6], "not even the void view, although it is not remembered");
        assert!(!past.is_silent_after(&view(5), &view(3)), "nobody waits for what it may have begun");
    }

    #[test]
    fn what_is_too_much_to_remember_is_not_denied() {
        let mut past = Past::CLOSED;
        (1..=20).for_each(|epoch| past.begin(view(epoch), &[]));
        assert_eq!(past.views().count(), MAX_VIEWS);
        assert!(past.is_silent_after(&view(21), &view(4)) && !past.is_silent_after(&view(21), &view(5)));
    }
}
