//! Loaded configuration: connections, credentials, and what the host has reported about itself.

use crate::cert::{Certificate, Credentials};
use crate::config::{AuthMethod, Connection, Identity, LocalAuth, RemoteAuth, SharedSecret};
use crate::endpoint::InitiateError;
use crate::environment::connections::Connections;
use crate::environment::secrets::Secrets;
use crate::exchange::local_identity;
use crate::exchange::narrow::Selectors;
use crate::message::IdPayload;
use crate::output::{Path, Time, UnixTime};
use crate::sa::{Anchor, ChildSa, EarlierRound, Ends, IkeSa};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::AddrRange;

/// Everything that operators and the host have given the endpoint, and that no exchange changes.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) connections: Connections,
    /// Connections that were unloaded while SAs of theirs exist.
    pub(crate) former: BTreeMap<String, Arc<Connection>>,
    pub(crate) secrets: Secrets,
    /// Jobs share it: a handshake is judged by what was loaded at that time.
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) local_addrs: Vec<IpAddr>,
    /// See [`Endpoint::set_reserved_addresses`](crate::endpoint::Endpoint::set_reserved_addresses).
    pub(crate) reserved: Vec<AddrRange>,
    /// The time of day as the host last set it, and the clock at that moment.
    pub(crate) clock: (UnixTime, Time),
}

impl Loaded {
    /// The CAs that are trusted in a round.
    pub(crate) fn anchors<'a>(&'a self, remote: &'a RemoteAuth) -> Vec<&'a Certificate> {
        match remote.cacerts.as_slice() {
            [] => self.cas(),
            own => own.iter().collect(),
        }
    }

    /// All CAs. A CA that a connection names is loaded with it, for all connections, as with
    /// charon.
    pub(crate) fn cas(&self) -> Vec<&Certificate> {
        self.credentials.cas().chain(self.connections.cas()).collect()
    }

    /// True if none of the connections was changed or unloaded.
    pub(crate) fn are_current(&self, connections: &[Arc<Connection>]) -> bool {
        let is_current = |one: &Arc<Connection>| self.connections.get(&one.name).as_ref() == Some(one);
        connections.iter().all(is_current)
    }

    /// The shared key between us and the peer as configured, before the peer has sent its identity.
    pub(crate) fn key_to(&self, local: &LocalAuth, remote: &RemoteAuth, path: Path) -> Option<&SharedSecret> {
        let local = local_identity(local, path);
        // A peer without a configured identity most likely uses its address.
        let by_addr = Identity::Addr(path.remote.ip());
        let named = remote.name();
        let remote = named.unwrap_or(&by_addr);
        self.secrets
            .find(Some(&local), Some(remote))
            .or_else(|| named.is_none().then(|| self.secrets.find(Some(&local), None))?)
    }

    /// The method for which we have no credentials, as far as that is known before the peer has
    /// sent its identity. `None`: every round of ours can be authenticated.
    pub(crate) fn cannot_prove(&self, connection: &Connection, path: Path) -> Option<AuthMethod> {
        let can = |number: usize, local: &LocalAuth| match local.method {
            AuthMethod::Psk => self.key_to(local, connection.remote_beside(number), path).is_some(),
            AuthMethod::Pubkey { .. } => {
                self.credentials.own_key(local, &local_identity(local, path)).is_some()
            }
        };
        let rounds = connection.local_rounds().enumerate();
        rounds.filter(|(number, local)| !can(*number, local)).map(|(_, local)| local.method).next()
    }

    /// True if we can use a PPK when we initiate the connection.
    pub(crate) fn has_ppk_for(&self, connection: &Connection) -> bool {
        connection.ppk.id.as_ref().is_some_and(|id| self.secrets.ppk(IdPayload::from(id).data()).is_some())
    }

    /// True if a new Child SA of the same name carries all or a part of this one's traffic; or if
    /// none of it is configured any more, so that any new one counts.
    pub(crate) fn is_displaced_by(&self, sa: &IkeSa, old: &ChildSa, new: &ChildSaParams) -> bool {
        let overlaps = Selectors::of(&old.params).narrow(&Selectors::of(new)).is_some();
        overlaps || old.outdated.is_some() && self.still_configured(sa, old).is_none()
    }

