//! The gateway as VICI sees it: commands in, answers out.

use crate::children;
use crate::cluster::{Node, report};
use crate::error::Error;
use crate::gateway::Gateway;
use crate::ike::Ike;
use crate::ike_sockets::{IKE_PORT, NAT_PORT};
use crate::policies::Policies;
use crate::processors;
use crate::remote_sas::effect;
use crate::updown;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use testudo_cluster::member::Ask;
use testudo_cluster::node::NodeId;
use testudo_ike::cert::Credentials;
use testudo_ike::config::{ChildChange, ChildMode, Connection, Difference, Pool, SharedSecret};
use testudo_ike::endpoint::{
    Endpoint, Exchanges, IkeSaState, IkeSaStatus, LeaseStatus, PoolStatus, SaNames, Target, Terminating,
};
use testudo_ike::output::{ChildSaId, IkeSaId, LogLevel, Time};
use testudo_ipsec::selector::AddrRange;
use testudo_vici::CommandError;
use testudo_vici::alarms::AlarmPage;
use testudo_vici::children::ChildReport;
use testudo_vici::cluster::ClusterReport;
use testudo_vici::control::{
    ChangeNodes, ConfigChange, Control, Drain, Initiate, JobId, LoadedBy, Rekey, Selection, SetPolicy, Stats,
    Terminate, Version,
};
use testudo_vici::counters::Counters;
use testudo_vici::processors::Processors;
use testudo_vici::schema::Policy;
use testudo_vici::shut::{Cause, Release, Released, ShutPage};
use testudo_vici::view::ChildUsage;
use zeroize::Zeroizing;

/// The job of a command that nobody waits for.
const NO_JOB: JobId = JobId(0);

impl Gateway {
    /// The SAs that match every given field, as with charon: Child SAs if a field of a Child SA is
    /// given. Those of this node: see [`Gateway::matching_remote_sas`].
    fn matching(&self, wanted: &Selection) -> Vec<Target> {
        let mut targets = Vec::new();
        let given = wanted.ike_id.or_else(|| wanted.child_id.and_then(|child| self.endpoint.ike_of(child)));
        let (one, all) = match given {
            Some(id) => (self.endpoint.names_of(id), None),
            None => (None, Some(self.endpoint.names())),
        };
        let candidates = one.into_iter().chain(all.into_iter().flatten());
        for sa in candidates.filter(|sa| wanted.takes_ike(sa.id(), sa.connection())) {
            if !wanted.is_of_children() {
                targets.push(Target::Ike(sa.id()));
                continue;
            }
            let children = sa.children().filter(|(id, name)| wanted.takes_child(*id, name));
            targets.extend(children.map(|(id, _)| Target::Child(id)));
        }
        targets
    }
}

impl Gateway {
    /// Brings the policies of the connections that use a pool up to date.
    fn pool_changed(&mut self, name: &str, change: impl FnOnce(&mut Policies)) {
        let uses = |c: &&Connection| c.pools.iter().any(|pool| pool == name);
        let users: Vec<Connection> = self.endpoint.connections().filter(uses).cloned().collect();
        let outdated: Vec<Vec<ChildSaId>> =
            users.iter().map(|connection| self.endpoint.outdated_children(&connection.name)).collect();
        let is_called_for = self.ending.call();
        self.change_policies(Cause::PoolChanged(name.to_owned()), |policies| {
            change(policies);
            for (connection, outdated) in users.iter().zip(&outdated) {
                // Those of the others stay as they are until the end: what they protect stays shut.
                if is_called_for() {
                    break;
                }
                policies.load(connection);
                policies.stand_in(&connection.name, outdated);
            }
        });
        self.protection_changed |= self.data.claim_inherited();
        self.settle();
    }
}

impl Gateway {
    /// A connection is loaded although its script will not be run: without its policies, its
    /// traffic would pass in clear. And so it is if a cluster does not do all that it asks for.
    fn warn_of_settings(&mut self, connection: &Connection) {
        for line in updown::refused(connection) {
            self.warn(Some(&connection.name), line);
        }
        if self.endpoint.member().is_none() {
            return;
        }
        for child in connection.children.iter().filter(|child| child.per_cpu_sas) {
            let path = format!("connections.{}.children.{}.per_cpu_sas", connection.name, child.name);
            let line = format!("{path}: yes has no effect: in a cluster all workers of a node share one SA");
            self.warn(Some(&connection.name), line);
        }
    }

    /// The installed Child SAs of the connection follow its `mss` and `icmp`.
    fn set_installed(&self, connection: &Connection) {
        for (id, name) in self.endpoint.children_of(&connection.name) {
            if let Some(child) = connection.child(name) {
                self.data.set_mss(id, child.mss);
                self.data.set_icmp(id, child.icmp);
            }
        }
    }

