//! The gateway between two turns of the event loop: IKE, the SPD, the data path and who waits for what.
//!
//! Whatever happens (a datagram, a command, a deadline, an event of a worker) ends with [`Gateway::settle`], which does
//! what IKE asks for in the one order that is safe: a new inbound SA is with the worker, and the SPD changed, before the
//! message leaves that lets the peer use them.

use crate::cluster::Node;
use crate::crypto::{Crypto, Failed};
use crate::datapath::{DataPath, Turn, WorkerEvent};
use crate::ike::Ike;
use crate::ike_sockets::IkeSockets;
use crate::jobs::Jobs;
use crate::policies::{Change, Policies};
use crate::retreat::apply_what_can_be;
use crate::virtual_ips::VirtualIps;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};
use testudo_cluster::member::{Member, MemberOutput as Output};
use testudo_fastpath::worker::boottime;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus, Target};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Path, Reason, Time, UnixTime};
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::SelectorPair;
use testudo_vici::control::JobId;
use testudo_vici::schema::Policy;

/// All state of the control thread but its descriptors.
pub(crate) struct Gateway {
    pub(crate) endpoint: Ike,
    /// What ties it to the other nodes, if it does not stand alone.
    pub(crate) node: Option<Node>,
    /// Why it cannot go on.
    failed: Option<String>,
    crypto: Crypto,
    pub(crate) policies: Policies,
    pub(crate) data: DataPath,
    pub(crate) jobs: Jobs,
    /// Which algorithms connections may name.
    pub(crate) policy: Policy,
    /// See [`Gateway::look_at_clock`].
    pub(crate) now: Time,
    pub(crate) since: SystemTime,
    /// Filter and routes have to follow, although no policy has changed.
    pub(crate) protection_changed: bool,
    /// They could not be applied as they are: housekeeping tries again.
    policies_failed: bool,
    /// Children installed since the policies were applied last.
    fresh: Vec<Fresh>,
    /// The end has begun: nothing new comes up.
    closing: bool,
    /// Messages that wait for the policies.
    held: Vec<Departure>,
    origin: Instant,
    sockets: IkeSockets,
    /// A datagram.
    buffer: Vec<u8>,
    notes: VecDeque<Note>,
    /// Somebody wants to hear of SAs that come and go.
    watched: bool,
    /// While somebody does: as last seen, so that an SA that goes down can still be described.
    ikes: BTreeMap<IkeSaId, IkeSaStatus>,
    /// Packets that had come in and gone out at the last look, by Child SA.
    seen: BTreeMap<ChildSaId, (u64, u64)>,
    virtual_ips: VirtualIps,
}

/// Something for the VICI server to pass on.
pub(crate) enum Note {
    /// A line of the log, and the jobs it belongs to.
    Log { ike: Option<IkeSaId>, connection: Option<String>, level: u8, message: String, jobs: Vec<JobId> },
    /// An initiation is over.
    Initiated(JobId, Result<(), String>),
    /// A termination is over.
    Terminated(JobId, u32),
    /// An IKE SA came up or went down.
    Ike(bool, Box<IkeSaStatus>),
    /// A Child SA came up or went down.
    Child(bool, Box<IkeSaStatus>, Box<ChildSaStatus>),
    /// An IKE SA has taken the place of another.
    IkeRekeyed(Box<(IkeSaStatus, IkeSaStatus)>),
    /// A Child SA of an IKE SA has taken the place of another.
    ChildRekeyed(Box<(IkeSaStatus, ChildSaStatus, ChildSaStatus)>),
}

/// A new Child SA whose policy does not stand yet.
struct Fresh {
    ike: Option<IkeSaId>,
    connection: String,
    child: ChildSaId,
    name: String,
}

/// A message that waits until the data path is ready for its effect.
enum Departure {
    Message(Option<IkeSaId>, Path, Vec<u8>),
    Keepalive(Path),
}

