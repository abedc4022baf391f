//! What is said of machines that are made up.

use super::*;
use crate::error::Error;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use testudo_cluster::corosync::Error as CorosyncError;
use testudo_fastpath::port::{Facts, Queues};
use testudo_vici::conf::Files;
use testudo_vici::trust::Untrusted;

const CONNECTION: &str = "connections {\n gw {\n  remote_addrs = 192.0.2.2\n  local {\n   auth = psk\n  }\n  remote {\n   \
                          auth = psk\n  }\n  children {\n   net {\n    start_action = start\n    local_ts = \
                          10.1.0.0/16\n   }\n  }\n }\n}\n";
const SWANCTL: &str = "/etc/swanctl/swanctl.conf";
/// Node 1 of a cluster of two.
const NODES: &str = "[cluster]\nnode = 1\nkey = \"/nonexistent/key\"\nvips = [\"192.0.2.9\"]\n[[cluster.nodes]]\nid = \
                     1\naddresses = [\"10.0.0.1\"]\n[[cluster.nodes]]\nid = 2\naddresses = [\"10.0.0.2\"]\n";

/// A machine of four processors on two NUMA nodes, with two ports, that lacks nothing.
struct Fake {
    files: BTreeMap<PathBuf, String>,
    interfaces: BTreeMap<&'static str, Facts>,
    addresses: BTreeMap<IpAddr, &'static str>,
    /// Files that may not be opened.
    closed: Vec<PathBuf>,
    /// Why corosync's libraries cannot be loaded.
    no_corosync: Option<CorosyncError>,
}

