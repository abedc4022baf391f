//! The numbers that an endpoint allots: of state changes, of SAs, and of connections' children.

use crate::output::{ChildSaId, CommitId, IkeSaId};
use std::collections::BTreeMap;

/// The last number of each kind.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) commit: CommitId,
    pub(crate) last_ike: u64,
    pub(crate) last_child: u64,
    /// By connection, then by child, in order: most have one child, for which a tree would take
    /// room for eleven.
    reqids: BTreeMap<String, Vec<(String, u32)>>,
    last_reqid: u32,
}

impl Numbers {
    pub(crate) fn new_ike_id(&mut self) -> IkeSaId {
        self.last_ike = self.last_ike.saturating_add(1);
        IkeSaId(self.last_ike)
    }

    pub(crate) fn new_child_id(&mut self) -> ChildSaId {
        self.last_child = self.last_child.saturating_add(1);
        ChildSaId(self.last_child)
    }

    /// The number that all SAs of a child share.
    pub(crate) fn reqid(&mut self, connection: &str, child: &str) -> u32 {
        if let Some(children) = self.reqids.get(connection)
            && let Ok(at) = place_of(children, child)
            && let Some((_, reqid)) = children.get(at)
        {
            return *reqid;
        }
        let next = self.last_reqid.saturating_add(1);
        self.keep_reqid(connection, child, next)
    }

    /// Gives a child this number, unless it has one.
    pub(crate) fn keep_reqid(&mut self, connection: &str, child: &str, reqid: u32) -> u32 {
        self.last_reqid = self.last_reqid.max(reqid);
        let children = self.reqids.entry(connection.to_owned()).or_insert_with(|| Vec::with_capacity(1));
        match place_of(children, child) {
            Ok(at) => children.get(at).map_or(reqid, |(_, known)| *known),
            Err(at) => {
                children.insert(at, (child.to_owned(), reqid));
                reqid
            }
        }
    }
}

/// The index of a child among those with a number, or where it belongs.
fn place_of(children: &[(String, u32)], child: &str) -> Result<usize, usize> {
    children.binary_search_by(|(known, _)| known.as_str().cmp(child))
}
