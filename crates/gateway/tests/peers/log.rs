//! The log: the daemon never waits for its reader, and its end is always possible.

use crate::common::{Pair, SOON, Scenario};
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::process::Process;
use testudo_lab::testudo::binary;
use testudo_lab::topology::{Family, INNER, OUTER, Options, Side};
use testudo_lab::{Lab, Namespace, Topology, wait_until};
use testudo_vici::client::Client;
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;

/// Connections that may still be loaded after SIGTERM. Usually it is one, or none.
const MOST_AFTER: usize = 20;
/// How much of a processor control may use for something else after SIGTERM. Usually it is 24 ms; to
/// set up the rest of the tunnels takes seconds.
const MOST_BUSY: Duration = Duration::from_millis(300);
/// The least that a pipe holds: a page.
const PIPE: i32 = 4096;

/// A pipe that is open at both ends, without a reader.
struct Unread {
    path: PathBuf,
    _ends: OwnedFd,
}

impl Unread {
    fn new(path: PathBuf) -> Self {
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let ends = open(&path, OFlag::O_RDWR, Mode::empty()).unwrap();
        fcntl(&ends, FcntlArg::F_SETPIPE_SZ(PIPE)).unwrap();
        Self { path, _ends: ends }
    }
}

/// Starts testudod with those settings of the log, and that file as its stderr.
fn start(gateway: &Namespace, dir: &Path, log: &str, stderr: &Path) -> (Process, PathBuf) {
    let (config, socket) = (dir.join("testudo.toml"), dir.join("vici.sock"));
    let text = format!(
        "instance = \"{}\"\n[vici]\nsocket = \"{}\"\n[[port]]\ninterface = \"{OUTER}\"\n[[port]]\ninterface = \
         \"{INNER}\"\n[log]\n{log}",
        gateway.lab().instance("log"),
        socket.display()
    );
    fs::write(&config, text).unwrap();
    let shell = gateway.cmd("sh").args(["-c", "exec \"$0\" --config \"$1\" 2> \"$2\""]);
    let process = gateway.start("testudod", shell.arg(binary("testudod").unwrap()).arg(config).arg(stderr));
    (process.unwrap(), socket)
}

/// Once it listens.
fn connect(socket: &Path) -> Client {
    wait_until("testudod to listen", SOON, || {
        Ok(Client::connect(socket).map(drop).map_err(|error| error.to_string()))
    })
    .unwrap();
    let mut client = Client::connect(socket).unwrap();
    client.set_timeout(Some(SOON)).unwrap();
    client
}

/// A connection with a child of its own.
fn connection(number: usize) -> Message {
    let psk = || Message::new().with("auth", "psk");
    let [high, low] = [number >> 8, number & 0xff];
    let child = Message::new()
        .with_list("local_ts", ["10.1.0.0/16"])
        .with_list("remote_ts", [format!("10.{}.{low}.0/24", 100 + high)]);
    let content = Message::new()
        .with_list("remote_addrs", [format!("198.51.{high}.{low}")])
        .with_section("local", psk())
        .with_section("remote", psk())
        .with_section("children", Message::new().with_section("net", child));
    Message::new().with_section(&format!("c{number}"), content)
}

fn load(client: &mut Client, number: usize) -> Result<(), testudo_vici::Error> {
    client.command("load-conn", connection(number)).map(drop)
}

/// Far more connections than are loaded before a signal.
const MANY: usize = 30_000;