impl Fake {
    fn new() -> Self {
        let facts = || Facts {
            ethernet: true,
            mtu: 1500,
            queues: Queues { receive: 2, send: 2 },
            up: true,
            link: true,
            driver: Some("ixgbe".to_owned()),
        };
        let mut fake = Self {
            files: BTreeMap::new(),
            interfaces: [("eth0", facts()), ("eth1", facts())].into(),
            addresses: [("10.0.0.2".parse().unwrap(), "eth1")].into(),
            closed: Vec::new(),
            no_corosync: None,
        };
        for (path, text) in [
            ("/proc/self/status", "Name:\ttestudod\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n"),
            ("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
            ("/proc/sys/net/ipv4/conf/eth0/rp_filter", "0\n"),
            ("/proc/sys/net/ipv4/conf/eth1/rp_filter", "2\n"),
            ("/proc/sys/net/ipv4/ip_forward", "1\n"),
            ("/proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
            ("/sys/devices/system/cpu/present", "0-3\n"),
            ("/sys/devices/system/cpu/online", "0-3\n"),
            ("/sys/devices/system/cpu/isolated", "1\n"),
            ("/sys/devices/system/node/online", "0-1\n"),
            ("/sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("/sys/devices/system/node/node1/cpulist", "2-3\n"),
            ("/sys/class/net/eth0/device/numa_node", "0\n"),
            ("/sys/class/net/eth1/device/numa_node", "-1\n"),
            (SWANCTL, CONNECTION),
        ] {
            fake.set(path, text);
        }
        fake
    }

    fn set(&mut self, path: &str, text: &str) {
        self.files.insert(path.into(), text.to_owned());
    }

    fn with(mut self, path: &str, text: &str) -> Self {
        self.set(path, text);
        self
    }

    fn port(&mut self, name: &str) -> &mut Facts {
        self.interfaces.get_mut(name).unwrap()
    }
}

impl Host for Fake {
    fn read(&self, path: &str) -> Option<String> {
        self.files.get(Path::new(path)).cloned()
    }

    fn interface(&self, name: &str) -> Result<Option<Facts>, Error> {
        Ok(self.interfaces.get(name).cloned())
    }

    fn interface_of(&self, address: IpAddr) -> Option<String> {
        self.addresses.get(&address).map(|interface| (*interface).to_owned())
    }

    fn files(&self) -> &dyn Files {
        self
    }

    fn open(&self, path: &Path) -> io::Result<()> {
        if self.closed.iter().any(|closed| closed == path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Files::read(self, path).map(drop)
    }

    fn corosync(&self) -> Result<(), Error> {
        self.no_corosync.clone().map_or(Ok(()), |why| Err(Error::CorosyncLibraries(why)))
    }
}

impl Files for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn runs(&self, _: &Path) -> Result<(), Untrusted> {
        Ok(())
    }
}

fn config(more: &str) -> Config {
    let text = format!("[[port]]\ninterface = \"eth0\"\n[[port]]\ninterface = \"eth1\"\n{more}");
    Config::parse(Path::new("t.toml"), &text).unwrap()
}

fn report(more: &str, host: &Fake) -> Report {
    look(&config(more), Path::new(SWANCTL), host)
}

/// The one warning of a machine that is well otherwise.
fn warning(more: &str, host: &Fake) -> String {
    let report = report(more, host);
    let [warning] = report.warnings.as_slice() else { panic!("{report:?}") };
    assert!(report.faults.is_empty(), "{report:?}");
    warning.clone()
}

fn fault(more: &str, host: &Fake) -> String {
    let report = report(more, host);
    let [fault] = report.faults.as_slice() else { panic!("{report:?}") };
    fault.clone()
}

#[test]
fn a_machine_that_is_well_is_told_what_would_be_done() {
    let report = report("[worker]\ncpus = [1, 0]\ncipher = \"aws-lc\"\n", &Fake::new());
    assert_eq!((report.faults.as_slice(), report.warnings.as_slice()), (&[][..], &[][..]));
    assert_eq!(
        report.plan,
        [
            "leave clear IPv4 and IPv6 to the kernel, which forwards it",
            "attach the filter to eth0 (native; driver ixgbe, MTU 1500, 2 queues)",
            "attach the filter to eth1 (native; driver ixgbe, MTU 1500, 2 queues)",
            "run worker 0 on processor 1 (isolated), with 2 AF_XDP sockets: queues 0 of eth0, 0 of eth1",
            "run worker 1 on processor 0, with 2 AF_XDP sockets: queues 1 of eth0, 1 of eth1",
            "lock 80 MiB of memory for frames at least",
            "protect packets with aws-lc",
            "answer swanctl and testudo at /run/testudo/vici.sock",
            "get 1 connections when swanctl loads /etc/swanctl/swanctl.conf, and initiate 1 children",
        ]
    );
}

#[test]
fn a_check_tells_which_mtus_would_change() {
    let text = "[[port]]\ninterface = \"eth0\"\nmtu = 1500\n[[port]]\ninterface = \"eth1\"\nmtu = 9000\n";
    let config = Config::parse(Path::new("t.toml"), text).unwrap();
    let changed = look(&config, Path::new(SWANCTL), &Fake::new());
    assert_eq!((changed.faults.as_slice(), changed.warnings.as_slice()), (&[][..], &[][..]));
    assert_eq!(
        changed.plan[1..4],
        [
            "attach the filter to eth0 (native; driver ixgbe, MTU 1500, 2 queues)",
            "change the MTU of eth1 from 1500 to 9000",
            "attach the filter to eth1 (native; driver ixgbe, MTU 9000, 2 queues)",
        ]
    );
    let memory = |report: &Report| report.plan.iter().find(|line| line.starts_with("lock ")).cloned();
    assert_ne!(memory(&changed), memory(&report("", &Fake::new())), "chunks of 4096 octets");
}

#[test]
fn what_is_said_stands_where_it_is_looked_for() {
    let mut out = Vec::new();
    let mut report = Report::default();
    report.would("do this");
    show(&report, &mut out).unwrap();
    report.fault("not here");
    show(&report, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let expected =
        "testudod would:\n  do this\ntestudod would not start; with that mended it would:\n  do this\n";
    assert_eq!(text, expected);
}

#[test]
fn a_port_is_looked_at() {
    let mut host = Fake::new();
    host.interfaces.remove("eth1");
    let text = warning("", &host);
    assert!(text.starts_with("t.toml:4: port[1].interface: found \"eth1\", expected an interface"), "{text}");

    let mut host = Fake::new();
    host.port("eth0").up = false;
    assert_eq!(warning("", &host), "eth0 is down: ip link set eth0 up");
    host.port("eth0").up = true;
    host.port("eth0").link = false;
    assert_eq!(warning("", &host), "eth0 is up and has no link");
    host.port("eth0").link = true;
    host.port("eth0").queues.receive = 65;
    assert!(fault("", &host).contains("65 receive queues, expected at most 64: ethtool -L eth0"));
    host.port("eth0").ethernet = false;
    assert!(fault("", &host).ends_with("found \"eth0\", expected an Ethernet interface"));
}

/// By its driver, unless the configuration says something else.
#[test]
fn open_checksums_are_said_of_a_port() {
    let said = |more: &str, host: &Fake| {
        let plan = report(more, host).plan.into_iter();
        plan.filter(|line| line.starts_with("fill in checksums ")).collect::<Vec<_>>()
    };
    let mut host = Fake::new();
    assert_eq!(said("", &host), Vec::<String>::new());
    host.port("eth0").driver = Some("veth".to_owned());
    let [line] = said("", &host).try_into().unwrap();
    assert!(
        line.starts_with("fill in checksums that neighbours of eth0 leave open (driver veth: "),
        "{line}"
    );
    // The text follows the last port.
    let expected = "fill in checksums that neighbours of eth1 leave open (as configured)";
    assert_eq!(said("checksum = \"fill\"\n", &host), [line, expected.to_owned()]);
}

/// A worker that is there for them does not help others.
#[test]
fn a_worker_whose_ports_are_missing_waits_for_them() {
    let mut host = Fake::new();
    host.interfaces.clear();
    let plan = report("", &host).plan;
    let wanted = "run worker 0 wherever there is a processor, without queues while the interfaces of its ports are missing";
    assert!(plan.iter().any(|line| line == wanted), "{plan:?}");
}

#[test]
fn smaller_rings_take_less_memory() {
    let report = report("[worker]\ncount = 2\nring = 512\nframes = 4096\n", &Fake::new());
    let plan = report.plan.iter().find(|line| line.starts_with("lock ")).unwrap();
    assert_eq!(plan, "lock 20 MiB of memory for frames at least");
}

/// Its frames are locked at the start, for its interface may come.
#[test]
fn a_port_whose_interface_is_missing_takes_memory_too() {
    let mut host = Fake::new();
    host.interfaces.remove("eth1");
    let report = report("[worker]\ncount = 2\n", &host);
    let plan = report.plan.iter().find(|line| line.starts_with("lock ")).unwrap();
    assert_eq!(plan, "lock 80 MiB of memory for frames at least");
}

#[test]
fn reverse_path_filtering_is_looked_at() {
    let host = Fake::new().with("/proc/sys/net/ipv4/conf/all/rp_filter", "2\n");
    let text = fault("", &host);
    assert!(text.starts_with("net.ipv4.conf.all.rp_filter is 2, expected 0"), "{text}");
    let host = Fake::new().with("/proc/sys/net/ipv4/conf/eth1/rp_filter", "1\n");
    let text = warning("", &host);
    assert!(text.starts_with("net.ipv4.conf.eth1.rp_filter is 1 (strict)"), "{text}");
    assert!(text.contains("leads into testudo0"), "{text}");
}

#[test]
fn forwarding_is_looked_at() {
    let host = Fake::new().with("/proc/sys/net/ipv6/conf/all/forwarding", "0\n");
    let plan = report("", &host).plan;
    assert_eq!(plan[0], "leave clear IPv4 to the kernel, which forwards it");
    let host = host.with("/proc/sys/net/ipv4/ip_forward", "0\n");
    let text = warning("", &host);
    assert!(text.starts_with("net.ipv4.ip_forward and net.ipv6.conf.all.forwarding are 0"), "{text}");
}

#[test]
fn processors_are_looked_at() {
    let of = |more: &str| warning(more, &Fake::new());
    assert_eq!(
        of("[worker]\ncpu = 9\n"),
        "worker.cpus: worker 0 cannot keep to processor 9: this machine has no such processor"
    );
    let text = of("[worker]\ncpu = 2\n");
    assert!(text.contains("processor 2 of worker 0 is of NUMA node 1, and eth0 is at node 0"), "{text}");
    let text = of("[worker]\ncount = 5\n");
    assert!(text.starts_with("worker.count: 5 workers for 4 processors that are online"), "{text}");
    let text = of("[worker]\nbusy_poll = 50\n");
    assert!(text.starts_with("worker.busy_poll: ") && text.ends_with("set worker.cpus"), "{text}");
    let host = Fake::new().with("/sys/devices/system/cpu/online", "0,2-3\n");
    assert!(warning("[worker]\ncpu = 1\n", &host).ends_with("that processor is offline"));
    let status = "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0,2-3\n";
    let host = Fake::new().with("/proc/self/status", status);
    assert!(warning("[worker]\ncpu = 1\n", &host).contains("may not run there"));
}

/// A machine that says nothing of its processors has what is asked for.
#[test]
fn what_the_machine_does_not_tell_is_no_fault() {
    let mut host = Fake::new();
    host.files.retain(|path, _| !path.starts_with("/sys"));
    let report = report("[worker]\ncpus = [3]\n", &host);
    assert_eq!((report.faults, report.warnings), (vec![], vec![]));
}

#[test]
fn workers_beyond_the_queues_help() {
    let plan = report("[worker]\ncount = 3\n", &Fake::new()).plan;
    let wanted = "run worker 2 wherever there is a processor, without queues: it helps the others";
    assert!(plan.iter().any(|line| line == wanted), "{plan:?}");
}

#[test]
fn rights_and_memory_are_those_of_the_user_who_asks() {
    let limits =
        |limit: &str| format!("Limit Soft Hard Units\nMax locked memory         65536 {limit} bytes\n");
    let host = Fake::new()
        .with("/proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n")
        .with("/proc/self/limits", &limits("8388608"));
    let found = report("", &host);
    assert!(found.faults.is_empty(), "{found:?}");
    assert_eq!(found.warnings.len(), 6, "{found:?}");
    let text = "CAP_BPF is missing: testudod needs it to load the XDP filter and its maps; the user who runs this check does \
                not have it";
    assert!(found.warnings.iter().any(|warning| warning == text), "{found:?}");
    assert!(found.warnings[5].starts_with("this user may lock 8 MiB of memory"), "{found:?}");
    let host = host.with("/proc/self/limits", &limits("unlimited"));
    assert_eq!(report("", &host).warnings.len(), 5);
}

/// The journal has them at each start: the unit runs this check before.
#[test]
fn warnings_about_connections_are_passed_on() {
    let same = CONNECTION.replace("gw {", "gw {\n  remote_port = 500\n  remote_port = 501");
    let text = warning("", &Fake::new().with(SWANCTL, &same));
    assert_eq!(
        text,
        "/etc/swanctl/swanctl.conf:4: connections.gw.remote_port: the value of /etc/swanctl/swanctl.conf:3 has no effect"
    );
    let many: String = (0..30).map(|number| format!("include gone{number}\n")).collect();
    let warnings = report("", &Fake::new().with(SWANCTL, &(many + CONNECTION))).warnings;
    assert_eq!(warnings.len(), 21, "{warnings:?}");
    assert_eq!(warnings[20], "/etc/swanctl/swanctl.conf: 10 warnings more: testudo check has them");
}

/// A name that is misspelt would leave the tunnel on one node without a word.
#[test]
fn a_spread_connection_must_be_there() {
    let spread = |name: &str| {
        let section = format!("[[spread]]\nconnection = \"{name}\"\nscheme = \"packet-sqf\"\n");
        report(&(section + NODES), &Fake::new().with(SWANCTL, CONNECTION)).warnings
    };
    let of_spread = |warnings: Vec<String>| warnings.into_iter().find(|text| text.starts_with("[[spread]]"));
    assert_eq!(of_spread(spread("gw")), None);
    assert_eq!(
        of_spread(spread("gw1")).unwrap(),
        "[[spread]] spreads the connection \"gw1\", which /etc/swanctl/swanctl.conf does not have: compare the names"
    );
}

/// Of several queues no two nodes see the packets in the same order.
#[test]
fn lanes_that_take_turns_want_one_queue() {
    for (scheme, queues, warns) in [
        ("packet-rr", 2, true),
        ("packet-rr", 1, false),
        ("packet-hash", 2, false),
        ("session-sqf", 2, true),
        ("session-hash", 2, false),
    ] {
        let mut host = Fake::new().with(SWANCTL, CONNECTION);
        ["eth0", "eth1"].iter().for_each(|port| host.port(port).queues.receive = queues);
        let section = format!("[[spread]]\nconnection = \"gw\"\nscheme = \"{scheme}\"\n");
        let warnings = report(&(section + NODES), &host).warnings;
        let text = "eth0 has 2 receive queues: packets of a connection whose [[spread]] takes turns must come by a port with one";
        assert_eq!(warnings.iter().any(|warning| warning == text), warns, "{warnings:?}");
    }
}

#[test]
fn connections_are_counted() {
    let mut host = Fake::new().with(SWANCTL, &CONNECTION.replace("  local {", "  mobike = yes\n  local {"));
    let text = warning("", &host);
    assert!(text.contains("1 of 1 connections would be refused"), "{text}");
    host.set(SWANCTL, CONNECTION.strip_suffix("}\n").unwrap());
    assert!(warning("", &host).contains("cannot be read to its end"));
    host.files.remove(Path::new(SWANCTL));
    let plan = report("", &host).plan;
    assert_eq!(plan.last().unwrap(), "begin without connections: /etc/swanctl/swanctl.conf is not there");
}

#[test]
fn a_node_has_its_addresses_and_a_port_the_one_that_others_relay_to() {
    let more = |ingress: &str| {
        format!(
            "[cluster]\nnode = 2\nkey = \"/nonexistent/key\"\nvips = [\"192.0.2.9\"]\ningress = \
             \"{ingress}\"\n[[cluster.nodes]]\nid = 1\naddresses = [\"10.0.0.1\"]\n[[cluster.nodes]]\nid = \
             2\naddresses = [\"10.0.0.2\"]\n"
        )
    };
    let mut host = Fake::new();
    host.set("/proc/net/unix", "0000000000000000: 00000002 00000000 00010000 0001 01 31337 @cpg@@@@\n");
    let warnings = |ingress: &str, host: &Fake| report(&more(ingress), host).warnings;
    for ingress in ["flood", "routed"] {
        assert_eq!(warnings(ingress, &host), [""; 0]);
    }
    host.addresses = [("10.0.0.2".parse().unwrap(), "eth7")].into();
    assert_eq!(warnings("flood", &host), [""; 0]);
    let text = &warnings("routed", &host)[0];
    assert!(
        text.contains("node 2: found \"10.0.0.2\" of eth7 as the first address, expected one of a [[port]]"),
        "{text}"
    );
    host.addresses.clear();
    for ingress in ["flood", "routed"] {
        let text = &warnings(ingress, &host)[0];
        assert!(text.contains("node 2: found \"10.0.0.2\", expected an address of this host"), "{text}");
    }
}

#[test]
fn a_node_of_a_cluster_needs_corosync_and_a_key() {
    let more = "[cluster]\nnode = 2\nkey = \"/nonexistent/key\"\nvips = [\"192.0.2.9\"]\n[[cluster.nodes]]\nid = \
                1\naddresses = [\"10.0.0.1\"]\n[[cluster.nodes]]\nid = 2\naddresses = [\"10.0.0.2\"]\n";
    let mut host = Fake::new();
    let found = report(more, &host);
    assert!(
        found.faults[0].starts_with("t.toml:7: cluster.key: /nonexistent/key: cannot read the cluster's key"),
        "{found:?}"
    );
    assert!(found.warnings[0].starts_with("corosync is not there"), "{found:?}");
    let plan = "join the cluster \"testudo\" by corosync as node 2 of 2, and own the addresses 192.0.2.9 with the others";
    assert!(found.plan.iter().any(|line| line == plan), "{found:?}");

    host.set("/proc/net/unix", "0000000000000000: 00000002 00000000 00010000 0001 01 31337 @cpg@@@@\n");
    host.closed.push("/nonexistent/key".into());
    let text = warning(more, &host);
    assert!(text.ends_with("the user who runs this check may not read it"), "{text}");

    let (file, package, reason) = ("libcpg.so.4", "libcpg4", "no such file".to_owned());
    host.no_corosync = Some(CorosyncError::Library { file, package, reason });
    let faults = report(more, &host).faults;
    assert!(
        matches!(faults.as_slice(), [fault] if fault.starts_with("[cluster]: cannot load")),
        "{faults:?}"
    );
    assert!(report("", &host).faults.is_empty(), "a gateway that stands alone needs none");
}
