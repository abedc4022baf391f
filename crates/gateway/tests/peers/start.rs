//! If testudod cannot start, it says why, and leaves nothing behind.

use crate::common::{SOON, Scenario, nothing_is_left};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::frame::FramePool;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_lab::gateway::Kind;
use testudo_lab::testudo::binary;
use testudo_lab::topology::{INNER, OUTER, Options, Side};
use testudo_lab::{Lab, Namespace, Topology};

/// A daemon that is never meant to run.
struct Trial<'a> {
    namespace: &'a Namespace,
    instance: String,
    config: PathBuf,
    socket: PathBuf,
}

impl<'a> Trial<'a> {
    fn new(namespace: &'a Namespace, role: &str) -> Self {
        let dir = namespace.lab().subdir(&format!("trial-{role}")).unwrap();
        let instance = namespace.lab().instance(role);
        let this =
            Self { namespace, instance, config: dir.join("testudo.toml"), socket: dir.join("vici.sock") };
        this.write(&this.text(OUTER));
        this
    }

    fn text(&self, port: &str) -> String {
        format!(
            "instance = \"{}\"\n[vici]\nsocket = \"{}\"\n[[port]]\ninterface = \"{port}\"\n[[port]]\ninterface = \
             \"{INNER}\"\n",
            self.instance,
            self.socket.display()
        )
    }

    fn write(&self, text: &str) {
        fs::write(&self.config, text).unwrap();
    }

    /// Runs it behind the words of `wrapper`; it must fail with exit code 1, say all this, and
    /// leave nothing.
    fn fails(&self, wrapper: &[&str], expected: &[&str]) {
        let mut words: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
        words.push(binary("testudod").unwrap().display().to_string());
        words.extend(["--config".into(), self.config.display().to_string()]);
        let done = self.namespace.cmd(&words[0]).args(&words[1..]).run_any().unwrap();
        assert_eq!(done.status.code(), Some(1), "{}{}", done.stdout, done.stderr);
        for text in expected {
            assert!(done.stderr.contains(text), "no {text:?} in {:?}", done.stderr);
        }
        assert!(!self.socket.exists());
        nothing_is_left(self.namespace, &self.instance);
    }
}

/// A connection whose child starts, for `--check`.
const CONNECTION: &str = "connections {\n gw {\n  remote_addrs = 192.0.2.99\n  local {\n   auth = psk\n  }\n  remote \
                          {\n   auth = psk\n  }\n  children {\n   net {\n    local_ts = 10.1.0.0/16\n    start_action \
                          = start\n   }\n  }\n }\n}\n";

impl Trial<'_> {
    /// Runs `--check` behind the words of `wrapper`: it ends with that code, and changes nothing.
    /// Gives what it says would be done, and what is wrong.
    fn checks(&self, wrapper: &[&str], code: i32) -> (String, String) {
        let connections = self.config.with_file_name("swanctl.conf");
        fs::write(&connections, CONNECTION).unwrap();
        let mut words: Vec<String> = wrapper.iter().map(|word| (*word).to_owned()).collect();
        words.push(binary("testudod").unwrap().display().to_string());
        words.extend(["--config".into(), self.config.display().to_string(), "--check".into()]);
        words.extend(["--swanctl".into(), connections.display().to_string()]);
        let done = self.namespace.cmd(&words[0]).args(&words[1..]).run_any().unwrap();
        assert_eq!(done.status.code(), Some(code), "{}{}", done.stdout, done.stderr);
        assert!(!self.socket.exists());
        nothing_is_left(self.namespace, &self.instance);
        (done.stdout, done.stderr)
    }
}

/// An ordinary lab without a daemon.
fn topology() -> Topology {
    Topology::build(&Lab::shared("start").unwrap(), &Options::default()).unwrap()
}

#[test]
fn each_missing_right_is_named_with_its_purpose() {
    let t = topology();
    let trial = Trial::new(&t.gw1, "rights");
    for (capability, expected) in [
        ("-net_admin", "CAP_NET_ADMIN is missing: testudod needs it to attach the XDP filter"),
        ("-net_raw", "CAP_NET_RAW is missing: testudod needs it to open AF_XDP sockets"),
        ("-net_bind_service", "CAP_NET_BIND_SERVICE is missing: testudod needs it to bind UDP port 500"),
        ("-cap_39,-sys_admin", "CAP_BPF is missing: testudod needs it to load the XDP filter"),
        ("-cap_38,-sys_admin", "CAP_PERFMON is missing: testudod needs it to let the XDP filter read"),
    ] {
        let wrapper = ["setpriv", "--inh-caps", capability, "--bounding-set", capability];
        trial.fails(&wrapper, &[expected]);
    }
    let wrapper = ["setpriv", "--inh-caps", "-all", "--bounding-set", "-all"];
    trial
        .fails(&wrapper, &["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_BPF", "CAP_PERFMON"]);
}

