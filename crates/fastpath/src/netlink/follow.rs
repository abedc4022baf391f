//! The thread that follows the kernel's links, addresses, routes and neighbours.
//!
//! Neighbours change often, one at a time, and are followed message by message. Any other change
//! makes the thread read those tables again: the kernel does not announce the IPv4 routes that
//! vanish with a link or an address, so messages alone are not enough. Each of the two has its own
//! [`Pace`], since packets wait for a neighbour no longer than seconds.

use super::connection::{Connection, Messages, receive_from_kernel};
use super::error::{NetlinkError, Result};
use super::handle::{FibHandle, FollowerShared};
use super::neighbours::{NeighbourKey, Neighbours, probe};
use super::pace::{Cost, Pace};
use super::view::{Interfaces, Tables, on_ports};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the kernel is told which neighbours are in use.
const IN_USE_INTERVAL: Duration = Duration::from_secs(5);
/// The kernel is asked for one neighbour once in this time, however many packets wait for it.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// Bound on the different neighbours requested in that time: a scan of our links must not flood the
/// kernel's table.
const MAX_ASKED: usize = 1024;
/// Pause after a failure before the tables are read again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Datagrams taken before the thread turns to its other work.
const MAX_DATAGRAMS_PER_TURN: usize = 1024;
const RECEIVE_BUFFER: usize = 4 << 20;

/// Follows the kernel until dropped.
#[derive(Debug)]
pub struct Follower {
    handle: FibHandle,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Reads the tables of this network namespace, and starts to follow them.
    pub fn start(interfaces: Interfaces) -> Result<Self> {
        let started = |source| NetlinkError::Thread { source };
        let mut state = FollowerState::open(interfaces)?;
        state.resync()?;
        let fib = state.tables.fib(1, &state.interfaces, &state.neighbours);
        let shared = Arc::new(FollowerShared::new(fib).map_err(started)?);
        let handle = FibHandle { shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("netlink".to_owned());
        let thread = thread.spawn(move || state.run(&shared)).map_err(started)?;
        Ok(Self { handle, thread: Some(thread) })
    }

    /// The results.
    pub fn handle(&self) -> FibHandle {
        self.handle.clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.handle.shared.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows routes and neighbours panicked");
        }
    }
}

/// What has changed since the last table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TableChanges {
    tables: bool,
    neighbours: bool,
    /// True if messages were lost, so that everything may have changed.
    lost: bool,
}

impl TableChanges {
    /// True if the tables have to be read.
    fn need_reading(self) -> bool {
        self.tables || self.lost
    }
}

struct FollowerState {
    interfaces: Interfaces,
    connection: Connection,
    events: Socket,
    buffer: Vec<u8>,
    tables: Tables,
    neighbours: Neighbours,
    changes: TableChanges,
    /// When the tables are read.
    reading: Pace,
    /// When changed neighbours alone are published.
    updating: Pace,
    asked: HashSet<NeighbourKey>,
    ask_again: Instant,
    refresh: Instant,
}

