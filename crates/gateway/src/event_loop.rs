//! The control thread: waits for descriptors and deadlines, and gives each turn to the gateway.

use crate::clock::cluster_time;
use crate::cluster::{Prepared, rollback};
use crate::config::Config;
use crate::crypto::Crypto;
use crate::datapath::{ClusterPlan, DataPath};
use crate::entropy::OsEntropy;
use crate::error::{Error, Result};
use crate::gateway::{Gateway, Parts};
use crate::icmp_sockets::IcmpSockets;
use crate::ike::Ike;
use crate::ike_sockets::IkeSockets;
use crate::log;
use crate::queue_assignment::QueueAssignment;
use crate::reserved::reserved;
use crate::resolver::Resolver;
use crate::updown::Updown;
use crate::vici_notes::pass_on;
use crate::vici_socket::ViciSocket;
use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testudo_cluster::group::Ingress;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::output::LogLevel;
use testudo_vici::schema::Policy;
use testudo_vici::server::Server;

const SIGNALS: Token = Token(0);
const NETLINK: Token = Token(1);
const WORKERS: Token = Token(2);
const CRYPTO: Token = Token(3);
const FIRST_IKE: usize = 4;
/// Corosync.
const ENGINE: Token = Token(8);
/// Heartbeats of the other nodes, on all links.
const HEARTBEATS: Token = Token(9);
/// Requests (ARP, ND) for the VIPs, on all links.
const VIPS: Token = Token(10);
/// Routers' ICMP messages about our packets.
const ICMP: Token = Token(11);
/// Up to four IKE sockets, then VICI's listener and behind it VICI's clients.
const VICI: usize = 16;

/// IKE messages handled before commands and routes get their turn.
const MAX_IKE_MESSAGES_PER_TURN: usize = 64;
/// Log lines and events handed to the VICI server before it writes to its clients and IKE gets its
/// turn.
const MAX_NOTES_PER_TURN: usize = 512;
/// How often traffic is looked at for liveness, and neighbours are refreshed.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// How long a clean end waits for the peers to confirm.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a node of a cluster takes to give its shards away before it ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything with a descriptor.
struct Loop {
    poll: Poll,
    /// Wakes the poller. [`Gateway::called`] and `hangup` tell which signal came.
    signals: UnixStream,
    /// SIGHUP came.
    hangup: Arc<AtomicBool>,
    vici: ViciSocket,
    server: Server,
    gateway: Gateway,
    icmp: IcmpSockets,
    next_housekeeping: Instant,
    /// More IKE messages may wait, without a word from the poller.
    ike_waits: bool,
    /// ICMP messages of routers may wait.
    icmp_waits: bool,
    /// Datagrams of other nodes may wait.
    heartbeats_wait: bool,
    /// Events of the engine may wait.
    engine_waits: bool,
    /// VICI's clients have more to send or to receive than one turn handles.
    vici_waits: bool,
}

/// The end, while the peers are being told.
struct Farewell {
    until: Instant,
    /// How the run ends: well, or with the error that ended it.
    result: Result<()>,
}

impl Farewell {
    /// Keeps the first error.
    fn failed(&mut self, error: Error) {
        if self.result.is_ok() {
            self.result = Err(error);
        }
    }
}