    /// The Child SAs that will be replaced when the connection is loaded in place of the present
    /// one.
    fn to_be_replaced(&self, connection: &Connection) -> Vec<ChildSaId> {
        let mut found = self.endpoint.outdated_children(&connection.name);
        let Some(before) = self.endpoint.made_by(&connection.name) else { return found };
        let difference = Difference::between(before, connection);
        let children = self.endpoint.sas_of(&connection.name).flat_map(|sa| sa.children);
        let replaced = |name: &str| difference.children.get(name) == Some(&ChildChange::Replace);
        found.extend(children.filter(|child| replaced(&child.name)).map(|child| child.id));
        found
    }
}

impl Control for Gateway {
    fn takes_commands(&self) -> bool {
        !self.ending.is_called_for()
    }

    fn command_refused(&mut self, command: &str, why: &str) {
        // A client that goes on loading while the gateway ends must not fill the end of the log.
        if !self.ending.has_begun() {
            self.log(None, None, LogLevel::Warning, format!("refused {command}: {why}"));
        }
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn load_connection(&mut self, mut connection: Connection) -> Result<(), CommandError> {
        if self.ending.has_begun() {
            return Err(Error::Ending.into());
        }
        if ![IKE_PORT, NAT_PORT].contains(&connection.local_port) {
            let Connection { name, local_port: found, .. } = connection;
            return Err(Error::LocalPort { connection: name, found }.into());
        }
        // A connection that is refused must not change anything: its policies would replace the
        // present ones.
        Endpoint::check_connection(&connection)?;
        self.endpoint.fill_names(&mut connection);
        let name = connection.name.clone();
        if self.endpoint.connection(&name) == Some(&connection) {
            let line = "loaded the connection again, which has not changed".into();
            self.log(None, Some(name.clone()), LogLevel::Info, line);
            self.warn_of_settings(&connection);
            self.warn_of_lacks(&name);
            return Ok(());
        }
        let (replaced, copy) = (self.to_be_replaced(&connection), connection.clone());
        self.change_policies(Cause::ConnectionChanged(name.clone()), |policies| {
            policies.load(&connection);
            policies.stand_in(&connection.name, &replaced);
        });
        // The policies are loaded before the first message leaves.
        let loaded = self
            .apply_policies()
            .and_then(|()| self.endpoint.load_connection(self.now, connection).map_err(Error::from));
        if loaded.is_ok() {
            self.protection_changed |= self.data.claim_inherited();
            self.updown.load(&copy);
            self.set_installed(&copy);
            self.log(None, Some(name.clone()), LogLevel::Info, "loaded the connection".into());
            self.warn_of_settings(&copy);
            self.warn_of_lacks(&name);
            for twin in self.twins.load(&copy) {
                self.warn(Some(&name), format!("child {} {twin}", twin.child));
            }
        } else {
            match self.endpoint.connection(&name) {
                Some(before) => {
                    let outdated = self.endpoint.outdated_children(&name);
                    self.policies.load(before);
                    self.policies.stand_in(&name, &outdated);
                }
                None => self.policies.unload(&name),
            }
        }
        self.settle();
        Ok(loaded?)
    }

    fn warn(&mut self, connection: Option<&str>, message: String) {
        self.log(None, connection.map(str::to_owned), LogLevel::Warning, message);
    }

    fn unload_connection(&mut self, name: &str) -> Result<(), CommandError> {
        if !self.endpoint.unload_connection(name) {
            return Err(Error::UnknownConnection(name.to_owned()).into());
        }
        let cause = Cause::ConnectionUnloaded(name.to_owned());
        self.change_policies(cause, |policies| policies.unload(name));
        self.updown.unload(name);
        self.twins.unload(name);
        self.log(None, Some(name.to_owned()), LogLevel::Info, "unloaded the connection; its SAs stay".into());
        self.settle();
        Ok(())
    }

    fn connection_names(&self) -> Vec<String> {
        self.endpoint.connections().map(|c| c.name.clone()).collect()
    }

    fn connection(&self, name: &str) -> Option<&Connection> {
        self.endpoint.connection(name)
    }

    fn load_secret(&mut self, secret: SharedSecret) -> Result<(), CommandError> {
        self.endpoint.load_secret(secret);
        Ok(())
    }

    fn unload_secret(&mut self, name: &str) {
        self.endpoint.unload_secret(name);
    }

    fn secret_names(&self) -> Vec<String> {
        self.endpoint.secrets().names().map(str::to_owned).collect()
    }

    fn clear_secrets(&mut self) {
        self.endpoint.clear_secrets();
    }

    fn credentials(&self) -> &Credentials {
        self.endpoint.credentials()
    }

    fn credentials_mut(&mut self) -> &mut Credentials {
        self.endpoint.credentials_mut()
    }

    fn load_pool(&mut self, pool: Pool) -> Result<(), CommandError> {
        self.endpoint.load_pool(pool.clone())?;
        if self.policies.has_pool(&pool) {
            // `swanctl --load-all` loads each pool again, and very many connections may use one.
            self.settle();
            return Ok(());
        }
        self.pool_changed(&pool.name, |policies| policies.load_pool(&pool));
        Ok(())
    }

    fn unload_pool(&mut self, name: &str) -> Result<(), CommandError> {
        self.endpoint.unload_pool(name)?;
        self.pool_changed(name, |policies| policies.unload_pool(name));
        Ok(())
    }

    fn pools(&self) -> Vec<PoolStatus> {
        self.endpoint.pools().status().collect()
    }

    fn leases(&self, pool: &str) -> Vec<LeaseStatus> {
        self.endpoint.pools().leases(pool).collect()
    }

    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), CommandError> {
        // An empty name stands for the IKE SA alone.
        let child = request.child.clone().unwrap_or_default();
        if let Some(connection) = self.initiated_remotely(request.ike.as_deref(), &child) {
            return Ok(self.ask(job, Ask::Initiate { connection, child })?);
        }
        let begun = match (&request.child, &request.ike) {
            (None, Some(connection)) => self.endpoint.initiate_alone(self.now, connection),
            _ => self.endpoint.initiate(self.now, request.ike.as_deref(), &child),
        };
        let ike = begun?;
        self.jobs.initiating(job, ike, &child);
        let state = self.endpoint.names_of(ike).map(SaNames::state);
        if child.is_empty() && state == Some(IkeSaState::Established) {
            self.ike_initiated(ike, &Ok(()));
        }
        self.settle();
        Ok(())
    }