impl Gateway {
    /// A gateway without connections.
    pub(crate) fn new(
        (endpoint, node): (Ike, Option<Node>),
        crypto: Crypto,
        data: DataPath,
        sockets: IkeSockets,
        policy: Policy,
    ) -> Self {
        let policies = match &endpoint {
            Ike::Member(member) => Policies::of_node(member.hash_key()),
            Ike::Alone(_) => Policies::default(),
        };
        Self {
            endpoint,
            node,
            failed: None,
            crypto,
            policy,
            policies,
            data,
            jobs: Jobs::default(),
            now: Time::default(),
            since: SystemTime::now(),
            protection_changed: false,
            policies_failed: false,
            fresh: Vec::new(),
            closing: false,
            held: Vec::new(),
            origin: Instant::now(),
            sockets,
            buffer: vec![0; 65536],
            notes: VecDeque::new(),
            watched: false,
            ikes: BTreeMap::new(),
            seen: BTreeMap::new(),
            virtual_ips: VirtualIps::default(),
        }
    }

    /// Sets [`Gateway::now`]. Once for each message and each turn: of two messages the one that came later must have the
    /// later time, because IKE compares when SAs began (RFC 7296 §2.4).
    pub(crate) fn look_at_clock(&mut self) {
        // What nodes of a cluster grant each other goes on running out while the machine sleeps.
        self.now = Time(if self.node.is_some() { boottime() } else { self.origin.elapsed() });
        // The clock of the day may be set while we run: certificates are judged by what it says now.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.endpoint.set_unix_time(self.now, UnixTime(since_1970.as_secs()));
    }

    /// Takes IKE messages until none waits, at most `limit`; true if there may be more. What they ask of the data path is
    /// asked for all of them together.
    pub(crate) fn receive(&mut self, limit: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let more = (0..limit).all(|_| {
            let Some((path, len)) = self.sockets.receive(&mut buffer) else { return false };
            let bytes = buffer.get(len).unwrap_or_default();
            self.look_at_clock();
            self.endpoint.handle_datagram(self.now, path, bytes);
            self.perform_all();
            true
        });
        self.buffer = buffer;
        self.settle();
        more
    }

    /// Whether somebody wants to hear of SAs that come and go.
    pub(crate) fn watch(&mut self, wanted: bool) {
        if wanted && !self.watched {
            self.ikes = self.endpoint.sas().map(|status| (status.id, status)).collect();
        } else if !wanted {
            self.ikes.clear();
        }
        self.watched = wanted;
    }

    /// Does everything that IKE asks for, then lets the messages go.
    pub(crate) fn settle(&mut self) {
        self.crypto.feed(&mut self.endpoint);
        self.endpoint.pump(self.now);
        self.perform_all();
        // The messages of all peers wait for this, so it must end, and not with a peer that believes in an SA whose traffic is
        // not held back without it. Everything else stays as shut as it was; housekeeping tries again what fails here.
        let give_up = |this: &mut Self, newest: Vec<Fresh>, error: &String| {
            newest.into_iter().for_each(|fresh| this.give_up(fresh, error));
            this.perform_all();
        };
        if let Err(error) = apply_what_can_be(self, |this| &mut this.fresh, Self::apply_policies, give_up) {
            self.log(None, None, 0, format!("cannot change the policies: {error}"));
        }
        for departure in std::mem::take(&mut self.held) {
            self.depart(departure);
        }
        // What could not be sent has led to events, and to nothing else.
        self.perform_all();
    }

    pub(crate) fn perform_all(&mut self) {
        while self.failed.is_none()
            && let Some(output) = self.endpoint.poll_output()
        {
            self.perform(output);
        }
    }

    /// Goes on with the handshakes whose computations are done.
    pub(crate) fn jobs_done(&mut self) {
        let results = self.crypto.results();
        if results.is_empty() {
            return;
        }
        for result in results {
            self.look_at_clock();
            match result {
                Ok(done) => self.endpoint.job_done(self.now, done),
                Err(Failed { job, why }) => self.endpoint.job_failed(self.now, job, &why),
            }
            self.perform_all();
        }
        self.settle();
    }

    fn depart(&mut self, departure: Departure) {
        match departure {
            Departure::Message(ike, path, bytes) => {
                if let Err(error) = self.sockets.send(path, &bytes) {
                    self.endpoint.not_sent(self.now, ike, path, &error.to_string());
                }
            }
            Departure::Keepalive(path) => {
                if let Err(error) = self.sockets.send_keepalive(path) {
                    let Path { local, remote } = path;
                    let message = format!("cannot send a NAT keepalive from {local} to {remote}: {error}");
                    self.log(None, None, 1, message);
                }
            }
        }
    }