/// Loads one connection after the other, and counts them, until the daemon ends.
fn load_many(client: &mut Client, loaded: &AtomicUsize) {
    for number in 0..MANY {
        if load(client, number).is_err() {
            return;
        }
        loaded.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for the first thousand of them.
fn await_a_thousand(loaded: &AtomicUsize) {
    wait_until("a thousand connections", SOON, || {
        let loaded = loaded.load(Ordering::Relaxed);
        Ok(if loaded >= 1000 { Ok(()) } else { Err(format!("{loaded} connections")) })
    })
    .unwrap();
}

/// A pipe without a reader blocks neither commands nor the end, which is heard in the middle of a
/// long load.
#[test]
fn a_stalled_reader_of_stderr_holds_up_neither_commands_nor_the_end() {
    let t = Topology::build(&Lab::shared("stalled").unwrap(), &Options::default()).unwrap();
    let dir = t.gw1.lab().subdir("stalled").unwrap();
    let unread = Unread::new(dir.join("stderr"));
    let (mut process, socket) = start(&t.gw1, &dir, "", &unread.path);
    let mut client = connect(&socket);
    // Each is good for a line of more than 50 octets.
    let lines = 3 * PIPE as usize / 50;
    (0..lines).for_each(|_| load(&mut client, 0).unwrap());
    let stats = client.request("stats", Message::new()).unwrap();
    assert!(stats.section("ikesas").is_some(), "{stats:?}");
    let loaded = &AtomicUsize::new(0);
    let after = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load_many(&mut client, loaded));
        await_a_thousand(loaded);
        process.signal(Signal::SIGTERM).unwrap();
        let before = loaded.load(Ordering::Relaxed);
        assert!(process.wait(SOON).unwrap().success());
        loading.join().unwrap();
        loaded.load(Ordering::Relaxed) - before
    });
    writeln!(std::io::stderr(), "{after} connections loaded after SIGTERM").unwrap();
    assert!(after <= MOST_AFTER, "{after} connections are loaded after SIGTERM");
    let cleanup = t.gw1.cmd(binary("testudod").unwrap()).arg("--config").arg(dir.join("testudo.toml"));
    cleanup.arg("--cleanup").run().unwrap();
}

/// A refused command of swanctl is in the log as a warning, with its subject in separate keys, and
/// so is a connection that can have no traffic.
#[test]
fn refusals_are_warnings_and_json_is_an_object_a_line() {
    let t = Topology::build(&Lab::shared("json").unwrap(), &Options::default()).unwrap();
    let dir = t.gw1.lab().subdir("json").unwrap();
    let written = dir.join("stderr");
    let (mut process, socket) = start(&t.gw1, &dir, "format = \"json\"\n", &written);
    let mut client = connect(&socket);
    load(&mut client, 7).unwrap();
    let same = connection(7).section("c7").unwrap().clone();
    client.command("load-conn", Message::new().with_section("twin", same)).unwrap();
    let bad = Message::new().with_section("bad", Message::new().with("no_such_key", "x"));
    client.command("load-conn", bad).unwrap_err();
    client.command("initiate", Message::new().with("child", "absent")).unwrap_err();
    assert!(process.stop(SOON).unwrap().success());
    let cleanup = t.gw1.cmd(binary("testudod").unwrap()).arg("--config").arg(dir.join("testudo.toml"));
    cleanup.arg("--cleanup").run().unwrap();
    let text = fs::read_to_string(&written).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let find = |level: &str, part: &str| {
        let fits = |line: &&serde_json::Value| {
            line["level"] == level && line["message"].as_str().is_some_and(|message| message.contains(part))
        };
        lines.iter().find(fits).unwrap_or_else(|| panic!("no {level} {part}: {text}"))
    };
    assert_eq!(find("INFO", "loaded the connection")["connection"], "c7");
    assert_eq!(find("WARN", "no secret fits 192.0.2.1 and 198.51.0.7")["connection"], "c7");
    assert_eq!(find("WARN", "child net has the same selectors as c7.net")["connection"], "twin");
    find("WARN", "refused load-conn: ");
    find("WARN", "refused initiate: establishing CHILD_SA 'absent' failed: ");
    find("INFO", "ended; ");
}