impl FollowerState {
    fn open(interfaces: Interfaces) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            interfaces,
            connection: Connection::open()?,
            events: subscribe().map_err(|source| NetlinkError::Request {
                operation: "cannot subscribe to changes of routes and neighbours".to_owned(),
                source,
            })?,
            buffer: vec![0; 1 << 16],
            tables: Tables::default(),
            neighbours: Neighbours::default(),
            changes: TableChanges::default(),
            reading: Pace::new(now),
            updating: Pace::new(now),
            asked: HashSet::new(),
            ask_again: now + ASK_INTERVAL,
            refresh: now + IN_USE_INTERVAL,
        })
    }

    /// Reads everything again.
    fn resync(&mut self) -> Result<()> {
        self.neighbours.resync(&mut self.connection)?;
        self.tables = Tables::read(&mut self.connection)?;
        Ok(())
    }

    fn run(mut self, shared: &FollowerShared) {
        while !shared.is_stopping() {
            self.wait(shared);
            self.hear(shared);
            let now = Instant::now();
            if now >= self.ask_again {
                self.ask_again = now + ASK_INTERVAL;
                self.asked.clear();
            }
            self.ask(shared);
            if now >= self.refresh {
                self.refresh = now + IN_USE_INTERVAL;
                self.tell_used(shared);
            }
            self.publish_what_is_due(shared, now);
        }
    }

    fn publish_what_is_due(&mut self, shared: &FollowerShared, now: Instant) {
        if self.changes.need_reading() {
            self.reading.changed(now);
        }
        if self.changes.neighbours {
            self.updating.changed(now);
        }
        if self.reading.is_due(now) {
            self.publish(shared);
        } else if self.updating.is_due(now) {
            self.publish_neighbours(shared);
        }
    }

    fn wait(&self, shared: &FollowerShared) {
        let due = [self.reading.due(), self.updating.due()];
        let next = due.into_iter().flatten().fold(self.refresh, Instant::min);
        let left = next.saturating_duration_since(Instant::now());
        // Rounded up: a wake-up that is too early needs a second one.
        let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::ZERO);
        let mut fds = [
            PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
            PollFd::new(shared.wake_fd(), PollFlags::POLLIN),
        ];
        // Interrupted or not, the loop checks everything afterwards.
        let _ = poll(&mut fds, timeout);
    }

    /// Takes in the kernel's announcements, and leaves some for later if they do not stop.
    fn hear(&mut self, shared: &FollowerShared) {
        for _ in 0..MAX_DATAGRAMS_PER_TURN {
            match receive_from_kernel(&self.events, &mut self.buffer) {
                Ok(length) => {
                    for message in Messages(self.buffer.get(..length).unwrap_or_default()) {
                        match message.map(|m| m.payload) {
                            Ok(NetlinkPayload::InnerMessage(object)) => {
                                note(&mut self.changes, &mut self.neighbours, &object);
                            }
                            Ok(_) => {}
                            // It announces an object that is newer than this program, such as a
                            // next-hop object.
                            Err(_) => self.changes.tables = true,
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    // ENOBUFS: the kernel had no room for more. After any other error reading all
                    // tables again helps too.
                    tracing::debug!("netlink: {e}; reading all tables again");
                    shared.statistics.overruns.fetch_add(1, Ordering::Relaxed);
                    self.changes.lost = true;
                    if e.raw_os_error() != Some(libc::ENOBUFS) {
                        return;
                    }
                }
            }
        }
    }

    /// Passes the workers' requests for neighbours to the kernel.
    fn ask(&mut self, shared: &FollowerShared) {
        let ports = self.tables.ports(&self.interfaces);
        for (port, addr) in shared.take_requests() {
            let ifindex = ports.iter().find(|(_, p)| **p == port).map(|(ifindex, _)| *ifindex);
            let Some(ifindex) = ifindex else { continue };
            if self.asked.len() < MAX_ASKED && self.asked.insert((ifindex, addr)) {
                count_probe(shared, probe(&mut self.connection, ifindex, addr));
            }
        }
    }

    /// Tells the kernel which neighbours are in use, so that it checks them and keeps them.
    fn tell_used(&mut self, shared: &FollowerShared) {
        for (ifindex, addr) in self.neighbours.take_used() {
            count_probe(shared, probe(&mut self.connection, ifindex, addr));
        }
    }

    /// Reads the tables, and publishes them with the neighbours.
    fn publish(&mut self, shared: &FollowerShared) {
        let watch = Stopwatch::start();
        let changes = std::mem::take(&mut self.changes);
        let done = self.update(changes, shared);
        let now = Instant::now();
        match done {
            Ok(()) => {
                self.reading.published(now, watch.cost(now));
                self.updating.published(now, Cost::default());
            }
            Err(error) => {
                tracing::warn!("{error}; trying again");
                shared.statistics.errors.fetch_add(1, Ordering::Relaxed);
                self.changes = TableChanges { lost: true, ..changes };
                self.reading.failed(now, RETRY_DELAY);
            }
        }
    }

    /// Publishes the tables as they are, with the neighbours as they have become.
    fn publish_neighbours(&mut self, shared: &FollowerShared) {
        let watch = Stopwatch::start();
        self.changes.neighbours = false;
        self.update_neighbours(shared);
        let now = Instant::now();
        self.updating.published(now, watch.cost(now));
    }

    fn update(&mut self, changes: TableChanges, shared: &FollowerShared) -> Result<()> {
        if changes.lost {
            self.neighbours.resync(&mut self.connection)?;
        }
        let tables = Tables::read(&mut self.connection)?;
        if tables != self.tables {
            self.tables = tables;
            shared.publish(self.tables.fib(next_generation(shared), &self.interfaces, &self.neighbours));
        } else if changes.neighbours || changes.lost {
            self.update_neighbours(shared);
        }
        Ok(())
    }

    fn update_neighbours(&self, shared: &FollowerShared) {
        let ports = self.tables.ports(&self.interfaces);
        let neighbours = on_ports(&self.neighbours, &ports);
        shared.publish(shared.fib.load().with_neighbours(next_generation(shared), neighbours));
    }
}

fn next_generation(shared: &FollowerShared) -> u64 {
    shared.fib.load().generation().wrapping_add(1)
}

/// Measures what a publication takes. Time in which the thread waits for a processor, or for others
/// to let the kernel's tables go, is no work of its own.
struct Stopwatch {
    work: Duration,
    time: Instant,
}

impl Stopwatch {
    fn start() -> Self {
        Self { work: processor_time(), time: Instant::now() }
    }

    fn cost(&self, now: Instant) -> Cost {
        Cost { work: processor_time().saturating_sub(self.work), time: now.duration_since(self.time) }
    }
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Notes the change that a message announces.
fn note(changes: &mut TableChanges, neighbours: &mut Neighbours, object: &RouteNetlinkMessage) {
    match object {
        RouteNetlinkMessage::NewNeighbour(message) => changes.neighbours |= neighbours.learn(message),
        RouteNetlinkMessage::DelNeighbour(message) => changes.neighbours |= neighbours.forget(message),
        _ => changes.tables = true,
    }
}

fn count_probe(shared: &FollowerShared, result: Result<()>) {
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    count(&shared.statistics.probes);
    if let Err(error) = result {
        tracing::debug!("{error}");
        count(&shared.statistics.errors);
    }
}

fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // More room only makes losses rarer. Without the right to set it the follower works too.
    let _ = setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER);
    let groups = [
        libc::RTNLGRP_LINK,
        libc::RTNLGRP_NEIGH,
        libc::RTNLGRP_IPV4_IFADDR,
        libc::RTNLGRP_IPV6_IFADDR,
        libc::RTNLGRP_IPV4_ROUTE,
        libc::RTNLGRP_IPV6_ROUTE,
        RTNLGRP_NEXTHOP,
    ];
    for group in groups {
        socket.add_membership(group)?;
    }
    Ok(socket)
}

