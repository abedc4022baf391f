//! The environment that the sessions of an endpoint share: everything that an exchange may use
//! beside its IKE SA.

mod actions;
pub(crate) mod begin;
pub(crate) mod computing;
pub(crate) mod connections;
pub(crate) mod distrust;
pub(crate) mod exchanges;
pub(crate) mod half_open;
mod lacks;
pub(crate) mod loaded;
mod log_limit;
pub(crate) mod names;
mod numbers;
pub(crate) mod pools;
pub(crate) mod record;
mod remotes;
pub(crate) mod report;
pub(crate) mod secrets;
mod starts;
pub(crate) mod stats;
pub(crate) mod table;
mod twins;

use crate::alloc::{Allocator, Home};
use crate::endpoint::EndpointConfig;
use crate::endpoint::replication::Homes;
use crate::environment::computing::Jobs;
use crate::environment::half_open::HalfOpens;
use crate::environment::loaded::Loaded;
use crate::environment::names::Names;
use crate::environment::numbers::Numbers;
use crate::environment::pools::Pools;
use crate::environment::report::Effects;
use crate::environment::starts::Starts;
use crate::environment::table::Table;
use crate::exchange::session::Session;
use crate::message::{IkeSpi, MessageBuilder, Nonce};
use crate::output::{ChildSaId, CommitId, Event, IkeSaId, Output, Path, Reason, Time};
use crate::sa::{IkeSa, Phase, SnapshotVersion};
use crate::suite::Entropy;

/// Everything in an endpoint except the interface to its host. A session holds it while it works on
/// an IKE SA, which is not in the table meanwhile.
pub(crate) struct Environment {
    pub(crate) config: EndpointConfig,
    pub(crate) alloc: Box<dyn Allocator + Send>,
    pub(crate) loaded: Loaded,
    pub(crate) pools: Pools,
    pub(crate) starts: Starts,
    /// DNS names of connections.
    pub(crate) names: Names,
    pub(crate) table: Table,
    pub(crate) half_opens: HalfOpens,
    pub(crate) jobs: Jobs,
    pub(crate) effects: Effects,
    pub(crate) numbers: Numbers,
    pub(crate) homes: Option<Box<dyn Homes>>,
    /// Version of exported states.
    pub(crate) snapshot: SnapshotVersion,
    /// Until then responses may be lost ([`Endpoint::expect_losses`](crate::endpoint::Endpoint)).
    pub(crate) losses_until: Time,
}

impl Environment {
    pub(crate) fn new(config: EndpointConfig, alloc: Box<dyn Allocator + Send>) -> Self {
        Self {
            config,
            alloc,
            loaded: Loaded::default(),
            pools: Pools::default(),
            starts: Starts::default(),
            names: Names::default(),
            table: Table::default(),
            half_opens: HalfOpens::default(),
            jobs: Jobs::default(),
            effects: Effects::default(),
            numbers: Numbers::default(),
            homes: None,
            snapshot: SnapshotVersion::NEWEST,
            losses_until: Time::default(),
        }
    }

    /// A session of an IKE SA that is not in the table.
    pub(crate) fn session<'e>(&'e mut self, now: Time, sa: &'e mut IkeSa) -> Session<'e> {
        Session { now, sa, env: self }
    }

    /// An SPI that no IKE SA of ours has.
    pub(crate) fn new_ike_spi(&mut self, home: Home<'_>) -> Option<IkeSpi> {
        const TRIES: usize = 16;
        (0..TRIES)
            .map(|_| self.alloc.ike_spi(home))
            .find(|spi| !spi.is_zero() && self.table.by_spi(*spi).is_none())
    }

    pub(crate) fn new_nonce(&mut self) -> Option<Nonce> {
        let mut octets = vec![0; Nonce::OUR_LENGTH];
        self.entropy().fill(&mut octets);
        Nonce::new(octets)
    }

    /// The source of randomness alone.
    pub(crate) fn entropy(&mut self) -> &mut dyn Entropy {
        &mut *self.alloc
    }

    /// When a failed attempt is repeated.
    pub(crate) fn retry_at(&mut self, now: Time) -> Time {
        let mut octet = [0];
        self.entropy().fill(&mut octet);
        let wait = self.config.rekey_retry;
        let spread = wait / 2 / 256 * u32::from(octet[0]);
        now.plus(wait.saturating_sub(spread))
    }