/// Runs the gateway until a signal or an error ends it. In both cases the peers are told.
pub(crate) fn run(config: Config) -> Result<()> {
    let mut this = match Loop::start(&config) {
        Err(Error::CalledOff) => {
            tracing::info!(
                "ended before the start was done, as a signal asks for: all but MTUs is as it was before"
            );
            return Ok(());
        }
        started => started?,
    };
    this.gateway.settings = Some(config);
    // A node that lacks a port must not be given shards.
    this.gateway.look_at_clock();
    this.follow_routes()?;
    tracing::info!("ready: {}", this.gateway.data.describe());
    let mut events = Events::with_capacity(64);
    let _holding = log::hold();
    let mut farewell: Option<Farewell> = None;
    loop {
        this.note_hangup();
        log::flush();
        let timeout = this.timeout(farewell.as_ref().map(|farewell| farewell.until));
        match this.poll.poll(&mut events, Some(timeout)) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.map_err(Error::io("wait for events"))?,
        }
        match (this.turn(&events), &mut farewell) {
            (Ok(false), _) | (Ok(true), Some(_)) => {}
            (Err(error), Some(farewell)) => farewell.failed(error),
            (turn, None) => farewell = Some(this.begin_farewell(turn.map(drop))),
        }
        let over = |farewell: &mut Farewell| farewell.until <= Instant::now() || this.gateway.is_gone();
        if let Some(mut farewell) = farewell.take_if(over) {
            this.gateway.end_scripts();
            this.gateway.say_what_was_dropped();
            if let Err(error) = this.gateway.data.stop() {
                farewell.failed(error);
            }
            tracing::info!("ended; protected prefixes stay closed until testudod runs again or --cleanup");
            return farewell.result;
        }
    }
}

