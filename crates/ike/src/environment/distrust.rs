//! Distrust: proofs of a peer's identity that are not valid any more.

use crate::config::{Connection, IKE_REKEY_SECONDS, Identity, IkeLifetime, SecretKind, SharedSecret};
use crate::environment::Environment;
use crate::environment::loaded::Loaded;
use crate::environment::secrets::Load;
use crate::output::{IkeSaId, Time};
use crate::sa::{IkeSa, OutdatedIke};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Takes a shared key in the place of one of the same name. IKE SAs that it would authenticate
/// now, and that another one has authenticated, are not trusted any more; nor are those whose keys
/// depend on another PPK.
pub(crate) fn load_secret(env: &mut Environment, secret: SharedSecret) {
    let (name, kind, owners) = (secret.name.clone(), secret.kind, secret.owners.clone());
    let load = env.loaded.secrets.load(secret);
    if load == Load::Known {
        return;
    }
    let loaded = JustLoaded { name, owners, load };
    let distrusted = match kind {
        SecretKind::Ike => {
            let mut proven = loaded.refutes(env);
            proven.extend(loaded.refutes_earlier(env));
            proven
        }
        SecretKind::Ppk => loaded.is_another_ppk_of(env),
    };
    for id in distrusted {
        if let Some(mut sa) = env.table.take(id) {
            env.distrust(&mut sa);
            env.put(sa);
        }
    }
}

/// A secret that was loaded.
struct JustLoaded {
    name: String,
    owners: Vec<Identity>,
    load: Load,
}

impl JustLoaded {
    /// `by_another`: whether the IKE SA was authenticated by another secret than the one found for
    /// it now. A state from an older build does not say: then it was by the one of the same name.
    fn is_another(&self, found: &SharedSecret, by_another: Option<bool>) -> bool {
        found.name == self.name && by_another.unwrap_or(self.load == Load::Replaced)
    }

    /// The IKE SAs whose peer proved itself by another secret than this one. Those of its owners
    /// are found without a walk through all.
    fn refutes(&self, env: &Environment) -> Vec<IkeSaId> {
        let is_by_another = |sa: &&IkeSa| {
            let found = env.loaded.secrets.find(sa.local_id_of_proof(), sa.remote_id.as_ref());
            sa.is_established()
                && env.loaded.is_by_key(sa)
                && found.is_some_and(|found| self.is_another(found, sa.is_by_another(found)))
        };
        let all = || env.table.iter().filter(is_by_another).map(|sa| sa.id).collect();
        match &self.owners[..] {
            [] => all(),
            [owner] if env.loaded.may_be_us(owner) => all(),
            owners => {
                let of_owners = owners.iter().flat_map(|owner| env.table.by_identity(owner));
                of_owners.filter(is_by_another).map(|sa| sa.id).collect()
            }
        }
    }

    /// The same for a round before the last (RFC 4739).
    fn refutes_earlier(&self, env: &Environment) -> Vec<IkeSaId> {
        let connections = env.loaded.connections.iter().chain(env.loaded.former.values());
        let with_rounds = connections.filter(|connection| !connection.rounds.remote.is_empty());
        let of_them = with_rounds
            .flat_map(|connection| env.table.of_connection(&connection.name).map(move |sa| (connection, sa)));
        let is_by_another = |(connection, sa): &(&Arc<Connection>, &IkeSa)| {
            let mut keys = env.loaded.earlier_keys(connection, sa);
            let is_another = |(number, found): (usize, Option<&SharedSecret>)| {
                found.is_some_and(|found| self.is_another(found, sa.was_by_another(number, found)))
            };
            sa.is_established() && keys.any(is_another)
        };
        of_them.filter(is_by_another).map(|(_, sa)| sa.id).collect()
    }

    /// The IKE SAs whose keys depend on another PPK of the same name on the wire.
    fn is_another_ppk_of(&self, env: &Environment) -> Vec<IkeSaId> {
        let has_another = |sa: &&IkeSa| {
            let found = sa.ppk_id().and_then(|id| env.loaded.secrets.ppk(id));
            sa.is_established()
                && found.is_some_and(|found| found.name == self.name && sa.has_another_ppk(found))
        };
        env.table.iter().filter(|sa| sa.ppk).filter(has_another).map(|sa| sa.id).collect()
    }
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