    /// True if nothing is left for the old Child SA beside such a new one.
    pub(crate) fn is_replaced_by(&self, sa: &IkeSa, old: &ChildSa, new: &ChildSaParams) -> bool {
        let outdated = old.outdated.is_some() && self.is_displaced_by(sa, old, new);
        outdated || Selectors::of(&old.params).within(&Selectors::of(new))
    }

    /// The part of a Child SA's traffic that is still configured for its child.
    pub(crate) fn still_configured(&self, sa: &IkeSa, child: &ChildSa) -> Option<Selectors> {
        let connection = self.connections.find(&sa.connection)?;
        let configured = connection.child(&child.name)?;
        let configured = Selectors::configured(configured, &sa.dynamic_local(), &sa.dynamic_remote());
        configured.narrow(&Selectors::of(&child.params))
    }

    /// True if the connection of an IKE SA allows this path, or only a port differs.
    pub(crate) fn takes_at(&self, sa: &IkeSa, path: Path) -> bool {
        let fit = |connection: &Connection| connection.address_fit(path.local.ip(), path.remote.ip());
        Ends::from(path) == Ends::from(sa.path)
            || self.known_connection(&sa.connection).and_then(fit).is_some()
    }

    /// True if the peer would not be admitted any more as it was: its identity is not allowed in
    /// some round, or its proof is void. What is configured now is meant for another peer.
    pub(crate) fn is_revoked(&self, sa: &IkeSa) -> bool {
        self.is_renamed(sa) || self.is_renamed_in_earlier_round(sa) || self.has_lost_its_proof(sa)
    }

    fn is_renamed_in_earlier_round(&self, sa: &IkeSa) -> bool {
        let Some(connection) = self.connections.find(&sa.connection) else { return false };
        let is_other = |round: &EarlierRound| {
            let remote = connection.remote_round(round.number);
            let expected = remote.and_then(|remote| remote.id.as_ref());
            expected.is_some_and(|expected| !expected.covers(&round.remote))
        };
        sa.earlier_rounds().iter().any(is_other)
    }

    /// True if the peer's identity in this IKE SA is not allowed any more.
    pub(crate) fn is_renamed(&self, sa: &IkeSa) -> bool {
        let expected =
            self.connections.find(&sa.connection).and_then(|found| found.last_remote().id.as_ref());
        sa.remote_id.as_ref().zip(expected).is_some_and(|(had, expected)| !expected.covers(had))
    }

    /// True if the peer's proof of identity is void in any round: its shared key is another one now,
    /// or is gone like its CA; or if that holds for the PPK on which the keys depend.
    pub(crate) fn has_lost_its_proof(&self, sa: &IkeSa) -> bool {
        let Some(connection) = self.known_connection(&sa.connection) else { return false };
        let is_distrusted = |round: &EarlierRound| {
            let remote = connection.remote_round(round.number);
            remote.is_some_and(|remote| self.distrusts(remote, round.anchor.as_ref()))
        };
        let is_other = |(number, key): (usize, Option<&SharedSecret>)| {
            key.is_none_or(|key| sa.was_by_another(number, key) == Some(true))
        };
        let has_lost_ppk =
            sa.ppk_id().is_some_and(|id| self.secrets.ppk(id).is_none_or(|ppk| sa.has_another_ppk(ppk)));
        if has_lost_ppk
            || self.earlier_keys(connection, sa).any(is_other)
            || sa.earlier_rounds().iter().any(is_distrusted)
        {
            return true;
        }
        let remote = connection.last_remote();
        match remote.method.is_pubkey() {
            true => sa.is_by_shared_key() || self.distrusts(remote, sa.anchor.as_deref()),
            false => {
                let key = self.secrets.find(sa.local_id_of_proof(), sa.remote_id.as_ref());
                key.is_none_or(|key| sa.is_by_another(key) == Some(true))
            }
        }
    }