    /// Makes filter, routes and worker follow the policies, if they have changed.
    pub(crate) fn apply_policies(&mut self) -> Result<(), String> {
        let asked =
            if std::mem::take(&mut self.protection_changed) { Change::Protection } else { Change::None };
        let change = match self.policies.take_change().max(asked) {
            // Filter and routes have not come as far as they should.
            Change::Spd if self.policies_failed => Change::Protection,
            change => change,
        };
        if change != Change::None {
            let applied = self.data.set_policies(&mut self.policies, change);
            self.policies_failed = applied.is_err();
            applied?;
            self.policies.applied();
            self.fresh.clear();
        }
        Ok(())
    }

    /// Takes back a Child SA that the data path cannot carry.
    fn give_up(&mut self, Fresh { ike, connection, child, name }: Fresh, error: &str) {
        self.data.remove(child);
        self.policies.remove(child);
        self.log(ike, Some(connection), 0, format!("cannot install child {name}: {error}"));
        // The peer believes in it: tell it otherwise.
        let _ = self.endpoint.terminate(self.now, &Target::Child(child), false);
    }

    /// Routes, addresses or neighbours have changed.
    pub(crate) fn routes_changed(&mut self) {
        if let Err(error) = self.data.routes_changed() {
            // Everything stays as shut as it was; housekeeping tries again.
            self.log(None, None, 0, format!("cannot follow the routes: {error}"));
        }
        self.endpoint.set_local_addresses(self.data.local_addresses());
        let carriers = self.node.as_ref().map(|node| node.carriers(self.data.fib())).unwrap_or_default();
        for (link, up) in carriers {
            self.in_cluster(|member, now| member.set_link(now, link, up));
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { ike, path, bytes } => {
                self.held.push(Departure::Message(ike, path, bytes));
            }
            Output::Keepalive { path } => self.held.push(Departure::Keepalive(path)),
            Output::InstallChild { ike, child, connection, name, params, replaces, place } => {
                let fresh = Fresh { ike, connection, child, name };
                self.install_child(fresh, place, &params, replaces);
            }
            Output::SwitchChild { from, to } => {
                self.policies.switch(from, to, !self.endpoint.is_outdated(to));
                self.data.switch(from, to);
            }
            Output::StartChild { child } => {
                self.policies.switch(child, child, !self.endpoint.is_outdated(child));
                self.data.switch(child, child);
            }
            Output::UpdateChild { child, path, .. } => {
                if let Err(error) = self.data.update(child, path) {
                    self.log(None, None, 0, format!("cannot move Child SA #{}: {error}", child.0));
                }
            }
            Output::RemoveChild { child, .. } => {
                self.data.remove(child);
                self.policies.remove(child);
                self.seen.remove(&child);
            }
            Output::InstallAddress { ike, addr } => {
                if self.virtual_ips.add(addr, ike)
                    && let Err(error) = self.data.add_address(addr)
                {
                    self.log(Some(ike), None, 0, error);
                }
            }
            Output::RemoveAddress { ike, addr } => {
                if self.virtual_ips.remove(addr, ike)
                    && let Err(error) = self.data.remove_address(addr)
                {
                    self.log(Some(ike), None, 0, error);
                }
            }
            Output::Event(event) => self.event(event),
            of_cluster => self.perform_in_cluster(of_cluster),
        }
    }