/// From the kernel's `linux/rtnetlink.h`; libc does not have it.
const RTNLGRP_NEXTHOP: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::{Fib, PortIndex, Route};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::sockopt::RcvBuf;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip of iproute2");
        assert!(status.success(), "ip {arguments}");
    }

    fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
        let test = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (root)");
            ip("link set lo up");
            test();
        });
        if let Err(panic) = test.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// On a loaded machine a reading can take a second, and the next one comes as much later.
    #[test]
    fn a_neighbour_does_not_wait_for_a_reading() {
        in_a_namespace(|| {
            ip("link add port0 type veth peer name peer0");
            ip("link set port0 up");
            let ports = [(PortIndex(2), "port0".to_owned())].into();
            let mut state =
                FollowerState::open(Interfaces { ports, ..Interfaces::default() }).expect("state");
            state.resync().expect("tables");
            let shared = FollowerShared::new(Fib::builder().build()).expect("shared");
            let now = Instant::now();
            state.reading.failed(now, Duration::from_secs(3600));
            state.changes.tables = true;
            ip("neighbour add 192.0.2.9 lladdr 02:00:00:00:00:09 nud permanent dev port0");
            state.hear(&shared);
            state.publish_what_is_due(&shared, now);
            state.publish_what_is_due(&shared, now + Duration::from_secs(1));
            let known = shared.fib.load().neighbour(PortIndex(2), "192.0.2.9".parse().expect("an address"));
            assert!(known.is_some());
            assert_eq!(state.changes, TableChanges { tables: true, ..TableChanges::default() });
        });
    }

    #[test]
    fn after_an_overrun_everything_is_read_again() {
        in_a_namespace(|| {
            let mut state = FollowerState::open(Interfaces::default()).expect("state");
            setsockopt(&state.events, RcvBuf, &2048).expect("a small buffer");
            let shared = FollowerShared::new(Fib::builder().build()).expect("shared");
            let routes: String = (0..100).map(|i| format!("route add blackhole 10.0.{i}.0/24\n")).collect();
            let mut batch =
                Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip");
            batch.stdin.take().expect("a pipe").write_all(routes.as_bytes()).expect("ip reads");
            assert!(batch.wait().expect("ip").success());
            state.hear(&shared);
            assert!(state.changes.lost, "100 changes do not fit");
            assert_eq!(shared.statistics.overruns.load(Ordering::Relaxed), 1);
            state.publish(&shared);
            assert_eq!(state.changes, TableChanges::default());
            let lookup = |addr: &str| shared.fib.load().lookup(addr.parse().expect(addr));
            assert_eq!(lookup("10.0.0.1"), Route::Blackhole);
            assert_eq!(lookup("10.0.99.1"), Route::Blackhole);
            assert_eq!(lookup("10.0.100.1"), Route::NoRoute);
        });
    }
}