    fn terminate(&mut self, job: JobId, request: &Terminate) -> Result<u32, CommandError> {
        let mut begun = Terminating::default();
        for target in self.matching(&request.sas) {
            if self.ending.is_called_for() {
                return Err(CommandError::new("the gateway ends before all of these SAs are terminated"));
            }
            // An SA that has just gone with another one needs no termination.
            if let Ok(more) = self.endpoint.terminate(self.now, &target, request.force) {
                begun.ikes.extend(more.ikes);
                begun.children.extend(more.children);
            }
        }
        let remote = self.matching_remote_sas(&request.sas);
        if !remote.sas.is_empty() {
            self.ask(job, Ask::Terminate { sas: remote.sas, force: request.force })?;
            begun.ikes.extend(remote.numbers.ikes);
            begun.children.extend(remote.numbers.children);
        }
        if begun == Terminating::default() {
            return Ok(0);
        }
        self.jobs.terminating(job, &begun);
        self.settle();
        Ok((begun.ikes.len() + begun.children.len()) as u32)
    }

    fn set_policy(&mut self, request: &SetPolicy) -> Result<(), CommandError> {
        Ok(self.set_child_policy(request)?)
    }

    fn command_behind(&self, request: &SetPolicy) -> Result<Option<LoadedBy>, CommandError> {
        Ok(self.command_of_cluster(request)?)
    }

    fn reload_settings(&mut self) -> Result<(), CommandError> {
        Ok(self.read_settings_again()?)
    }

    fn rekey(&mut self, request: &Rekey) -> u32 {
        let mut begun = 0;
        for target in self.matching(&request.sas) {
            if self.ending.is_called_for() {
                break;
            }
            begun += u32::from(self.endpoint.renew_target(self.now, &target, request.reauth));
        }
        let sas = self.matching_remote_sas(&request.sas).sas;
        let asked = sas.len() as u32;
        match asked {
            0 => {}
            _ => match self.ask(NO_JOB, Ask::Rekey { sas, reauth: request.reauth }) {
                Ok(()) => begun += asked,
                Err(why) => {
                    self.log(None, None, LogLevel::Warning, format!("cannot rekey SAs of other nodes: {why}"))
                }
            },
        }
        self.settle();
        begun
    }

    fn ike_sa_ids(&self) -> Vec<IkeSaId> {
        self.endpoint.sa_ids()
    }

    fn replicate(&mut self, job: JobId, change: ConfigChange, command: Zeroizing<Vec<u8>>) -> bool {
        let now = self.now;
        let Some(member) = self.endpoint.member() else { return false };
        let replicated = member.configure(now, job.0, effect(change), command);
        self.settle();
        replicated
    }

    fn node_of(&self, id: IkeSaId) -> Option<u32> {
        let Ike::Member(member) = &self.endpoint else { return None };
        member.node_of(id).map(|node| node.get().into())
    }