#[test]
fn a_bad_configuration_is_refused_by_line_and_key() {
    let t = topology();
    let trial = Trial::new(&t.gw1, "config");
    let at = |line: usize| format!("testudod: {}:{line}: ", trial.config.display());
    for (text, line, expected) in [
        ("colour = \"blue\"", 8, "colour: found an unknown key holding a string, expected one of"),
        ("[worker]\ncipher = \"rot13\"", 9, "worker.cipher: found \"rot13\", expected \"auto\""),
        ("[ike]\nretransmit_tries = 0", 9, "ike.retransmit_tries: found 0, expected an integer from 1 to 20"),
    ] {
        // Top-level keys stand before all tables.
        let good = trial.text(OUTER);
        let (text, line) = match text.starts_with('[') {
            true => (format!("{good}{text}\n"), line),
            false => (format!("{text}\n{good}"), 1),
        };
        trial.write(&text);
        trial.fails(&[], &[&at(line), expected]);
        trial.fails(&["env", "LANG=C"], &[expected]);
    }
    fs::remove_file(&trial.config).unwrap();
    trial.fails(&[], &[&format!("testudod: {}: No such file", trial.config.display())]);
}

/// One that is not there is waited for (`ports`); one that cannot carry packets is a mistake.
#[test]
fn a_port_that_cannot_be_one_is_named() {
    let t = topology();
    let trial = Trial::new(&t.gw1, "port");
    trial.write(&trial.text("lo"));
    trial.fails(&[], &["port lo: cannot attach in native mode"]);
}

#[test]
fn a_second_daemon_does_not_disturb_the_first() {
    let pair = Scenario::new("second", Kind::Testudo).start();
    pair.up(Side::One);
    // Beside the first: the ports of IKE are taken.
    let beside = Trial::new(&pair.t.gw1, "beside");
    let fails = |trial: &Trial<'_>, expected: &str| {
        let testudod = binary("testudod").unwrap();
        let done = trial.namespace.cmd(testudod).arg("--config").arg(&trial.config).run_any().unwrap();
        assert_eq!(done.status.code(), Some(1), "{}", done.stderr);
        assert!(done.stderr.contains(expected), "{}", done.stderr);
        pair.ping_from(Side::One, testudo_lab::topology::Family::V4, 56);
    };
    fails(&beside, "cannot open UDP 0.0.0.0:500: Address already in use");
    fails(&beside, "(is another IKE daemon running here?)");

    // Elsewhere, with the instance or the socket of the first.
    let mut elsewhere = Trial::new(&pair.t.server, "away");
    let own = elsewhere.instance.clone();
    elsewhere.instance = pair.t.gw1.lab().instance("gw1");
    elsewhere.write(&elsewhere.text("eth0").replace(INNER, "lo"));
    fails(&elsewhere, "is in use by another process; stop it first");
    elsewhere.instance = own;
    elsewhere.socket = pair.t.gw1.lab().dir().join("gw1-testudod").join("vici.sock");
    elsewhere.write(&elsewhere.text("eth0").replace(INNER, "lo"));
    fails(&elsewhere, "is in use: another testudod runs here");
    nothing_is_left(&pair.t.server, &elsewhere.instance);
    assert!(pair.sas(Side::One)[0].is_up());
}

/// A queue is not free yet, because a killed predecessor had it: a signal ends the start. Nothing is
/// wrong then.
#[test]
fn a_signal_ends_the_start() {
    let t = topology();
    let trial = Trial::new(&t.gw1, "called");
    let hold = || {
        let pool = FramePool::for_mtu(1500, 8192, 0).unwrap();
        let port = XdpPort::open(&XdpConfig::new(PortIndex(0), OUTER), pool.memory()).unwrap();
        (port, pool)
    };
    let held = t.gw1.enter(hold).unwrap();
    let command = t.gw1.cmd(binary("testudod").unwrap()).arg("--config").arg(&trial.config);
    let mut testudod = t.gw1.start("called-off", command).unwrap();
    // The last line before the ports are opened.
    testudod.wait_log("memory for frames of a worker", SOON).unwrap();
    testudod.signal(Signal::SIGTERM).unwrap();
    let status = testudod.wait(SOON).unwrap();
    let log = testudod.log().unwrap();
    assert!(status.success(), "{log}");
    assert!(log.contains("ended before the start was done, as a signal asks for"), "{log}");
    assert!(!trial.socket.exists());
    nothing_is_left(&t.gw1, &trial.instance);
    drop(held);
}

/// What a gateway that stands alone runs without.
const COROSYNC: [&str; 6] =
    ["libcpg.so", "libquorum.so", "libvotequorum.so", "libcmap.so", "libcfg.so", "libcorosync_common.so"];

