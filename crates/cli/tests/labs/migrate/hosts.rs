//! Two hosts, each with a testudod and an emulator, and a Child SA in transport mode between them.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use testudo_lab::command::{Cmd, Finished};
use testudo_lab::guest::Migrant;
use testudo_lab::namespace::Offloads;
use testudo_lab::process::Process;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::{Testudo, binary};
use testudo_lab::topology::{Family, Options, Side, WIRE_PORTS};
use testudo_lab::{Lab, Topology, wait_until};
use testudo_qmp::Client;

/// In the memory of the virtual machine.
pub(crate) const SECRET: &str = "TheSecretOfTheVirtualMachine";
pub(crate) const NAME: &str = "web1";
/// For whatever comes within seconds, on a machine that has much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const PORT: u16 = 49152;
/// The caller, by SUDO_UID.
pub(crate) const UID: &str = "1000";
/// So much of a migration has crossed the wire when something happens in its middle.
const MIDDLE: u64 = 2_000_000;

pub(crate) struct Hosts {
    pub(crate) source: Migrant,
    pub(crate) destination: Migrant,
    pub(crate) daemons: [Testudo; 2],
    policy: PathBuf,
    family: Family,
    pub(crate) t: Topology,
}

impl Hosts {
    /// The virtual machine runs at the first, and the second waits for it.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, Family::V4, |side| connection(side, Family::V4))
    }

    /// The same over IPv6.
    pub(crate) fn start_over_ipv6(name: &str) -> Self {
        Self::start_with(name, Family::V6, |side| connection(side, Family::V6))
    }

    /// The same with AH around ESP.
    pub(crate) fn start_with_ah(name: &str) -> Self {
        let hosts = Self::start_with(name, Family::V4, |side| {
            let mut connection = connection(side, Family::V4);
            connection.add_ah(&[]);
            connection
        });
        hosts.daemons[0].swanctl().initiate("outer", LIMIT).unwrap();
        hosts
    }

    /// The same, and the hosts ping each other and use SSH in clear, as the manual has it.
    pub(crate) fn start_with_clear(name: &str) -> Self {
        Self::start_with(name, Family::V4, |side| {
            let pass = |name: &str, source: &str, destination: &str| {
                let (local, remote) = match side {
                    Side::One => (source, destination),
                    Side::Two => (destination, source),
                };
                let [ours, theirs] = [side, side.other()].map(|side| side.outer(Family::V4));
                let selectors =
                    [format!("local_ts = {ours}[{local}]"), format!("remote_ts = {theirs}[{remote}]")];
                let lines = ["mode = pass", "start_action = trap"].map(str::to_owned);
                (name.to_owned(), lines.into_iter().chain(selectors).collect())
            };
            let children = vec![pass("echo", "icmp", "icmp"), pass("ssh", "tcp", "tcp/22")];
            Connection { children, ..connection(side, Family::V4) }
        })
    }

    /// The same, and the destination's testudod does not watch.
    pub(crate) fn start_unwatched(name: &str) -> Self {
        let settings = ["", "[alarms]\nenabled = false\n"];
        Self::start_as(name, Family::V4, settings, |side| connection(side, Family::V4))
    }

    fn start_with(name: &str, family: Family, connection: impl Fn(Side) -> Connection) -> Self {
        Self::start_as(name, family, [""; 2], connection)
    }

    fn start_as(
        name: &str,
        family: Family,
        settings: [&str; 2],
        connection: impl Fn(Side) -> Connection,
    ) -> Self {
        let t = build(name);
        let destination = Migrant::expect(&t.gw2, NAME, SECRET).unwrap();
        let source = Migrant::boot(&t.gw1, NAME, SECRET).unwrap();
        let daemons = protect_with(&t, settings, connection);
        let policy = t.wire.lab().unused("migration", ".toml");
        let hosts = Self { source, destination, daemons, policy, family, t };
        hosts.allow(UID);
        hosts
    }

    /// Lets another emulator wait at the destination, in place of one that has had a migration.
    pub(crate) fn start_destination_anew(&mut self) {
        self.destination.process().kill();
        self.destination = Migrant::expect(&self.t.gw2, NAME, SECRET).unwrap();
    }

    /// Writes a policy that lets this user do everything.
    pub(crate) fn allow(&self, uid: &str) {
        self.allow_only(uid, &["migrate", "terminate"]);
    }

    /// Writes a policy that lets this user do only that.
    pub(crate) fn allow_only(&self, uid: &str, actions: &[&str]) {
        let to = Side::Two.outer(self.family);
        let text =
            format!("[[allow]]\nuser = \"{uid}\"\nvm = \"*\"\nto = [\"{to}\"]\nactions = {actions:?}\n");
        std::fs::write(&self.policy, text).unwrap();
    }

    /// Lets the policy expect this identity of a host, too.
    pub(crate) fn expect(&self, side: Side, identity: &str) {
        let host =
            format!("\n[[host]]\naddress = \"{}\"\nidentities = [\"{identity}\"]\n", side.outer(self.family));
        let text = std::fs::read_to_string(&self.policy).unwrap() + &host;
        std::fs::write(&self.policy, text).unwrap();
    }

    /// `testudo migrate --json` with further arguments.
    pub(crate) fn command(&self, more: &[&str]) -> Cmd {
        self.complete(self.t.gw1.cmd(env!("CARGO_BIN_EXE_testudo")), more).arg("--json")
    }

    /// The same for people, and whatever it writes finds no room.
    pub(crate) fn command_on_a_full_disk(&self, more: &[&str]) -> Cmd {
        let shell = self.t.gw1.cmd("sh").args(["-c", "exec \"$0\" \"$@\" >/dev/full 2>/dev/full"]);
        self.complete(shell.arg(env!("CARGO_BIN_EXE_testudo")), more)
    }

    fn complete(&self, cmd: Cmd, more: &[&str]) -> Cmd {
        let cmd = cmd.arg("migrate");
        let cmd = cmd.arg("--source-qmp").arg(self.source.monitor());
        let cmd = cmd.arg("--destination-qmp").arg(self.destination.monitor());
        let cmd = cmd.arg("--source-vici").arg(self.daemons[0].socket());
        let cmd = cmd.arg("--destination-vici").arg(self.daemons[1].socket());
        let cmd = cmd.arg("--policy").arg(&self.policy).env("SUDO_UID", UID);
        cmd.arg("--to").arg(Side::Two.outer(self.family).to_string()).args(more).limit(LIMIT)
    }

    /// Starts an attacker on the wire that hears this side's host, and waits until it attacks: it
    /// needs a packet of the SA.
    pub(crate) fn attack(&self, attack: &str, heard: Side) -> Process {
        let [heard, other] = [heard, heard.other()].map(|side| WIRE_PORTS[side.index()]);
        let cmd = self.t.wire.cmd(binary("testudo-attacker").unwrap()).arg(attack);
        let cmd = cmd.args(["--heard", heard, "--other", other]);
        let mut attacker = self.t.wire.start(&format!("attacker-{attack}"), cmd).unwrap();
        attacker.wait_log("attacking", LIMIT).unwrap();
        attacker
    }

    /// Waits until the daemon of a host has raised an alarm of each of these kinds.
    pub(crate) fn await_alarms(&self, side: Side, kinds: &[&str]) {
        let daemon = &self.daemons[side.index()];
        wait_until(&format!("{kinds:?} at {side:?}"), LIMIT, || {
            let all = daemon.alarms()?;
            let is_raised =
                |kind: &&str| all["alarms"].as_array().unwrap().iter().any(|alarm| alarm["kind"] == **kind);
            Ok(if kinds.iter().all(is_raised) { Ok(()) } else { Err(all.to_string()) })
        })
        .unwrap();
    }

    /// Lets the wire carry only so much to the destination. QEMU's own limit does not hold in the
    /// pause.
    pub(crate) fn slow(&self, rate: &str) {
        let slow = format!("qdisc add dev {} root tbf rate {rate} burst 64k latency 100ms", WIRE_PORTS[1]);
        self.t.wire.run("tc", slow.split(' ')).unwrap();
    }

    /// Lets it carry everything again.
    pub(crate) fn hurry(&self) {
        self.t.wire.run("tc", ["qdisc", "del", "dev", WIRE_PORTS[1], "root"]).unwrap();
    }

    /// Starts a migration of so many octets a second, and waits until it is in its middle.
    pub(crate) fn begin(&self, octets_per_second: u64, more: &[&str]) -> Process {
        let port = WIRE_PORTS[0];
        let before = self.t.wire.statistic(port, "rx_bytes").unwrap();
        let cmd = self.command(more).arg("--max-bandwidth").arg(octets_per_second.to_string());
        let process = self.t.gw1.start("migrate", cmd).unwrap();
        wait_until("the middle of the migration", LIMIT, || {
            let crossed = self.t.wire.statistic(port, "rx_bytes")? - before;
            Ok(if crossed > MIDDLE { Ok(()) } else { Err(format!("{crossed} octets, {}", process.log()?)) })
        })
        .unwrap();
        process
    }

    /// Gives the Child SA new keys, and waits until both hosts have the new one alone.
    pub(crate) fn rekey(&self) {
        let spis = |daemon: &Testudo| -> testudo_lab::Result<Vec<Option<String>>> {
            let sas = daemon.swanctl().list_sas()?;
            let children = sas.iter().flat_map(|sa| &sa.children);
            Ok(children.map(|child| child.get("spi-in").map(str::to_owned)).collect())
        };
        let before = self.daemons.each_ref().map(|daemon| spis(daemon).unwrap());
        self.daemons[0].swanctl().run(["--rekey", "--child", "lab"]).unwrap();
        for (daemon, before) in self.daemons.iter().zip(before) {
            wait_until("the new SA alone", LIMIT, || {
                let now = spis(daemon)?;
                let is_new = now.len() == 1 && now != before;
                Ok(if is_new { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) })
            })
            .unwrap();
        }
    }

    /// Both testudods have been told that the path takes so many octets, or a number that begins
    /// so, and then that the migration has ended.
    pub(crate) fn forget_the_path(&self, mtu: &str) {
        for (daemon, remote) in self.daemons.iter().zip([Side::Two, Side::One]) {
            let path = format!("the path to {} takes packets of ", remote.outer(self.family));
            let (told, again) = (format!("{path}{mtu}"), format!("{path}1500 octets again: "));
            wait_until("the path to be as before", LIMIT, || {
                let log = daemon.log()?;
                let ended = |line: &str| line.contains(&again) && line.ends_with("has ended");
                let done = log.contains(&told) && log.lines().any(ended);
                Ok(if done { Ok(()) } else { Err(log) })
            })
            .unwrap();
        }
    }

    /// The status of both, as their monitors have it; null for one that has ended.
    pub(crate) fn status(&self) -> [Value; 2] {
        [&self.source, &self.destination].map(|migrant| {
            let status = Client::connect(migrant.monitor(), LIMIT)
                .and_then(|mut client| client.execute("query-status", json!({})));
            match status {
                Ok(status) => status["status"].clone(),
                Err(error) if error.is_gone() => Value::Null,
                Err(error) => panic!("{error}"),
            }
        })
    }

    /// The virtual machine runs and counts at the source alone.
    pub(crate) fn run_at_source(&self) {
        let [source, destination] = self.status();
        assert_eq!(source, "running");
        assert_ne!(destination, "running");
        self.source.await_counts(LIMIT).unwrap();
        assert_eq!(self.destination.counts().unwrap(), Vec::<u64>::new());
    }

    /// The virtual machine runs at the destination alone, where it goes on to count.
    pub(crate) fn run_at_destination(&self) {
        let [source, destination] = self.status();
        assert_ne!(source, "running");
        assert_eq!(destination, "running");
        self.destination.await_counts(LIMIT).unwrap();
        goes_on(&self.source.counts().unwrap(), &self.destination.counts().unwrap());
    }
}

