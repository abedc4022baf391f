//! Choosing the connection of an authenticated peer: by addresses and algorithms, then by the
//! identities.

use super::local_identity;
use crate::config::{Connection, Identity, LocalAuth, RemoteAuth};
use crate::exchange::auth::rounds::Announced;
use crate::exchange::session::Session;
use crate::message::AuthMethodId;
use crate::output::Path;
use crate::suite::IkeSuite;
use std::cmp::Reverse;
use std::sync::Arc;

/// Connections that match equally well; never empty. They agree on the identities of both sides and
/// on their proofs.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    pub(super) local: Identity,
    pub(super) remote: Identity,
    pub(super) connections: Vec<Arc<Connection>>,
}

/// The paths of a peer's messages. Behind a NAT they may differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths {
    pub(super) init: Path,
    /// The path at whose end the tunnels will be.
    pub(super) auth: Path,
}

/// How well a connection's `remote.id` matches: a name is better than a pattern, and a pattern
/// better than any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    Anybody,
    Pattern,
    Name,
}

/// The connections for a peer that claims to be `remote`, may have asked for us as `asked`, and
/// begins to authenticate by `method`, from any of its messages' addresses: the best first. They
/// are tried one by one, because only then it shows which CA vouches for the peer.
pub(super) fn candidates(
    session: &Session<'_>,
    paths: Paths,
    suite: IkeSuite,
    remote: &Identity,
    asked: Option<&Identity>,
    method: AuthMethodId,
    rounds: Option<Announced>,
) -> Vec<Candidates> {
    let (path, tunnels) = (paths.init, paths.auth);
    let begins_so = |connection: &Connection| rounds.is_none_or(|announced| announced.begins(connection));
    let usable =
        session.env.loaded.connections.between(path.local.ip(), path.remote.ip()).into_iter().filter(
            |connection| {
                let is_ours = asked.is_none_or(|id| id.matches(&local_identity(&connection.local, path)));
                let has_room = connection.address_fit(tunnels.local.ip(), tunnels.remote.ip()).is_some();
                connection.remote.fit(remote).is_some()
                    && is_ours
                    && has_room
                    && allows(connection, suite)
                    && begins_so(connection)
            },
        );
    // A matching method comes first, then a connection for exactly this peer before one for any,
    // then one for exactly these addresses.
    let rank = |connection: &Connection| {
        let by_key = method == AuthMethodId::SharedKeyMic;
        let method = connection.remote.method.is_pubkey() != by_key;
        (method, connection.remote.fit(remote), connection.address_fit(path.local.ip(), path.remote.ip()))
    };
    let mut connections: Vec<_> = usable.collect();
    connections.sort_by_key(|connection| Reverse(rank(connection)));
    let mut found: Vec<(_, Candidates)> = Vec::new();
    for connection in connections {
        let (rank, local) = (rank(&connection), local_identity(&connection.local, path));
        let alike = found.iter_mut().find(|(other_rank, other)| {
            *other_rank == rank
                && other.local == local
                && other.connections.first().is_some_and(|other| other.begins_alike(&connection))
        });
        match alike {
            Some((_, alike)) => alike.connections.push(connection),
            None => {
                let candidates = Candidates { local, remote: remote.clone(), connections: vec![connection] };
                found.push((rank, candidates));
            }
        }
    }
    found.into_iter().map(|(_, candidates)| candidates).collect()
}

impl Connection {
    /// True if both sides authenticate in the same way: a peer of one may be a peer of the other,
    /// if it has the name.
    pub(crate) fn proves_alike(&self, other: &Self) -> bool {
        let as_many = (self.rounds.local.len(), self.rounds.remote.len())
            == (other.rounds.local.len(), other.rounds.remote.len());
        self.ppk == other.ppk
            && self.send_cert == other.send_cert
            && as_many
            && self.local_rounds().zip(other.local_rounds()).all(|(one, other)| one.proves_alike(other))
            && self.remote_rounds().zip(other.remote_rounds()).all(|(one, other)| one.proves_alike(other))
    }

    /// The same for the first round of both sides.
    fn begins_alike(&self, other: &Self) -> bool {
        self.ppk == other.ppk
            && self.send_cert == other.send_cert
            && self.local.proves_alike(&other.local)
            && self.remote.proves_alike(&other.remote)
    }
}

impl LocalAuth {
    /// True if we authenticate in the same way, with whatever identity.
    pub(super) fn proves_alike(&self, other: &Self) -> bool {
        let Self { id: _, method, certs, pubkeys } = self;
        (*method, certs, pubkeys) == (other.method, &other.certs, &other.pubkeys)
    }
}

impl RemoteAuth {
    /// True if a peer authenticates in the same way, with whatever identity.
    pub(super) fn proves_alike(&self, other: &Self) -> bool {
        let Self { id: _, method, certs, pubkeys, cacerts, ca_id, revocation, eku } = self;
        (*method, *revocation, *eku) == (other.method, other.revocation, other.eku)
            && (certs, pubkeys) == (&other.certs, &other.pubkeys)
            && (cacerts, ca_id) == (&other.cacerts, &other.ca_id)
    }

    /// How well an identity matches; `None` if it is not accepted.
    pub(super) fn fit(&self, identity: &Identity) -> Option<Fit> {
        match &self.id {
            None => Some(Fit::Anybody),
            Some(id) if id.matches(identity) => Some(Fit::Name),
            Some(id) if id.covers(identity) => Some(Fit::Pattern),
            Some(_) => None,
        }
    }
}

/// True if a proposal of the connection has all the algorithms that IKE_SA_INIT agreed on.
fn allows(connection: &Connection, suite: IkeSuite) -> bool {
    connection.proposals.iter().any(|proposal| {
        proposal.encryption.contains(&suite.encryption)
            && suite.integrity.is_none_or(|integrity| proposal.integrity.contains(&integrity))
            && proposal.prf.contains(&suite.prf)
            && proposal.ke.contains(&suite.ke)
            && suite.additional.iter().zip(&proposal.additional).all(|(agreed, own)| {
                // If nothing is configured, no exchange is wanted.
                own.contains(agreed) || (own.is_empty() && agreed.is_none())
            })
    })
}
