//! The thread that follows the kernel's links, addresses, routes and neighbours.
//!
//! Neighbours change often, one at a time, and are followed message by message. Any other change
//! makes the thread read those tables again: the kernel does not announce the IPv4 routes that
//! vanish with a link or an address, so messages alone are not enough. The rate is bounded: changes
//! within [`COALESCE_TIME`] make one table, and reading takes at most a fifth of the time.

use super::connection::{Connection, Messages, receive_from_kernel};
use super::error::{NetlinkError, Result};
use super::handle::{FibHandle, FollowerShared};
use super::neighbours::{NeighbourKey, Neighbours, probe};
use super::view::{Interfaces, Tables, on_ports};
use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Changes within this time make one table.
const COALESCE_TIME: Duration = Duration::from_millis(5);
/// Reading the tables takes at most one part in this many of the time.
const READING_FRACTION: u32 = 5;
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
    fn any(self) -> bool {
        self.tables || self.neighbours || self.lost
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
    /// When the changes are to be published.
    due: Option<Instant>,
    /// The earliest time for the next reading.
    earliest: Instant,
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
            due: None,
            earliest: now,
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
            if self.changes.any() {
                let due = *self.due.get_or_insert((now + COALESCE_TIME).max(self.earliest));
                if now >= due {
                    self.publish(shared);
                }
            }
        }
    }

    fn wait(&self, shared: &FollowerShared) {
        let next = self.due.unwrap_or(self.refresh).min(self.refresh);
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

    fn publish(&mut self, shared: &FollowerShared) {
        let begun = Instant::now();
        let changes = std::mem::take(&mut self.changes);
        self.due = None;
        if let Err(error) = self.update(changes, shared) {
            tracing::warn!("{error}; trying again");
            shared.statistics.errors.fetch_add(1, Ordering::Relaxed);
            self.changes.lost = true;
            self.earliest = Instant::now() + RETRY_DELAY;
            return;
        }
        let now = Instant::now();
        self.earliest = now + now.duration_since(begun) * (READING_FRACTION - 1);
    }

    fn update(&mut self, changes: TableChanges, shared: &FollowerShared) -> Result<()> {
        if changes.lost {
            self.neighbours.resync(&mut self.connection)?;
        }
        let generation = shared.fib.load().generation().wrapping_add(1);
        let tables = match changes.tables || changes.lost {
            true => Some(Tables::read(&mut self.connection)?).filter(|t| *t != self.tables),
            false => None,
        };
        if let Some(tables) = tables {
            self.tables = tables;
            shared.publish(self.tables.fib(generation, &self.interfaces, &self.neighbours));
        } else if changes.neighbours || changes.lost {
            let ports = self.tables.ports(&self.interfaces);
            let neighbours = on_ports(&self.neighbours, &ports);
            shared.publish(shared.fib.load().with_neighbours(generation, neighbours));
        }
        Ok(())
    }
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
    use crate::fib::{Fib, Route};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::sockopt::RcvBuf;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip of iproute2");
        assert!(status.success(), "ip {arguments}");
    }

    #[test]
    fn after_an_overrun_everything_is_read_again() {
        let test = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (root)");
            ip("link set lo up");
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
            assert!(!state.changes.any());
            let lookup = |addr: &str| shared.fib.load().lookup(addr.parse().expect(addr));
            assert_eq!(lookup("10.0.0.1"), Route::Blackhole);
            assert_eq!(lookup("10.0.99.1"), Route::Blackhole);
            assert_eq!(lookup("10.0.100.1"), Route::NoRoute);
        });
        if let Err(panic) = test.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