impl Loop {
    fn start(config: &Config) -> Result<Self> {
        let poll = Poll::new().map_err(Error::io("make a poller"))?;
        let registry = poll.registry();
        let signals = signal_stream(registry)?;
        let (hangup, called): (Arc<AtomicBool>, Arc<AtomicBool>) = (Arc::default(), Arc::default());
        for (signal, flag) in [(SIGHUP, &hangup), (SIGTERM, &called), (SIGINT, &called)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).map_err(Error::io("listen for signals"))?;
        }
        // What can fail without having changed anything comes first. What an earlier run protects
        // stays shut all the time.
        let sockets = IkeSockets::open(DataPath::MARK)?;
        let icmp = IcmpSockets::open()?;
        let vici = ViciSocket::open(&config.vici_socket, registry, VICI)?;
        let waker = Waker::new(registry, CRYPTO).map_err(Error::io("make a waker"))?;
        let waker = Arc::new(waker);
        let assignment = QueueAssignment::of(config)?;
        let crypto = Crypto::start(assignment.0.len(), assignment.cpus(), Arc::clone(&waker))?;
        let prepared =
            config.cluster.as_ref().map(|settings| Prepared::open(config, settings, DataPath::MARK));
        let prepared = prepared.transpose()?;
        config.cluster.as_ref().map_or(Ok(()), rollback::watch)?;
        let member =
            prepared.as_ref().map(|prepared| prepared.member(endpoint_config(config), cluster_time()));
        // Then the gate is shut: whatever fails from here on, nothing leaves in clear.
        let nodes = prepared.as_ref().map_or(1, Prepared::node_count);
        let plan = config.cluster.as_ref().zip(member.as_ref()).map(|(settings, member)| ClusterPlan {
            vips: settings.vips.iter().copied().collect(),
            ports: config.ports.iter().map(|port| port.interface.as_str()).collect(),
            key: member.hash_key(),
            nodes,
            peer_window: config.peer_window,
            routed: settings.ingress == Ingress::Routed,
        });
        let data = DataPath::start(config, &assignment, plan.as_ref(), &called)?;
        for (n, fd) in sockets.fds().enumerate() {
            watch(registry, fd, Token(FIRST_IKE + n))?;
        }
        icmp.fds().try_for_each(|fd| watch(registry, fd, ICMP))?;
        watch(registry, data.netlink_fd(), NETLINK)?;
        data.events_fds().try_for_each(|fd| watch(registry, fd, WORKERS))?;
        let mut ike = match member {
            Some(member) => Ike::Member(Box::new(member)),
            None => {
                let allocator = SingleNodeAllocator::new(OsEntropy, data.sender());
                let workers = u16::try_from(assignment.0.len()).unwrap_or(u16::MAX);
                let settings = EndpointConfig { resource_workers: workers, ..endpoint_config(config) };
                Ike::Alone(Box::new(Endpoint::new(settings, Box::new(allocator))))
            }
        };
        ike.set_local_addresses(data.local_addresses());
        ike.set_reserved_addresses(reserved(data.fib()));
        if let Some(member) = ike.member() {
            member.set_line_rate(data.line_rate());
        }
        let join = |(prepared, settings): (Prepared, _)| prepared.join(settings, data.fib());
        let node = prepared.zip(config.cluster.as_ref()).map(join).transpose()?;
        if let Some(node) = &node {
            watch(registry, node.engine_fd(), ENGINE)?;
            node.heartbeat_fds().try_for_each(|fd| watch(registry, fd, HEARTBEATS))?;
            node.speaker_fds().try_for_each(|fd| watch(registry, fd, VIPS))?;
        }
        let policy = if config.legacy { Policy::Legacy } else { Policy::Modern };
        let (updown, resolver) = (Updown::new(Arc::clone(&waker)), Resolver::new(waker));
        let rules = config.alarms.clone();
        let parts = Parts { endpoint: ike, node, crypto, updown, resolver, data, sockets, policy, rules };
        let mut gateway = Gateway::new(parts);
        gateway.ending.called = called;
        Ok(Self {
            signals,
            hangup,
            vici,
            server: Server::new(),
            gateway,
            icmp,
            next_housekeeping: Instant::now() + HOUSEKEEPING_INTERVAL,
            ike_waits: false,
            icmp_waits: false,
            heartbeats_wait: false,
            engine_waits: false,
            vici_waits: false,
            poll,
        })
    }

    /// Begins to take every SA down: because a signal asks for it, or because something is broken.
    fn begin_farewell(&mut self, result: Result<()>) -> Farewell {
        if let Err(error) = &result {
            tracing::error!("cannot go on: {error}");
        }
        match self.gateway.node {
            None => tracing::info!("ending: deleting all SAs at the peers"),
            Some(_) => tracing::info!("ending: giving all SAs to the other nodes"),
        }
        // With very many SAs the rest takes long.
        log::flush();
        self.gateway.look_at_clock();
        let within = if self.gateway.node.is_some() { DRAIN_TIMEOUT } else { FAREWELL_TIMEOUT };
        self.gateway.shut_down(within, result.is_ok());
        Farewell { until: Instant::now() + within, result }
    }

    /// SIGHUP ends nothing: a closed terminal must not close the tunnels. It reloads nothing
    /// either.
    fn note_hangup(&self) {
        if self.hangup.swap(false, Ordering::Relaxed) {
            tracing::info!("SIGHUP changes nothing: swanctl --load-all loads connections and secrets");
        }
    }

    /// One turn; true if a signal asks for the end.
    fn turn(&mut self, events: &Events) -> Result<bool> {
        self.gateway.look_at_clock();
        self.gateway.watch(self.server.is_watched());
        if self.gateway.node.is_some() {
            // Messages of other nodes come first: if this node is late, the others must not seem
            // silent.
            self.engine_waits = self.gateway.engine_events();
            self.heartbeats_wait = self.gateway.datagrams();
        }
        let mut ike = std::mem::take(&mut self.ike_waits);
        let mut icmp = std::mem::take(&mut self.icmp_waits);
        for event in events {
            match event.token() {
                SIGNALS => self.drain_signals(),
                NETLINK => self.follow_routes()?,
                WORKERS => self.gateway.worker_events(),
                // Only a wake-up: every turn looks for what they have brought.
                CRYPTO | ENGINE | HEARTBEATS => {}
                VIPS => self.gateway.answer_for_vips(),
                ICMP => icmp = true,
                Token(VICI) => self.vici.accept(&mut self.server, self.poll.registry()),
                token if self.vici.owns(token) => self.vici.ready(token),
                _ => ike = true,
            }
        }
        self.gateway.jobs_done();
        self.gateway.scripts_done();
        self.gateway.names_done();
        self.gateway.look_at_disk();
        if ike {
            self.ike_waits = self.gateway.receive(MAX_IKE_MESSAGES_PER_TURN);
        }
        if icmp {
            self.icmp_waits = self.icmp.receive(|told| self.gateway.router_told(told));
        }
        self.deadlines()?;
        pass_on(&mut self.gateway, &mut self.server, MAX_NOTES_PER_TURN);
        self.vici_waits = self.vici.pump(&mut self.server, self.gateway.now, &mut self.gateway);
        if self.gateway.node.is_some() {
            // Whatever this turn has changed goes to the others.
            self.gateway.settle();
        }
        self.gateway.ending.take_failure().map(|()| self.gateway.ending.is_called_for())
    }

    /// Routes, addresses, neighbours or interfaces may have changed.
    fn follow_routes(&mut self) -> Result<()> {
        let fresh = self.gateway.routes_changed();
        fresh.into_iter().try_for_each(|fd| watch(self.poll.registry(), fd, VIPS))
    }

    fn deadlines(&mut self) -> Result<()> {
        let now = self.gateway.now;
        if self.gateway.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.gateway.show_clocks();
            self.gateway.endpoint.handle_timeout(now);
            self.gateway.settle();
        }
        for failure in self.server.handle_deadline(now) {
            let line = format!("{failure}; nobody waits for it any more, and it goes on");
            self.gateway.log(None, None, LogLevel::Warning, line);
        }
        self.gateway.tell_routers();
        self.gateway.look_at_traffic();
        self.gateway.look_for_attacks();
        if self.next_housekeeping <= Instant::now() {
            self.next_housekeeping = Instant::now() + HOUSEKEEPING_INTERVAL;
            self.gateway.data.housekeeping()?;
            self.gateway.expire_path_mtus();
            self.follow_routes()?;
            self.gateway.report_traffic();
            self.gateway.remind_of_lacks();
            self.icmp.refill();
            self.icmp_waits = true;
        }
        Ok(())
    }

    /// The time until something is due.
    fn timeout(&mut self, farewell: Option<Instant>) -> Duration {
        if self.ike_waits
            || self.icmp_waits
            || self.heartbeats_wait
            || self.engine_waits
            || self.gateway.looks_at_traffic()
            || self.vici_waits
            || self.gateway.has_notes()
        {
            return Duration::ZERO;
        }
        self.gateway.look_at_clock();
        let now = self.gateway.now;
        let due = [self.gateway.endpoint.next_timeout(), self.server.next_deadline()].into_iter().flatten();
        let protocol = due.map(|at| at.since(now)).min();
        let clock = [Some(self.next_housekeeping), farewell].into_iter().flatten();
        let instants = clock.map(|at| at.saturating_duration_since(Instant::now()));
        let look = self.gateway.alarms.time_to_look();
        protocol.into_iter().chain(instants).chain(look).min().unwrap_or(HOUSEKEEPING_INTERVAL)
    }

    fn drain_signals(&mut self) {
        let mut buffer = [0; 64];
        while matches!(self.signals.read(&mut buffer), Ok(n) if n > 0) {}
    }
}

fn signal_stream(registry: &Registry) -> Result<UnixStream> {
    let failed = || Error::io("listen for signals");
    let (mut ours, theirs) = UnixStream::pair().map_err(failed())?;
    let theirs = std::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(theirs));
    for signal in [SIGTERM, SIGINT] {
        let end = theirs.try_clone().map_err(failed())?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed())?;
    }
    registry.register(&mut ours, SIGNALS, Interest::READABLE).map_err(failed())?;
    Ok(ours)
}

fn watch(registry: &Registry, fd: RawFd, token: Token) -> Result<()> {
    registry.register(&mut SourceFd(&fd), token, Interest::READABLE).map_err(Error::io("watch a descriptor"))
}

fn endpoint_config(config: &Config) -> EndpointConfig {
    let mut settings = EndpointConfig {
        legacy_signatures: config.legacy,
        hand_out_jobs: true,
        details: config.log.level >= tracing::Level::DEBUG,
        ..EndpointConfig::default()
    };
    config.ike.apply(&mut settings);
    settings
}
