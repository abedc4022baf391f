//! What the gateway keeps between two turns of the event loop: IKE, the SPD, the data path, and the
//! commands that wait for SAs.
//!
//! Whatever happens (a datagram, a command, a deadline, an event of a worker) ends with
//! [`Gateway::settle`], which does what IKE asks for in the one order that is safe: a new inbound
//! SA is with the worker, and the SPD changed, before the message leaves that lets the peer use
//! them.

mod alarms;
mod cluster;
mod dropped;
mod ending;
mod names;
mod notes;
mod paths;
mod reminder;
mod scripts;
mod settings;
mod shut;
mod traffic;

pub(crate) use notes::Note;

use crate::alarms::{Alarms, Claims, OwnClaims, Programs};
use crate::backoff::apply_with_backoff;
use crate::clock::{cluster_time, on_boottime};
use crate::cluster::rollback::Rollback;
use crate::cluster::{Load, Node};
use crate::config::Config;
use crate::crypto::{Crypto, Failed};
use crate::datapath::{Activation, Agreed, DataPath};
use crate::error::{Error, Result};
use crate::ike::Ike;
use crate::ike_sockets::IkeSockets;
use crate::jobs::Jobs;
use crate::policies::{Change, NewSa, Policies, named_selectors};
use crate::reserved::reserved;
use crate::resolver::Resolver;
use crate::updown::Updown;
use crate::virtual_ips::VirtualIps;
use dropped::DroppedSources;
use ending::Ending;
use reminder::Reminder;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::time::{Duration, Instant, SystemTime};
use testudo_alarms::Rules;
use testudo_base::lane::Spread;
use testudo_cluster::member::{MemberOutput, ShardPackets};
use testudo_ike::endpoint::{IkeSaStatus, Target};
use testudo_ike::output::{ChildSaId, IkeSaId, LogLevel, Output, Path, Time, UnixTime};
use testudo_ipsec::number::WorkerId;
use testudo_ipsec::sa::{ChildSaParams, Mss};
use testudo_ipsec::selector::SelectorPair;
use testudo_vici::overlap::SelectorIndex;
use testudo_vici::schema::Policy;
use testudo_vici::shut::Cause;
use traffic::Seen;

/// All state of the control thread but its descriptors.
pub(crate) struct Gateway {
    pub(crate) endpoint: Ike,
    /// What ties it to the other nodes, if it does not stand alone.
    pub(crate) node: Option<Node>,
    /// Whether it ends, and why.
    pub(crate) ending: Ending,
    crypto: Crypto,
    pub(crate) policies: Policies,
    pub(crate) data: DataPath,
    pub(crate) jobs: Jobs,
    /// Which algorithms connections may name.
    pub(crate) policy: Policy,
    /// See [`Gateway::look_at_clock`].
    pub(crate) now: Time,
    pub(crate) since: SystemTime,
    /// Filter and routes have to be brought up to date although no policy has changed.
    pub(crate) protection_changed: bool,
    /// The policies could not be applied. Housekeeping tries again.
    policies_failed: bool,
    /// Children installed since the policies were applied last.
    fresh: Vec<Fresh>,
    /// Tells whether the machine has been set back to an earlier state.
    rollback: Rollback,
    /// Messages that leave once the policies are applied.
    held: Vec<Departure>,
    origin: Instant,
    sockets: IkeSockets,
    /// For the datagram that is being read.
    buffer: Vec<u8>,
    notes: VecDeque<Note>,
    /// A VICI client has registered for the events of SAs.
    watched: bool,
    /// While `watched`: every IKE SA as last seen, so that an SA that goes down can still be
    /// described.
    ikes: BTreeMap<IkeSaId, IkeSaStatus>,
    /// Packets up to the last look, by Child SA.
    seen: BTreeMap<ChildSaId, Seen>,
    /// Packets by shard: those carried, up to the last look.
    shard_packets: ShardPackets,
    /// While a look at all Child SAs is under way: the last one that was looked at.
    looked_at: Option<Option<ChildSaId>>,
    /// How busy this node is.
    load: Load,
    virtual_ips: VirtualIps,
    pub(crate) alarms: Alarms,
    /// Where neighbours were.
    claims: Claims,
    own_claims: OwnClaims,
    /// The programs that alarms have started.
    programs: Programs,
    dropped: DroppedSources,
    reminder: Reminder,
    pub(crate) updown: Updown,
    resolver: Resolver,
    /// `testudo.toml` as it was last read. `None` until the start is over.
    pub(crate) settings: Option<Config>,
    /// What loaded connections protect.
    pub(crate) twins: SelectorIndex,
}

/// What is started before the gateway, and then belongs to it.
pub(crate) struct Parts {
    pub(crate) endpoint: Ike,
    /// What ties it to the other nodes, if it does not stand alone.
    pub(crate) node: Option<Node>,
    pub(crate) crypto: Crypto,
    pub(crate) updown: Updown,
    pub(crate) resolver: Resolver,
    pub(crate) data: DataPath,
    pub(crate) sockets: IkeSockets,
    /// Which algorithms connections may name.
    pub(crate) policy: Policy,
    /// What the watch judges by; `None`: there is none.
    pub(crate) rules: Option<Rules>,
}