/// A cluster of one node.
fn cluster(dir: &Path) -> String {
    let key = dir.join("cluster.key");
    fs::write(&key, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    format!(
        "[cluster]\nnode = 1\nkey = \"{}\"\nstate = \"{}\"\nvips = [\"192.0.2.9\"]\n[[cluster.nodes]]\nid = \
         1\naddresses = [\"127.0.0.1\"]\n",
        key.display(),
        dir.display()
    )
}

/// Where the library is broken, only a gateway with `[cluster]` notices, and says what to do.
#[test]
fn corosyncs_libraries_are_loaded_where_there_is_a_cluster() {
    let t = topology();
    let needed = t.gw1.cmd("readelf").arg("--dynamic").arg(binary("testudod").unwrap()).run().unwrap().stdout;
    assert!(needed.contains("libc.so.6"), "{needed}");
    assert!(COROSYNC.iter().all(|library| !needed.contains(library)), "{needed}");

    let trial = Trial::new(&t.gw1, "corosync");
    let dir = trial.config.parent().unwrap();
    fs::write(dir.join("libcpg.so.4"), "").unwrap();
    let path = format!("LD_LIBRARY_PATH={}", dir.display());
    let broken = ["env", path.as_str()];
    let (_, wrong) = trial.checks(&broken, 0);
    assert_eq!(wrong, "");

    trial.write(&format!("{}{}", trial.text(OUTER), cluster(dir)));
    let expected = format!(
        "testudod: [cluster]: cannot load corosync's library libcpg.so.4: {}/libcpg.so.4: file too short; install Debian's \
         package libcpg4, which comes with corosync\n",
        dir.display()
    );
    trial.fails(&broken, &[&expected]);
    assert!(trial.checks(&broken, 1).1.contains(&expected));
    let (_, wrong) = trial.checks(&[], 0);
    assert!(wrong.starts_with("testudod: warning: corosync is not there"), "{wrong}");
}

/// A MACVLAN takes no more than the interface that it is on.
#[test]
fn an_mtu_that_the_kernel_refuses_is_said() {
    let t = topology();
    t.gw1.ip(&format!("link add link {OUTER} name small0 type macvlan")).unwrap();
    let trial = Trial::new(&t.gw1, "mtu");
    let port = "interface = \"small0\"\n";
    trial.write(&trial.text("small0").replace(port, &format!("{port}xdp = \"generic\"\nmtu = 9000\n")));
    let (plan, _) = trial.checks(&[], 0);
    assert!(plan.contains("\n  change the MTU of small0 from 1500 to 9000\n"), "{plan}");
    let expected = format!(
        "{}:7: port[0].mtu: cannot change the MTU of interface small0 from 1500 to 9000",
        trial.config.display()
    );
    trial.fails(&[], &[&expected]);
}

/// Where nothing is wrong, where the gateway would not start, and what lies between.
#[test]
fn a_check_looks_at_the_host_and_tells_what_would_be_done() {
    let t = topology();
    let trial = Trial::new(&t.gw1, "check");
    let (plan, wrong) = trial.checks(&[], 0);
    for line in [
        "testudod would:\n",
        &format!("\n  attach the filter to {OUTER} (native; driver veth, MTU "),
        &format!("\n  attach the filter to {INNER} (native; driver veth, MTU "),
        &format!("with 2 AF_XDP sockets: queues 0 of {OUTER}, 0 of {INNER}\n"),
        &format!("\n  answer swanctl and testudo at {}\n", trial.socket.display()),
        "\n  get 1 connections when swanctl loads ",
        "swanctl.conf, and initiate 1 children\n",
    ] {
        assert!(plan.contains(line), "no {line:?} in {plan:?}, {wrong:?}");
    }
    assert_eq!(wrong, "");

    t.gw1.sysctl(&[(&format!("net.ipv4.conf.{OUTER}.rp_filter"), "1")]).unwrap();
    let (_, wrong) = trial.checks(&[], 0);
    let warning = format!("testudod: warning: net.ipv4.conf.{OUTER}.rp_filter is 1 (strict)");
    assert!(wrong.starts_with(&warning), "{wrong}");
    t.gw1.sysctl(&[("net.ipv4.conf.all.rp_filter", "2")]).unwrap();
    let (plan, wrong) = trial.checks(&[], 1);
    assert!(wrong.contains("testudod: net.ipv4.conf.all.rp_filter is 2, expected 0"), "{wrong}");
    assert!(plan.starts_with("testudod would not start; with that mended it would:\n"), "{plan}");
    trial.fails(&[], &["net.ipv4.conf.all.rp_filter is 2, expected 0"]);
    t.gw1.sysctl(&[("net.ipv4.conf.all.rp_filter", "0")]).unwrap();

    let (_, wrong) = trial.checks(&["setpriv", "--inh-caps", "-all", "--bounding-set", "-all"], 0);
    assert!(
        wrong.contains("warning: CAP_BPF is missing: testudod needs it to load the XDP filter"),
        "{wrong}"
    );
    t.gw1.ip(&format!("link set {INNER} down")).unwrap();
    assert!(trial.checks(&[], 0).1.contains(&format!("warning: {INNER} is down")));
    trial.write(&trial.text("nosuch0"));
    let (plan, wrong) = trial.checks(&[], 0);
    assert!(wrong.contains("port[0].interface: found \"nosuch0\", expected an interface"), "{wrong}");
    assert!(!plan.contains("attach the filter to nosuch0"), "{plan}");
}