    fn install_child(
        &mut self,
        fresh: Fresh,
        place: u64,
        params: &ChildSaParams,
        replaces: Option<ChildSaId>,
    ) {
        let selectors = SelectorPair::new(&params.local_ts, &params.remote_ts);
        let loaded = self.endpoint.connection(&fresh.connection);
        let config = loaded.and_then(|c| c.children.iter().find(|c| c.name == fresh.name));
        let (policies, home) = (&mut self.policies, params.spi_in.share());
        let inherited = replaces.and_then(|old| policies.inherit(fresh.child, old, config, &selectors, home));
        let policy =
            inherited.unwrap_or_else(|| policies.install_at(place, fresh.child, config, &selectors, home));
        let child = fresh.child;
        let turn = match (inherited, replaces) {
            (Some(_), _) => Turn::Shared,
            // It carries something else, and has a policy of its own, which cannot stand empty.
            (None, Some(old)) => Turn::After(old),
            (None, None) => Turn::First,
        };
        let installed = self.data.install(child, policy, (params, &selectors), turn);
        self.mark(child, 0, 0);
        match installed {
            Ok(()) if inherited.is_none() => self.fresh.push(fresh),
            Ok(()) => {}
            Err(error) => self.give_up(fresh, &error),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Log { ike, connection, level, message } => self.log(ike, connection, level, message),
            Event::IkeUp(ike) => {
                if let Some(status) = self.look(ike) {
                    self.notes.push_back(Note::Ike(true, Box::new(status)));
                }
            }
            Event::IkeDown(ike, reason) => {
                let told = reason != Reason::Rekeyed;
                if let Some(status) = self.ikes.remove(&ike).filter(|_| told) {
                    self.notes.push_back(Note::Ike(false, Box::new(status)));
                }
                let complete = self.jobs.ike_gone(ike);
                self.notes.extend(complete.into_iter().map(|(job, gone)| Note::Terminated(job, gone)));
            }
            Event::ChildUp(ike, child) => {
                if let Some(status) = self.look(ike) {
                    self.note_child(true, status, child);
                }
            }
            Event::ChildDown(ike, child, reason) => {
                // Of one that was renewed nobody is told that it goes.
                let told = reason != Reason::Rekeyed;
                if let Some(status) = self.ikes.get(&ike).filter(|_| told).cloned() {
                    self.note_child(false, status, child);
                }
                let complete = self.jobs.child_gone(child);
                self.notes.extend(complete.into_iter().map(|(job, gone)| Note::Terminated(job, gone)));
            }
            Event::ChildRekeyed(ike, old, new) => {
                if let Some(status) = self.look(ike) {
                    let child = |id| status.children.iter().find(|child| child.id == id).cloned();
                    if let Some((old, new)) = child(old).zip(child(new)) {
                        self.notes.push_back(Note::ChildRekeyed(Box::new((status, old, new))));
                    }
                }
            }
            Event::IkeRekeyed(old, new) => {
                self.virtual_ips.hand_on(old, new);
                let before = self.ikes.get(&old).cloned();
                if let Some((before, after)) = before.zip(self.look(new)) {
                    self.notes.push_back(Note::IkeRekeyed(Box::new((before, after))));
                }
            }
            Event::InitiateMoved { from, to, child } => self.jobs.moved(from, to, &child),
            Event::InitiateDone { ike, child, result } => {
                let result = result.map(drop).map_err(|reason| reason.to_string());
                for job in self.jobs.initiated(ike, &child) {
                    self.notes.push_back(Note::Initiated(job, result.clone()));
                }
            }
        }
    }

    fn look(&mut self, ike: IkeSaId) -> Option<IkeSaStatus> {
        if !self.watched {
            return None;
        }
        let status = self.endpoint.sa(ike)?;
        self.ikes.insert(ike, status.clone());
        Some(status)
    }

    fn note_child(&mut self, up: bool, ike: IkeSaStatus, child: ChildSaId) {
        if let Some(child) = ike.children.iter().find(|c| c.id == child).cloned() {
            self.notes.push_back(Note::Child(up, Box::new(ike), Box::new(child)));
        }
    }

    /// To the log, and to every `swanctl` that waits for that IKE SA.
    pub(crate) fn log(
        &mut self,
        ike: Option<IkeSaId>,
        connection: Option<String>,
        level: u8,
        message: String,
    ) {
        let name = connection.as_deref().unwrap_or("-");
        let number = ike.map_or(0, |ike| ike.0);
        match level {
            0 | 1 => tracing::info!("<{name}|{number}> {message}"),
            _ => tracing::debug!("<{name}|{number}> {message}"),
        }
        let jobs = ike.map(|ike| self.jobs.listeners(ike)).unwrap_or_default();
        self.notes.push_back(Note::Log { ike, connection, level, message, jobs });
    }

    /// What the VICI server should hear about, at most `limit` of it.
    pub(crate) fn take_notes(&mut self, limit: usize) -> Vec<Note> {
        self.notes.drain(..limit.min(self.notes.len())).collect()
    }

