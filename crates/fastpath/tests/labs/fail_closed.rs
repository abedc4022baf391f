//! A daemon that is killed: what it protected stays in, until someone cleans up.

use crate::hosts::{
    self, Hosts, INNER, OPEN, OPEN6, OUTER, PATIENCE, PROTECTED, PROTECTED_PREFIX, PROTECTED6,
    PROTECTED6_PREFIX, SILENCE,
};
use crate::support::receive;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{
    self, CounterSet, Filter, FilterError, FilterPort, Instance, PrefixUse, PrefixUses, Reason, XdpMode,
};
use testudo_fastpath::netlink::{Follower, Interfaces};

/// The test starts itself with this variable set, to be a daemon that can be killed.
const DAEMON: &str = "TESTUDO_TEST_DAEMON";
const TEST: &str = "fail_closed::protected_traffic_stays_in_when_the_daemon_is_killed";

fn instance(test: &str) -> Instance {
    Instance::new(&format!("ttbp-{test}-{}", std::process::id())).expect("instance name")
}

/// The ports as the kernel has them now.
fn ports() -> Vec<FilterPort> {
    let names = [(PortIndex(0), INNER.to_owned()), (PortIndex(1), OUTER.to_owned())];
    let follower = Follower::start(Interfaces { ports: names.into(), tun: None }).expect("follower");
    let fib = follower.handle().fib();
    let port = |link: &testudo_fastpath::fib::PortLink| FilterPort {
        index: link.index,
        name: link.name.clone(),
        ifindex: link.ifindex,
        mac: link.mac,
        cluster_mac: None,
        check_source: true,
        allow_generic: false,
    };
    fib.ports().iter().map(port).collect()
}

fn policy() -> PrefixUses {
    [PROTECTED_PREFIX, PROTECTED6_PREFIX].map(|p| (p.parse().expect(p), PrefixUse::PROTECT)).into()
}

/// Everything a daemon does with the filter, except to listen.
fn start(instance: &Instance) -> Filter {
    let mut filter = Filter::open(instance).expect("filter");
    filter.set_prefixes(&policy()).expect("prefixes");
    for port in ports() {
        assert_eq!(filter.attach(&port).expect("attach"), XdpMode::Native);
    }
    filter
}

/// The daemon's process: starts, says so, and waits to be killed.
fn be_daemon(name: &str) -> ! {
    let filter = start(&Instance::new(name).expect("instance name"));
    writeln!(std::io::stdout(), "\nready {}", filter.is_inherited()).expect("stdout");
    loop {
        std::thread::park();
    }
}

struct Daemon(Child);

impl Daemon {
    /// Starts a daemon in the gateway's namespace. It says whether it found pinned maps.
    fn spawn(hosts: &Hosts, instance: &Instance) -> (Self, bool) {
        let mut child = hosts.gateway.run(|| {
            Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", TEST, "--nocapture"])
                .env(DAEMON, instance.name())
                .stdout(Stdio::piped())
                .spawn()
                .expect("daemon")
        });
        let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let ready = lines.find_map(|l| l.expect("a line").strip_prefix("ready ").map(str::to_owned));
        (Self(child), ready.expect("the daemon is ready") == "true")
    }
}