/// The numbers that a virtual machine has printed at the destination follow those at the source.
pub(crate) fn goes_on(before: &[u64], after: &[u64]) {
    let last = *before.last().unwrap();
    // The number at the switch may be divided between the two serial ports.
    let first = after[0];
    assert!((last..=last + 2).contains(&first), "{last} at the source, {first} at the destination");
    let steps = after.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert!(steps, "{after:?}");
}

/// The hosts, without daemons.
pub(crate) fn build(name: &str) -> Topology {
    let options = Options { towards: [Offloads::None; 2], ..Options::default() };
    Topology::build(&Lab::large(name, 2).unwrap(), &options).unwrap()
}

/// Starts testudod on both, and brings the SAs between them up.
pub(crate) fn protect(t: &Topology, connection: impl Fn(Side) -> Connection) -> [Testudo; 2] {
    protect_with(t, [""; 2], connection)
}

fn protect_with(t: &Topology, settings: [&str; 2], connection: impl Fn(Side) -> Connection) -> [Testudo; 2] {
    let start = |side: Side| Testudo::start_with(t.gateway(side), settings[side.index()]).unwrap();
    let daemons = [Side::One, Side::Two].map(start);
    for (side, daemon) in [Side::One, Side::Two].into_iter().zip(&daemons) {
        daemon.swanctl().load(&connection(side).to_string()).unwrap();
    }
    daemons[0].swanctl().initiate("lab", LIMIT).unwrap();
    daemons
}

/// Transport mode for the migration port alone.
pub(crate) fn connection(side: Side, family: Family) -> Connection {
    let mut connection = Connection::of(side, family);
    connection.mode = "transport".into();
    let (source, destination) = ("dynamic[tcp]".to_owned(), format!("dynamic[tcp/{PORT}]"));
    let (local, remote) = match side {
        Side::One => (source, destination),
        Side::Two => (destination, source),
    };
    connection.local_ts = vec![local];
    connection.remote_ts = vec![remote];
    connection
}

/// The report of a finished command.
pub(crate) fn report(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The report in the log of a command that ran in the background, and whether it succeeded.
pub(crate) fn ended(mut process: Process) -> (Value, bool) {
    let status = process.wait(LIMIT).unwrap();
    let log = process.log().unwrap();
    let json = log.find("{\n").map_or("", |at| &log[at..]);
    (serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {log}")), status.success())
}