    /// Whether there is more of it.
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// What workers have to tell.
    pub(crate) fn worker_events(&mut self) {
        for event in self.data.events() {
            match event {
                WorkerEvent::NoSa(policy) => self.acquire(policy),
                WorkerEvent::Source(child, remote) => self.endpoint.esp_source(self.now, child, remote),
                WorkerEvent::Warning(message) => self.log(None, None, 0, message),
                WorkerEvent::Exhausting(child) => self.renew_exhausted(child),
                WorkerEvent::Carried(child) => self.note_use(child),
                WorkerEvent::NumbersLow(spi, rate) => {
                    self.in_cluster(|member, now| member.numbers_low(now, spi, rate))
                }
                WorkerEvent::IvLow => self.in_cluster(Member::renew_sender),
                WorkerEvent::Flushed(shares, edges) => {
                    self.in_cluster(|member, now| member.flushed(now, shares, &edges));
                }
            }
        }
        self.settle();
    }

    /// A Child SA has carried as much as IKE wants to hear of: it may have to be renewed, or to end. By the second would be
    /// too late: what it may carry between the two is often less than a second's traffic.
    fn note_use(&mut self, child: ChildSaId) {
        if let Some((inbound, outbound)) = self.data.carried(child) {
            let (bytes, packets) = (inbound.bytes.max(outbound.bytes), inbound.packets.max(outbound.packets));
            self.endpoint.child_used(self.now, child, bytes, packets);
            self.mark(child, bytes, packets);
        }
    }

    /// Sees to it that IKE hears of what a Child SA carries, once it has carried so much.
    fn mark(&self, child: ChildSaId, bytes: u64, packets: u64) {
        let (bytes, packets) = self.endpoint.next_limit(child, bytes, packets);
        self.data.set_mark(child, packets, bytes);
    }

    fn renew_exhausted(&mut self, child: ChildSaId) {
        if self.endpoint.rekey_child(self.now, child) {
            let message =
                format!("half of the sequence numbers of CHILD_SA #{} are used: it is renewed", child.0);
            self.log(None, None, 0, message);
        }
    }

    fn acquire(&mut self, policy: testudo_ipsec::spd::PolicyId) {
        if self.closing {
            return;
        }
        let Some(name) = self.policies.child_of(policy).cloned() else { return };
        if !self.endpoint.is_trapped(&name.connection, &name.child) {
            return;
        }
        if let Err(error) = self.endpoint.acquire(self.now, &name.connection, &name.child) {
            self.log(
                None,
                Some(name.connection),
                0,
                format!("traffic asks for child {}: {error}", name.child),
            );
        }
    }

    /// Once a second: tries again what failed. A peer whose packets authenticate is alive: saves it the liveness checks.
    pub(crate) fn report_traffic(&mut self) {
        for (child, inbound, outbound) in self.data.all_totals() {
            // A new Child SA has carried nothing.
            let now = (inbound.packets, outbound.packets);
            let before = self.seen.get(&child).copied().unwrap_or_default();
            if before == now {
                continue;
            }
            self.seen.insert(child, now);
            if before.0 < now.0 {
                self.endpoint.traffic_seen(self.now, child);
            }
        }
        self.protection_changed |= self.policies_failed;
        if self.node.is_some() {
            let edges = self.data.moved_edges();
            self.in_cluster(|member, now| member.report_edges(now, &edges));
        }
        self.settle();
    }

    /// Changes what is configured. Prefixes that nobody protects any more stay shut.
    pub(crate) fn change_policies(&mut self, change: impl FnOnce(&mut Policies)) {
        // What a connection has given up that was refused in the end does not count.
        self.policies.take_abandoned();
        change(&mut self.policies);
        self.data.keep_shut(&self.policies.take_abandoned());
    }

    /// Begins the end: nothing new comes up, and every SA goes within that time. Those of a cluster stay: the other nodes carry
    /// them on.
    pub(crate) fn shut_down(&mut self, within: Duration) {
        self.closing = true;
        if self.node.is_none() {
            self.endpoint.shut_down(self.now, within);
            self.settle();
        }
    }

    /// True if nothing is left to be told to the peers.
    pub(crate) fn is_gone(&self) -> bool {
        self.node.is_some() || self.endpoint.names().next().is_none() && !self.has_notes()
    }

    /// It cannot go on, and does nothing more that the cluster asks for.
    pub(crate) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Why it cannot go on.
    pub(crate) fn failure(&self) -> Result<(), String> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}