impl Drop for Daemon {
    /// SIGKILL: the daemon cannot tidy up.
    fn drop(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}

/// Sweeps what a failed test leaves.
struct Sweep(Instance);

impl Drop for Sweep {
    fn drop(&mut self) {
        let _ = filter::cleanup(&self.0);
    }
}

fn pins(instance: &Instance) -> PathBuf {
    PathBuf::from(filter::BPFFS).join(format!("testudo-{}", instance.name()))
}

#[track_caller]
fn expect_protected(hosts: &Hosts, when: &str) {
    for to in [PROTECTED, PROTECTED6] {
        assert!(hosts.stays_in(&hosts.client, to), "{to} in clear {when}");
    }
    for to in [OPEN, OPEN6] {
        assert!(hosts.arrives(&hosts.client, to), "{to} is none of our business {when}");
    }
}

#[track_caller]
fn expect_all_open(hosts: &Hosts, when: &str) {
    for to in [PROTECTED, PROTECTED6, OPEN, OPEN6] {
        assert!(hosts.arrives(&hosts.client, to), "{to} {when}");
    }
}

#[test]
fn protected_traffic_stays_in_when_the_daemon_is_killed() {
    if let Ok(name) = std::env::var(DAEMON) {
        be_daemon(&name);
    }
    let hosts = Hosts::new();
    let instance = instance("kill");
    let _sweep = Sweep(instance.clone());
    expect_all_open(&hosts, "before anything was protected");

    let (daemon, inherited) = Daemon::spawn(&hosts, &instance);
    assert!(!inherited);
    expect_protected(&hosts, "while the daemon runs");
    assert!(matches!(filter::cleanup(&instance), Err(FilterError::Busy { .. })));
    drop(daemon);
    expect_protected(&hosts, "after the daemon was killed");

    let (daemon, inherited) = Daemon::spawn(&hosts, &instance);
    assert!(inherited);
    expect_protected(&hosts, "after a restart");
    drop(daemon);
    expect_protected(&hosts, "after the second kill");

    let mut cleaned = hosts.gateway.run(|| filter::cleanup(&instance)).expect("cleanup");
    cleaned.ports.sort();
    assert_eq!(cleaned.ports, [INNER, OUTER]);
    assert!(!pins(&instance).exists());
    expect_all_open(&hosts, "after the cleanup");
    assert!(!filter::cleanup(&instance).expect("second cleanup").pins);
}

#[test]
fn a_restart_takes_over_what_was_protected_and_counted() {
    let hosts = Hosts::new();
    let instance = instance("restart");
    let _sweep = Sweep(instance.clone());
    hosts.gateway.run(|| drop(start(&instance)));
    assert!(hosts.stays_in(&hosts.client, PROTECTED));
    hosts.gateway.run(|| {
        let mut filter = Filter::open(&instance).expect("filter");
        assert!(filter.is_inherited());
        assert_eq!(filter.prefixes().expect("prefixes"), policy());
        let dropped = |filter: &Filter| {
            let counters = filter.counters(CounterSet::Port(PortIndex(0))).expect("counters");
            counters.get(Reason::DropNoSocket)
        };
        assert_eq!(dropped(&filter), 1);
        filter.set_prefixes(&PrefixUses::new()).expect("prefixes");
    });
    expect_all_open(&hosts, "after the policy was changed");
}

/// A host behind the gateway, and clear packets to it from outside.
struct Listener<'a> {
    hosts: &'a Hosts,
    socket: UdpSocket,
}

impl<'a> Listener<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        let socket = hosts.client.run(|| UdpSocket::bind((hosts::CLIENT, 7007)).expect("listener"));
        Self { hosts, socket }
    }

    /// A packet from that address comes through within this time.
    fn gets(&self, from: &str, patience: Duration) -> bool {
        self.hosts.outside.run(|| {
            let socket = UdpSocket::bind((from, 0)).expect("socket");
            socket.send_to(b"in clear", (hosts::CLIENT, 7007)).expect("send");
        });
        self.socket.set_read_timeout(Some(patience)).expect("timeout");
        receive(&self.socket, &mut [0; 16]).is_ok()
    }
}

#[test]
fn clear_packets_from_the_protected_prefix_are_dropped() {
    let hosts = Hosts::new();
    let instance = instance("clear");
    let _sweep = Sweep(instance.clone());
    let client = Listener::new(&hosts);
    assert!(client.gets(PROTECTED, PATIENCE), "before anything was protected");
    let filter = hosts.gateway.run(|| start(&instance));
    assert!(!client.gets(PROTECTED, SILENCE));
    assert!(client.gets(OPEN, PATIENCE));
    let counters = filter.counters(CounterSet::Port(PortIndex(1))).expect("counters");
    assert_eq!(counters.get(Reason::DropClearInbound), 1);
}

#[test]
fn dropped_sources_and_evidence_do_not_concern_the_next_run() {
    let hosts = Hosts::new();
    let instance = instance("alarms");
    let _sweep = Sweep(instance.clone());
    let client = Listener::new(&hosts);
    let evidence = |filter: &Filter| filter.take_clear(PortIndex(1)).expect("clear packets").len();
    let mut filter = hosts.gateway.run(|| start(&instance));
    assert!(!client.gets(PROTECTED, SILENCE));
    assert_eq!(evidence(&filter), 1);
    let open = OPEN.parse().expect("address");
    filter.drop_source(open, Duration::MAX).expect("a source that is dropped");
    assert!(!client.gets(PROTECTED, SILENCE));
    assert!(!client.gets(OPEN, SILENCE));
    drop(filter);
    assert!(!client.gets(OPEN, SILENCE), "it is dropped without a daemon too");
    let filter = hosts.gateway.run(|| Filter::open(&instance).expect("filter"));
    assert_eq!((filter.is_inherited(), evidence(&filter)), (true, 0));
    assert!(client.gets(OPEN, PATIENCE));
}
