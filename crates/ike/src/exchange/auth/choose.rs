//! Which connection an authenticated peer gets: by addresses and algorithms, then by the identities.

use super::local_identity;
use crate::config::{Connection, Identity};
use crate::endpoint::Endpoint;
use crate::output::Path;
use crate::suite::IkeSuite;
use std::sync::Arc;

/// The connections that fit equally well; never empty. They agree on who the two sides are.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    pub(super) local: Identity,
    pub(super) remote: Identity,
    pub(super) connections: Vec<Arc<Connection>>,
}

impl Endpoint {
    /// The connections for a peer that says it is `remote`, and may have asked for us as `asked`.
    pub(super) fn candidates(
        &self,
        path: Path,
        suite: IkeSuite,
        remote: &Identity,
        asked: Option<&Identity>,
    ) -> Option<Candidates> {
        let usable =
            self.connections.between(path.local.ip(), path.remote.ip()).into_iter().filter(|connection| {
                let is_peer = connection.remote.id.as_ref().is_none_or(|id| id.matches(remote));
                let is_ours = asked.is_none_or(|id| id.matches(&local_identity(connection, path)));
                is_peer && is_ours && allows(connection, suite)
            });
        // A connection for just this peer beats one for anybody; then the one for just these addresses.
        let rank = |connection: &Connection| {
            (connection.remote.id.is_some(), connection.address_fit(path.local.ip(), path.remote.ip()))
        };
        let mut connections: Vec<_> = usable.collect();
        let best = connections.iter().map(|connection| rank(connection)).max()?;
        connections.retain(|connection| rank(connection) == best);
        let local = local_identity(connections.first()?, path);
        connections.retain(|connection| local_identity(connection, path) == local);
        Some(Candidates { local, remote: remote.clone(), connections })
    }
}

/// True if a proposal of the connection has all the algorithms that IKE_SA_INIT agreed on.
fn allows(connection: &Connection, suite: IkeSuite) -> bool {
    connection.proposals.iter().any(|proposal| {
        proposal.encryption.contains(&suite.encryption)
            && suite.integrity.is_none_or(|integrity| proposal.integrity.contains(&integrity))
            && proposal.prf.contains(&suite.prf)
            && proposal.ke.contains(&suite.ke)
    })
}
