//! Distrust: proofs of a peer's identity that are not valid any more.

use crate::config::{Connection, IKE_REKEY_SECONDS, Identity, IkeLifetime, SharedSecret};
use crate::environment::Environment;
use crate::environment::loaded::Loaded;
use crate::output::{IkeSaId, Time};
use crate::sa::{IkeSa, OutdatedIke};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Takes a shared key in the place of one of the same name.
pub(crate) fn load_secret(env: &mut Environment, secret: SharedSecret) {
    let (name, owners) = (secret.name.clone(), secret.owners.clone());
    if !env.loaded.secrets.load(secret) {
        return;
    }
    let mut proven = proven_by(env, &name, &owners);
    proven.extend(proven_before_by(env, &name));
    for id in proven {
        if let Some(mut sa) = env.table.take(id) {
            env.distrust(&mut sa);
            env.put(sa);
        }
    }
}

/// The IKE SAs that were authenticated with this shared key. Those of its owners are found
/// without a walk through all.
fn proven_by(env: &Environment, name: &str, owners: &[Identity]) -> Vec<IkeSaId> {
    let is_by_it = |sa: &&IkeSa| {
        let found = env.loaded.secrets.find(sa.local_id.as_ref(), sa.remote_id.as_ref());
        sa.is_established() && env.loaded.is_by_key(sa) && found.is_some_and(|found| found.name == name)
    };
    let all = || env.table.iter().filter(is_by_it).map(|sa| sa.id).collect();
    match owners {
        [] => all(),
        [owner] if env.loaded.may_be_us(owner) => all(),
        owners => {
            let of_owners = owners.iter().flat_map(|owner| env.table.by_identity(owner));
            of_owners.filter(is_by_it).map(|sa| sa.id).collect()
        }
    }
}

/// The same for a round before the last (RFC 4739).
fn proven_before_by(env: &Environment, name: &str) -> Vec<IkeSaId> {
    let connections = env.loaded.connections.iter().chain(env.loaded.former.values());
    let with_rounds = connections.filter(|connection| !connection.rounds.remote.is_empty());
    let of_them = with_rounds
        .flat_map(|connection| env.table.of_connection(&connection.name).map(move |sa| (connection, sa)));
    let is_by_it = |(connection, sa): &(&Arc<Connection>, &IkeSa)| {
        let mut keys = env.loaded.earlier_keys(connection, sa).flatten();
        sa.is_established() && keys.any(|key| key.name == name)
    };
    of_them.filter(is_by_it).map(|(_, sa)| sa.id).collect()
}

impl Loaded {
    fn may_be_us(&self, identity: &Identity) -> bool {
        let named = |connection: &Arc<Connection>| {
            connection.local_rounds().any(|local| local.id.as_ref().is_some_and(|id| id.matches(identity)))
        };
        let has = |addr: &IpAddr| *identity == Identity::Addr(*addr);
        self.local_addrs.iter().any(has) || self.connections.iter().any(named)
    }

    fn is_by_key(&self, sa: &IkeSa) -> bool {
        let connection = self.known_connection(&sa.connection);
        connection.is_some_and(|connection| !connection.last_remote().method.is_pubkey())
    }
}

impl Environment {
    /// Both sides must authenticate again before the IKE SA ends; a rekeying does not postpone
    /// that.
    fn distrust(&mut self, sa: &mut IkeSa) {
        self.commit(sa);
        if !sa.keeps_its_end() {
            sa.outdated = Some(Box::new(OutdatedIke::distrusted()));
        }
    }

    /// Schedules a reauthentication before the IKE SA ends, on the node that owns it. One without
    /// an end gets that of the default lifetime: it must not live on for ever.
    pub(crate) fn reauthenticate_before_end(&self, now: Time, sa: &mut IkeSa) {
        let connection = self.loaded.known_connection(&sa.connection);
        let (end, over) = match sa.times.end {
            Some(end) => (end, connection.map_or(0, |connection| connection.lifetime.over)),
            None => {
                let usual = IkeLifetime::new(IKE_REKEY_SECONDS, None, None);
                (now.plus(Duration::from_secs(usual.rekey.saturating_add(usual.over))), usual.over)
            }
        };
        sa.times.end = Some(end);
        sa.reauth_at = sa.reauth_at.or(Some(Time(end.since(Time(Duration::from_secs(over))))));
    }
}