/// SIGTERM in the middle of a long load is heard, and ends the load.
#[test]
fn the_end_is_heard_while_thousands_of_connections_are_loaded() {
    let mut pair = Scenario::new("busy-end", Kind::Testudo).start_empty();
    let mut client = Client::connect(pair.one.socket()).unwrap();
    client.set_timeout(Some(SOON)).unwrap();
    let loaded = &AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load_many(&mut client, loaded));
        await_a_thousand(loaded);
        assert!(!loading.is_finished());
        pair.one.process().signal(Signal::SIGTERM).unwrap();
        pair.one.process().wait_log("ending: ", SOON).unwrap();
        // The answer to the last one may still be on its way.
        let most = loaded.load(Ordering::Relaxed) + 1;
        assert!(pair.one.process().wait(SOON).unwrap().success());
        loading.join().unwrap();
        assert!(loaded.load(Ordering::Relaxed) <= most, "the load goes on after the end has begun");
    });
}

/// Writes packets to the daemon's socket until it ends, and reads nothing.
fn talk(socket: &Path, packets: impl Iterator<Item = Packet>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    for packet in packets {
        let mut octets = Vec::new();
        packet.encode(&mut octets).unwrap();
        if stream.write_all(&octets).is_err() {
            return;
        }
    }
}

/// When a line of the log was made, on the clock of the day.
fn time_of(line: &str) -> SystemTime {
    let time = line.split_whitespace().next().unwrap();
    let shown = Command::new("date").args(["-d", time, "+%s.%N"]).output().unwrap();
    let seconds = String::from_utf8(shown.stdout).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds.trim().parse().unwrap())
}

/// How long after that moment the log says that the daemon ends.
fn heard(log: &str, called: SystemTime) -> Duration {
    let ending = log.lines().find(|line| line.contains("ending: ")).unwrap();
    time_of(ending).duration_since(called).unwrap_or_default()
}

/// Many clients have said thousands of commands each and read no answer, and one reads nothing of a
/// list that it has asked for: SIGTERM waits for none of them.
#[test]
fn the_end_is_heard_whatever_clients_have_said() {
    const CLIENTS: usize = 16;
    const EACH: usize = 1500;
    let mut pair = Scenario::new("said-end", Kind::Testudo).start_empty();
    let socket = pair.one.socket().to_owned();
    let loaded = |pair: &Pair| pair.one.log().unwrap().matches("loaded the connection").count();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let socket = &socket;
            let numbers = client * EACH..(client + 1) * EACH;
            let load = |number| Packet::CmdRequest("load-conn".into(), connection(number));
            scope.spawn(move || talk(socket, numbers.map(load)));
        }
        wait_until("a thousand connections", SOON, || {
            let found = loaded(&pair);
            Ok(if found >= 1000 { Ok(()) } else { Err(format!("{found} connections")) })
        })
        .unwrap();
        let list = || Packet::CmdRequest("list-conns".into(), Message::new());
        let asked =
            [Packet::EventRegister("list-conn".into())].into_iter().chain((0..100).map(move |_| list()));
        let socket = &socket;
        scope.spawn(move || talk(socket, asked));
        let called = SystemTime::now();
        pair.one.process().signal(Signal::SIGTERM).unwrap();
        pair.one.process().wait_log("ending: ", SOON).unwrap();
        assert!(pair.one.process().wait(SOON).unwrap().success());
        let log = pair.one.log().unwrap();
        let (before, ending) = log.split_once("ending: ").unwrap();
        let heard = heard(&log, called);
        let [before, after] = [before, ending].map(|part| part.matches("loaded the connection").count());
        let line =
            format!("SIGTERM heard after {heard:?}, with {before} connections loaded, {after} after it");
        writeln!(std::io::stderr(), "{line}").unwrap();
        assert!(before < CLIENTS * EACH && after == 0, "{line}");
    });
}