/// A new Child SA whose policy is not applied yet.
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
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { endpoint, node, crypto, updown, resolver, data, sockets, policy, rules } = parts;
        let policies = match &endpoint {
            Ike::Member(member) => Policies::of_node(member.hash_key()),
            Ike::Alone(_) => Policies::default(),
        };
        Self {
            endpoint,
            node,
            ending: Ending::default(),
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
            rollback: Rollback::new(),
            held: Vec::new(),
            origin: Instant::now(),
            sockets,
            buffer: vec![0; 65536],
            notes: VecDeque::new(),
            watched: false,
            ikes: BTreeMap::new(),
            seen: BTreeMap::new(),
            shard_packets: ShardPackets::default(),
            looked_at: None,
            load: Load::new(),
            virtual_ips: VirtualIps::default(),
            alarms: Alarms::new(rules),
            claims: Claims::default(),
            own_claims: OwnClaims::default(),
            programs: Programs::default(),
            dropped: DroppedSources::default(),
            reminder: Reminder::new(Instant::now()),
            updown,
            resolver,
            settings: None,
            twins: SelectorIndex::default(),
        }
    }

    /// Sets [`Gateway::now`]. Once for each message and each turn: of two messages the one that
    /// came later must have the later time, because IKE compares when SAs began (RFC 7296 §2.4).
    pub(crate) fn look_at_clock(&mut self) {
        self.now = if self.node.is_some() { cluster_time() } else { Time(self.origin.elapsed()) };
        // The time of day may be set while we run, and certificates are judged by it.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.endpoint.set_unix_time(self.now, UnixTime(since_1970.as_secs()));
        if self.node.is_some()
            && let Some(sign) = self.rollback.look(on_boottime(self.now), since_1970)
        {
            self.set_back(&sign);
        }
    }

    /// Handles the IKE messages that wait, at most `limit` of them; true if there may be more. The
    /// data path is changed once for all of them.
    pub(crate) fn receive(&mut self, limit: usize) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut more = true;
        for _ in 0..limit {
            if self.ending.is_called_for() {
                break;
            }
            let Some((path, len)) = self.sockets.receive(&mut buffer) else {
                more = false;
                break;
            };
            let bytes = buffer.get(len).unwrap_or_default();
            self.look_at_clock();
            self.endpoint.handle_datagram(self.now, path, bytes);
            self.perform_all();
        }
        self.buffer = buffer;
        self.settle();
        more
    }

    /// Does everything that IKE asks for, then sends the messages.
    pub(crate) fn settle(&mut self) {
        self.crypto.feed(|| self.endpoint.take_job());
        self.endpoint.pump(self.now);
        self.look_names_up();
        self.perform_all();
        // The messages of all peers wait for this, so it must end. No peer may then believe in an
        // SA whose policy is missing here. What fails opens nothing, and housekeeping tries it
        // again.
        let give_up = |this: &mut Self, newest: Vec<Fresh>, error: &Error| {
            newest.into_iter().for_each(|fresh| this.give_up(fresh, error));
            this.perform_all();
        };
        if let Err(error) = apply_with_backoff(self, |this| &mut this.fresh, Self::apply_policies, give_up) {
            self.log(None, None, LogLevel::Error, format!("cannot change the policies: {error}"));
        }
        for departure in std::mem::take(&mut self.held) {
            self.depart(departure);
        }
        // A message that could not be sent leads to events only.
        self.perform_all();
    }

    pub(crate) fn perform_all(&mut self) {
        while !self.ending.has_failed()
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
                    self.log(None, None, LogLevel::Warning, message);
                }
            }
        }
    }

    /// Brings filter, routes and workers up to date, if the policies have changed.
    pub(crate) fn apply_policies(&mut self) -> Result<()> {
        let asked =
            if std::mem::take(&mut self.protection_changed) { Change::Protection } else { Change::None };
        let change = match self.policies.take_change().max(asked) {
            // Filter and routes still lag behind.
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
    fn give_up(&mut self, Fresh { ike, connection, child, name }: Fresh, error: &Error) {
        self.data.remove(child);
        self.policies.remove(child);
        self.log(ike, Some(connection), LogLevel::Error, format!("cannot install child {name}: {error}"));
        // The peer believes that the SA exists, and must delete it.
        let _ = self.endpoint.terminate(self.now, &Target::Child(child), false);
    }

    /// Routes, addresses, neighbours or interfaces may have changed. Gives the descriptors that are
    /// new: requests for the VIPs come by them.
    pub(crate) fn routes_changed(&mut self) -> Vec<RawFd> {
        if let Err(error) = self.data.routes_changed() {
            // This opens nothing, and housekeeping tries again.
            self.log(None, None, LogLevel::Error, format!("cannot follow the routes: {error}"));
        }
        self.look_at_neighbours();
        self.endpoint.set_local_addresses(self.data.local_addresses());
        self.endpoint.set_reserved_addresses(reserved(self.data.fib()));
        let line_rate = self.data.line_rate();
        self.in_cluster(|member, _| member.set_line_rate(line_rate));
        let Some(node) = &mut self.node else { return Vec::new() };
        let fresh = node.follow_links(self.data.fib());
        for (link, up) in node.carriers(|port| self.data.carries(port)) {
            self.in_cluster(|member, now| member.set_link(now, link, up));
        }
        fresh
    }

    fn perform(&mut self, output: MemberOutput) {
        match output {
            MemberOutput::Ike(output) => self.perform_for_ike(output),
            MemberOutput::InstallChild { ike, child, connection, name, params, replaces, place, spread } => {
                let fresh = Fresh { ike, connection, child, name };
                self.install_child(fresh, place, &params, replaces, spread);
            }
            of_cluster => self.perform_in_cluster(of_cluster),
        }
    }

    fn perform_for_ike(&mut self, output: Output) {
        match output {
            Output::Send { ike, path, bytes, .. } => {
                self.held.push(Departure::Message(ike, path, bytes));
            }
            Output::Keepalive { path } => self.held.push(Departure::Keepalive(path)),
            Output::InstallChild { ike, child, connection, name, params, replaces } => {
                let fresh = Fresh { ike: Some(ike), connection, child, name };
                // In a gateway that stands alone the newest Child SA sends.
                self.install_child(fresh, child.0, &params, replaces, None);
            }
            Output::SwitchChild { from, to } => {
                self.policies.switch(from, to, !self.endpoint.is_outdated(to));
                self.data.switch(from, to);
            }
            Output::StartChild { child } => {
                self.policies.switch(child, child, !self.endpoint.is_outdated(child));
                self.data.switch(child, child);
            }
            Output::BindChild { child, worker } => {
                let worker = u8::try_from(worker).ok().and_then(WorkerId::new);
                worker.into_iter().for_each(|worker| self.data.bind(child, worker));
            }
            Output::UpdateChild { child, path, .. } => {
                if let Err(error) = self.data.update(child, path) {
                    self.log(
                        None,
                        None,
                        LogLevel::Error,
                        format!("cannot move Child SA #{}: {error}", child.0),
                    );
                }
            }
            Output::AdvanceSequence { child, by } => {
                self.skip_numbers(child, by);
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
                    self.log(Some(ike), None, LogLevel::Error, error.to_string());
                }
            }
            Output::RemoveAddress { ike, addr } => {
                if self.virtual_ips.remove(addr, ike)
                    && let Err(error) = self.data.remove_address(addr)
                {
                    self.log(Some(ike), None, LogLevel::Error, error.to_string());
                }
            }
            Output::Event(event) => {
                self.scripts_for(&event);
                self.event(event);
            }
        }
    }

    fn install_child(
        &mut self,
        fresh: Fresh,
        place: u64,
        params: &ChildSaParams,
        replaces: Option<ChildSaId>,
        spread: Option<Spread>,
    ) {
        let selectors = SelectorPair::new(&params.local_ts, &params.remote_ts);
        let loaded = self.endpoint.connection(&fresh.connection);
        let config = loaded.and_then(|c| c.children.iter().find(|c| c.name == fresh.name));
        let configured = config.map(named_selectors);
        // The peer may renew an SA of an unloaded connection.
        let made_by = self.endpoint.made_by(&fresh.connection).and_then(|c| c.child(&fresh.name));
        let (mss, icmp) = made_by.map_or((Mss::Auto, false), |child| (child.mss, child.icmp));
        let child = fresh.child;
        let sa = NewSa { spread, ..NewSa::of(place, child, config, params, &selectors) };
        let inherited = replaces.and_then(|old| self.policies.inherit(&sa, old));
        let policy = inherited.unwrap_or_else(|| self.policies.install_at(&sa));
        let activation = match (inherited, replaces) {
            (Some(_), _) => Activation::SharedPolicy,
            // The new SA has other selectors, and so a policy of its own, which must not be without
            // an SA.
            (None, Some(old)) => Activation::After(old),
            (None, None) => Activation::WithPolicy,
        };
        let configured = configured.as_ref();
        let agreed = Agreed { params, selectors: &selectors, configured, mss, icmp, spread };
        let installed = self.data.install(child, policy, agreed, activation);
        self.mark(child, 0, 0);
        match installed {
            Ok(()) if inherited.is_none() => self.fresh.push(fresh),
            Ok(()) => {}
            Err(error) => self.give_up(fresh, &error),
        }
    }

    /// Changes the configured policies. Prefixes that no policy protects any more stay shut;
    /// `cause` tells why.
    pub(crate) fn change_policies(&mut self, cause: Cause, change: impl FnOnce(&mut Policies)) {
        // What a refused connection has given up does not count.
        self.policies.take_abandoned();
        change(&mut self.policies);
        self.data.keep_shut(&self.policies.take_abandoned(), cause);
    }
}