    fn ike_sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        self.endpoint.sa(id)
    }

    fn child_usage(&self, id: ChildSaId) -> ChildUsage {
        self.data.usage(id)
    }

    fn children(&self, connection: &str, now: Time) -> Vec<ChildReport> {
        children::reports(&self.endpoint, connection, now)
    }

    fn version(&self) -> Version {
        let uts = nix::sys::utsname::uname();
        let text = |s: Option<&std::ffi::OsStr>| s.unwrap_or_default().to_string_lossy().into_owned();
        Version {
            daemon: "testudod".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            sysname: text(uts.as_ref().ok().map(|u| u.sysname())),
            release: text(uts.as_ref().ok().map(|u| u.release())),
            machine: text(uts.as_ref().ok().map(|u| u.machine())),
        }
    }

    fn stats(&self) -> Stats {
        let is_half_open = |sa: &SaNames<'_>| sa.state() == IkeSaState::Connecting;
        let half_open = self.endpoint.names().filter(is_half_open).count();
        Stats {
            since: self.since,
            uptime: SystemTime::now().duration_since(self.since).unwrap_or(Duration::ZERO),
            workers: 1,
            workers_idle: u32::from(self.data.is_idle()),
            scheduled: u32::from(self.endpoint.next_timeout().is_some()),
            ike_sas: self.endpoint.names().count() as u32,
            ike_sas_half_open: half_open as u32,
            plugins: self.data.parts(),
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = self.data.counters();
        counters.alarms = self.alarms.raised();
        let stats = self.endpoint.stats();
        let mut named = |name: &str, value: u64| counters.ike.push((name.to_owned(), value));
        named("received", stats.received);
        named("sent", stats.sent);
        named("retransmitted", stats.retransmitted);
        named("responses_repeated", stats.responses_repeated);
        named("cookies_demanded", stats.cookies_demanded);
        named("established", stats.established);
        named("failed", stats.failed);
        for (name, value) in stats.discards() {
            named(&format!("discarded_{name}"), value);
        }
        let bypassed = self
            .endpoint
            .connections()
            .flat_map(|c| &c.children)
            .filter(|child| child.mode == ChildMode::Pass && child.start_action.traps())
            .count();
        counters.totals.push(("bypass_policies".into(), bypassed as u64));
        counters
    }

    fn cluster(&self) -> Option<ClusterReport> {
        let Ike::Member(member) = &self.endpoint else { return None };
        let witness = self.node.as_ref().and_then(Node::witness);
        let misfit = self.node.as_ref().and_then(Node::misfit);
        let mut report = report(&member.status(), witness, misfit, self.now);
        report.why.extend(self.node.iter().flat_map(|node| node.ingress_faults(self.data.fib())));
        let sessions = self.data.session_counts();
        let counts = [
            ("rows_missed", self.data.rows_missed()),
            ("rows_past_window", self.data.rows_past_window()),
            ("sessions_learned", sessions.learned),
            ("sessions_put_right", sessions.put_right),
        ];
        report.counters.extend(counts.map(|(name, count)| (name.into(), count)));
        Some(report)
    }

    fn drain(&mut self, request: &Drain) -> Result<(), CommandError> {
        let Ike::Member(member) = &mut self.endpoint else {
            return Err(Error::Alone.into());
        };
        let node = match request.node {
            None => member.node(),
            Some(number) => NodeId::new(number).ok_or(Error::NodeNumber(number))?,
        };
        member.drain(self.now, node, request.drained)?;
        self.settle();
        Ok(())
    }

    fn change_nodes(&mut self, request: &ChangeNodes) -> Result<u64, CommandError> {
        Ok(Gateway::change_nodes(self, request)?)
    }

    fn shut(&self, behind: Option<AddrRange>) -> ShutPage {
        self.shut_page(behind)
    }

    fn release(&mut self, request: &Release) -> Result<Released, CommandError> {
        Ok(self.release_prefix(request)?)
    }

    fn processors(&self) -> Result<Processors, CommandError> {
        Ok(processors::read()?)
    }

    fn hold_path_mtu(&mut self, remote: IpAddr, mtu: u16, holder: &str) -> Result<(), CommandError> {
        Ok(self.path_mtu_told(remote, mtu, holder)?)
    }

    fn release_path_mtus(&mut self, holder: &str) {
        self.path_mtus_untold(holder);
    }

    fn alarms(&self, above: u64) -> AlarmPage {
        self.alarms.page(above, self.dropped_sources())
    }

    fn accept_source(&mut self, source: IpAddr, by: Option<&str>) -> Result<(), CommandError> {
        Ok(Gateway::accept_source(self, source, by)?)
    }

    fn exchanges(&self) -> &Exchanges {
        &self.endpoint.stats().exchanges
    }

    fn exchanges_mut(&mut self) -> &mut Exchanges {
        self.endpoint.exchanges_mut()
    }
}