    /// True if the trust anchor of a round is not trusted any more.
    fn distrusts(&self, remote: &RemoteAuth, anchor: Option<&Anchor>) -> bool {
        let trusted = self.anchors(remote).into_iter().chain(&remote.certs);
        let mut trusted = trusted.chain(self.credentials.certificates());
        anchor.is_some_and(|anchor| !trusted.any(|certificate| Anchor::of(certificate) == *anchor))
    }

    /// The shared keys for the rounds before the last in which a peer has proved itself by one,
    /// with the numbers of the rounds; `None` for those that are gone. A state from an older build
    /// does not say who the two were in these rounds. Then the names in the connection count, and a
    /// round in which one of them has no name there is left out: its address may have been another
    /// one.
    pub(crate) fn earlier_keys<'a>(
        &'a self,
        connection: &'a Connection,
        sa: &'a IkeSa,
    ) -> impl Iterator<Item = (usize, Option<&'a SharedSecret>)> + 'a {
        let rounds = connection.remote_rounds().enumerate().take(connection.rounds.remote.len());
        rounds.filter(|(_, remote)| !remote.method.is_pubkey()).filter_map(move |(number, remote)| {
            let known = sa.earlier_rounds().iter().find(|round| round.number == number);
            if let Some(EarlierRound { local, remote, .. }) = known {
                return Some((number, self.secrets.find(Some(local), Some(remote))));
            }
            let (local, remote) = (connection.local_beside(number).identity()?, remote.name()?);
            Some((number, self.secrets.find(Some(&local), Some(remote))))
        })
    }

    /// True if a peer proves itself in the same way for two connections, by name. Elsewhere another
    /// CA may vouch, for whom it likes: who is trusted for one connection must not touch the SAs of
    /// another.
    pub(crate) fn are_alike(&self, one: &str, other: &str) -> bool {
        let alike = || Some(self.known_connection(one)?.proves_alike(self.known_connection(other)?));
        one == other || alike().unwrap_or(false)
    }

    /// What time of day it is, as far as it was told.
    pub(crate) fn unix_time(&self, now: Time) -> UnixTime {
        let (UnixTime(told), when) = self.clock;
        UnixTime(told.saturating_add(now.since(when).as_secs()))
    }

    /// The path on which a connection is initiated.
    pub(crate) fn initial_path(&self, connection: &Connection) -> Result<Path, InitiateError> {
        let hosts = connection.remote_hosts();
        let first = hosts.singles().next().ok_or_else(|| match hosts.has_single() {
            true => InitiateError::Unresolved(connection.name.clone()),
            false => InitiateError::NoPeer(connection.name.clone()),
        })?;
        let found = hosts.singles().find_map(|peer| Some((self.address_towards(connection, peer)?, peer)));
        let (local, remote) = found.ok_or_else(|| InitiateError::NoLocalAddress {
            connection: connection.name.clone(),
            peer: first,
        })?;
        Ok(connection.path(local, remote))
    }

    /// The path on which an attempt begins again. If the connection does not give the peer's
    /// address, it is the former one.
    pub(crate) fn path_again(&self, connection: &Connection, sa: &IkeSa) -> Result<Path, InitiateError> {
        if connection.remote_hosts().has_single() {
            return self.initial_path(connection);
        }
        Ok(connection.path(sa.path.local.ip(), sa.path.remote.ip()))
    }

    /// The first address that the connection names and the host has; else the host's first that it
    /// allows. If the host has none of them, the first named one: that it cannot be used will show.
    fn address_towards(&self, connection: &Connection, peer: IpAddr) -> Option<IpAddr> {
        let hosts = connection.local_hosts();
        let allowed = self.local_addrs.iter().copied().filter(|addr| hosts.contains(*addr));
        let present = hosts.singles().filter(|addr| self.local_addrs.contains(addr));
        present.chain(allowed).chain(hosts.singles()).find(|addr| addr.is_ipv4() == peer.is_ipv4())
    }

    /// The connection of this name: the loaded one, or the unloaded one if SAs of it exist.
    pub(crate) fn known_connection(&self, name: &str) -> Option<&Connection> {
        self.connections.find(name).or_else(|| self.former.get(name).map(|former| &**former))
    }
}