/// One of very many tunnels between the two gateways, which that side begins or waits for.
fn tunnel(number: usize, side: Side) -> Message {
    let [high, low] = [number >> 8, number & 0xff];
    let proof = |side: Side| Message::new().with("auth", "psk").with("id", format!("{number}.{side:?}"));
    let far = format!("10.{}.{low}.0/24", 100 + high);
    let (local, remote) = if side == Side::One { ("10.1.0.0/16", &*far) } else { (&*far, "10.1.0.0/16") };
    let child = Message::new()
        .with_list("local_ts", [local])
        .with_list("remote_ts", [remote])
        .with("start_action", if side == Side::One { "start" } else { "none" });
    let content = Message::new()
        .with_list("proposals", ["aes128gcm16-prfsha256-x25519"])
        .with_list("local_addrs", [side.outer(Family::V4).to_string()])
        .with_list("remote_addrs", [side.other().outer(Family::V4).to_string()])
        .with_section("local", proof(side))
        .with_section("remote", proof(side.other()))
        .with_section("children", Message::new().with_section(&format!("n{number}"), child));
    Message::new().with_section(&format!("c{number}"), content)
}

/// What a process's control thread has used of a processor, at moments of the clock of the day.
struct ProcessorTime(Vec<(SystemTime, Duration)>);

impl ProcessorTime {
    /// Looks every millisecond until the process ends.
    fn watch(pid: u32) -> Self {
        let mut looks = Vec::new();
        while let Ok(found) = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")) {
            let used = found.split_whitespace().next().and_then(|used| used.parse().ok());
            let Some(used) = used else { break };
            looks.push((SystemTime::now(), Duration::from_nanos(used)));
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(looks)
    }

    /// What it has certainly used between two moments: from the first look to the last one.
    fn between(&self, from: SystemTime, to: SystemTime) -> Duration {
        let looks: Vec<Duration> =
            self.0.iter().filter(|(time, _)| (from..=to).contains(time)).map(|(_, used)| *used).collect();
        looks.last().zip(looks.first()).map_or(Duration::ZERO, |(last, first)| *last - *first)
    }
}

/// Thousands of tunnels are being set up, with all the keys, SAs, policies and routes that they
/// need: SIGTERM does not wait for them. Other labs share the processors, so that only the time
/// counts for which the control thread had one.
#[test]
fn the_end_is_heard_while_thousands_of_tunnels_are_set_up() {
    const TUNNELS: usize = 2000;
    let mut pair = Scenario::new("setup-end", Kind::Testudo).start_empty();
    let secret = || Message::new().with("id", "all").with("type", "ike").with("data", "a key of all");
    let Gateway::Testudo(two) = &pair.two else { panic!("side two runs Testudo") };
    for (side, socket) in [(Side::Two, two.socket()), (Side::One, pair.one.socket())] {
        let mut client = Client::connect(socket).unwrap();
        client.set_timeout(Some(SOON)).unwrap();
        client.command("load-shared", secret()).unwrap();
        (0..TUNNELS).for_each(|number| drop(client.command("load-conn", tunnel(number, side)).unwrap()));
    }
    let established = |pair: &Pair| pair.one.log().unwrap().matches("] established between").count();
    wait_until("the first tunnels", SOON, || {
        let found = established(&pair);
        Ok(if found >= 100 { Ok(()) } else { Err(format!("{found} tunnels")) })
    })
    .unwrap();
    let pid = pair.one.pid();
    let watching = std::thread::spawn(move || ProcessorTime::watch(pid));
    let called = SystemTime::now();
    pair.one.process().signal(Signal::SIGTERM).unwrap();
    pair.one.process().wait_log("ending: ", SOON).unwrap();
    let begun = established(&pair);
    assert!(pair.one.process().wait(SOON).unwrap().success());
    let (heard, time) = (heard(&pair.one.log().unwrap(), called), watching.join().unwrap());
    let used = time.between(called, called + heard);
    writeln!(std::io::stderr(), "SIGTERM heard after {heard:?}, {used:?} of them busy, with {begun} tunnels")
        .unwrap();
    assert!(used <= MOST_BUSY, "{used:?}");
}