    pub(crate) fn changed(&mut self, id: IkeSaId) {
        if self.config.track_changes {
            self.effects.changed.insert(id);
        }
    }

    /// True if this node initiates the connection.
    pub(crate) fn is_home(&self, connection: &str) -> bool {
        self.homes.as_ref().is_none_or(|homes| homes.owns(homes.shard_of(connection)))
    }

    /// The home of a new IKE SA for the child. A child that was lost here is made here again, even
    /// if the peer had chosen the shard. `None` if it is on another node.
    pub(crate) fn home_of<'a>(&self, connection: &'a str, child: &str) -> Option<Home<'a>> {
        if self.is_home(connection) {
            return Some(Home::Initiating(connection));
        }
        let lost = self.starts.lost_in(connection, child);
        lost.filter(|shard| self.homes.as_ref().is_some_and(|homes| homes.owns(*shard))).map(Home::Renewing)
    }

    /// The end of an initiation.
    pub(crate) fn initiate_done(
        &mut self,
        now: Time,
        connection: &str,
        ike: IkeSaId,
        child: &str,
        result: Result<ChildSaId, Reason>,
    ) {
        self.starts.finished(connection, child, &result, now.plus(self.config.start_retry));
        self.effects.event(Event::InitiateDone { ike, child: child.to_owned(), result });
    }

    /// An initiation has come to nothing: it counts, `testudo status` says why, and those who wait
    /// for it hear so.
    pub(crate) fn initiation_failed(
        &mut self,
        now: Time,
        connection: &str,
        ike: IkeSaId,
        child: &str,
        reason: Reason,
    ) {
        self.effects.stats.failed += 1;
        self.loaded.connections.note_failure(now, connection, child, reason.to_string());
        self.initiate_done(now, connection, ike, child, Err(reason));
    }

    /// The state of the SA changes; what is sent from now on depends on it.
    pub(crate) fn commit(&mut self, sa: &mut IkeSa) {
        self.numbers.commit = CommitId(self.numbers.commit.0.saturating_add(1));
        sa.commit = self.numbers.commit;
        self.changed(sa.id);
    }

    /// Answers a peer without shared state, with no gain for an attacker with a forged address:
    /// never with more octets than the request had.
    pub(crate) fn answer_stranger(&mut self, path: Path, request: &[u8], message: &MessageBuilder) {
        let Ok(bytes) = message.finish() else { return };
        if bytes.len() <= request.len() {
            self.effects.stats.sent += 1;
            self.effects.outputs.push_back(Output::Send {
                ike: None,
                after: self.numbers.commit,
                path,
                bytes,
            });
        }
    }

    /// Bound on the octets of an IKE message, leaving room in an IP datagram for the headers of IP
    /// and UDP and the non-ESP marker.
    pub(crate) fn datagram_limit(&self, path: Path) -> usize {
        let headers = if path.remote.is_ipv4() { 20 + 8 + 4 } else { 40 + 8 + 4 };
        self.config.fragment_size.saturating_sub(headers)
    }

    /// Works on an IKE SA. If `work` fails, the SA ends for that reason.
    pub(crate) fn with_sa(
        &mut self,
        now: Time,
        id: IkeSaId,
        work: impl FnOnce(&mut Session<'_>) -> Result<(), Reason>,
    ) {
        let Some(mut sa) = self.table.take(id) else { return };
        let mut session = self.session(now, &mut sa);
        if let Err(reason) = work(&mut session) {
            session.retire(reason);
        }
        match sa.phase {
            Phase::Gone { until, source: _ } if until <= now => {
                self.changed(id);
                self.half_opens.leave(id);
                self.forget_former(&sa.connection);
            }
            _ => self.put(sa),
        }
    }

    /// Puts an IKE SA into the table.
    pub(crate) fn put(&mut self, sa: impl Into<Box<IkeSa>>) {
        self.table.put(sa.into(), &self.config);
    }

    pub(crate) fn has_made_sas(&self, connection: &str) -> bool {
        self.table.of_connection(connection).next().is_some()
    }

    /// An IKE SA of the connection is gone. After the last one the former connection is forgotten.
    pub(crate) fn forget_former(&mut self, connection: &str) {
        if !self.loaded.former.is_empty() && !self.has_made_sas(connection) {
            self.loaded.former.remove(connection);
        }
    }
}
