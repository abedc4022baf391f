//! The three migrations.

use crate::attack;
use crate::outcome::{Move, Moved, Way};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};
use testudo_lab::capture::Capture;
use testudo_lab::command::Cmd;
use testudo_lab::demo::{Done, Progress};
use testudo_lab::guest::Migrant;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::{Testudo, binary};
use testudo_lab::topology::{Family, Side, WIRE_PORTS};
use testudo_lab::{Error, Result, Topology, wait_until};
use testudo_qmp::Client;

const SECRET: &str = "TheSecretOfTheVirtualMachine";
const LIMIT: Duration = Duration::from_secs(120);
const PORT: u16 = 49152;
/// Time between two readings of what has crossed the wire.
const SAMPLING: Duration = Duration::from_millis(50);
/// The pause that is allowed, in milliseconds: an emulated virtual machine has to move in one round
/// (docs/how-to/migrate-vm.md).
const PAUSE: u64 = 100_000;
/// Octets a second, for a migration that lasts long enough to be attacked.
const SLOW: u64 = 4_000_000;
/// The attacker begins when so much has crossed the wire.
const MIDDLE: u64 = 4_000_000;
/// The caller, whom the policy allows everything.
const UID: &str = "1000";

/// The virtual machine of one migration, at both hosts.
struct Pair<'a> {
    hosts: &'a Topology,
    source: Migrant,
    destination: Migrant,
}

/// Moves a virtual machine each way.
pub(crate) fn run(hosts: &Topology, progress: &mut Progress) -> Result<Vec<Move>> {
    progress.title("In clear")?;
    let pair = boot(hosts, Way::Plain, progress)?;
    let plain = progress.step("QEMU moves it over TCP", || pair.watched(Way::Plain, || pair.plain()))?;
    drop(pair);

    progress.title("By testudo migrate")?;
    let daemons = progress.step("two testudods, an SA in transport mode", || tunnel(hosts).map(Done::new))?;
    let pair = boot(hosts, Way::Protected, progress)?;
    let protected = progress.step("testudo migrate moves it", || {
        let pause = PAUSE.to_string();
        pair.watched(Way::Protected, || pair.migrate(&daemons, &["--downtime", &pause]))
    })?;
    drop(pair);

    progress.title("Under attack")?;
    let pair = boot(hosts, Way::Attacked, progress)?;
    let attacked = progress.step("testudo migrate, and forged packets of the SA", || {
        let slow = SLOW.to_string();
        pair.watched(Way::Attacked, || {
            pair.migrate(&daemons, &["--max-bandwidth", &slow, "--cancel-on", "warning"])
        })
    })?;
    Ok(vec![plain, protected, attacked])
}

/// Boots it at the first host, and has the second wait for it.
fn boot<'a>(hosts: &'a Topology, way: Way, progress: &mut Progress) -> Result<Pair<'a>> {
    progress.step("a virtual machine boots, and counts", || {
        let destination = Migrant::expect(&hosts.gw2, way.name(), SECRET)?;
        let source = Migrant::boot(&hosts.gw1, way.name(), SECRET)?;
        Ok(Done::new(Pair { hosts, source, destination }))
    })
}

/// Testudo at both hosts, and a tunnel for the port of migrations alone.
fn tunnel(hosts: &Topology) -> Result<[Testudo; 2]> {
    let (source, destination) = ("dynamic[tcp]".to_owned(), format!("dynamic[tcp/{PORT}]"));
    let start = |side: Side| {
        let testudod = Testudo::start(hosts.gateway(side))?;
        let mut connection = Connection::of(side, Family::V4);
        connection.mode = "transport".into();
        let (local, remote) = match side {
            Side::One => (&source, &destination),
            Side::Two => (&destination, &source),
        };
        (connection.local_ts, connection.remote_ts) = (vec![local.clone()], vec![remote.clone()]);
        testudod.swanctl().load(&connection.to_string())?;
        Ok(testudod)
    };
    let daemons = [start(Side::One)?, start(Side::Two)?];
    daemons[0].swanctl().initiate("lab", LIMIT)?;
    Ok(daemons)
}

/// What a migration reports at its end.
struct End {
    moved: Option<Moved>,
    cancelled: Option<String>,
}

impl Pair<'_> {
    /// Runs a migration with a capture, and looks at both hosts behind it.
    fn watched(&self, way: Way, migrate: impl FnOnce() -> Result<End> + Send) -> Result<Done<Move>> {
        let wire = &self.hosts.wire;
        let capture = Capture::everything_fast(wire)?;
        let (begun, over) = (Instant::now(), AtomicBool::new(false));
        let before = self.sent()?;
        let (end, seconds, octets, attack) = std::thread::scope(|scope| {
            let meter = scope.spawn(|| self.meter(begun, before, &over));
            let attacker = (way == Way::Attacked).then(|| scope.spawn(|| self.attack(begun, before, &over)));
            let end = migrate();
            let seconds = begun.elapsed().as_secs_f64();
            over.store(true, Ordering::Relaxed);
            let attack = attacker.map(join).transpose();
            (end, seconds, join(meter), attack)
        });
        // A migration that has failed explains why there was nothing to attack.
        let (end, attack) = (end?, attack?);
        let counts_at = self.counting()?;
        let captured = capture.stop()?;
        let (unseen, secret_found) = (captured.lost, captured.contains(SECRET.as_bytes())?);
        let said = match &end.cancelled {
            Some(_) => "cancelled".to_owned(),
            None => format!("runs at the {}", counts_at.join(" and ")),
        };
        let End { moved, cancelled } = end;
        let octets = octets?;
        let done = Move { way, octets, seconds, moved, secret_found, unseen, attack, cancelled, counts_at };
        Ok(Done::saying(done, said))
    }

    /// Octets that the source has put on the wire.
    fn sent(&self) -> Result<u64> {
        self.hosts.wire.statistic(WIRE_PORTS[0], "rx_bytes")
    }

    fn meter(&self, begun: Instant, before: u64, over: &AtomicBool) -> Result<Vec<(f64, u64)>> {
        let mut octets = vec![(0.0, 0)];
        loop {
            let last = over.load(Ordering::Relaxed);
            let sent = self.sent()?.saturating_sub(before);
            octets.push((begun.elapsed().as_secs_f64(), sent));
            if last {
                return Ok(octets);
            }
            sleep(SAMPLING);
        }
    }

    /// Waits for the middle of the migration, and attacks. Returns when.
    fn attack(&self, begun: Instant, before: u64, over: &AtomicBool) -> Result<f64> {
        wait_until("the middle of the migration", LIMIT, || {
            let sent = self.sent()?.saturating_sub(before);
            if over.load(Ordering::Relaxed) {
                return Err(Error::unexpected("a migration to attack", "one under way", "its end"));
            }
            Ok(if sent > MIDDLE { Ok(()) } else { Err(format!("{sent} octets")) })
        })?;
        let at = begun.elapsed().as_secs_f64();
        attack::forge(&self.hosts.wire).map(|()| at)
    }

    /// QEMU does it alone.
    fn plain(&self) -> Result<End> {
        let (mut source, mut destination) = (monitor(&self.source)?, monitor(&self.destination)?);
        let uri = json!({ "uri": format!("tcp:{}:{PORT}", Side::Two.outer(Family::V4)) });
        destination.execute("migrate-incoming", uri.clone()).map_err(qemu)?;
        source.execute("migrate-set-parameters", json!({ "downtime-limit": PAUSE })).map_err(qemu)?;
        source.execute("migrate", uri).map_err(qemu)?;
        let done = wait_until("the migration", LIMIT, || {
            let done = source.execute("query-migrate", json!({})).map_err(qemu)?;
            Ok(if done["status"] == "completed" { Ok(done) } else { Err(done.to_string()) })
        })?;
        Ok(End { moved: moved(&done["total-time"], &done["downtime"]), cancelled: None })
    }

    /// `testudo migrate`.
    fn migrate(&self, daemons: &[Testudo; 2], more: &[&str]) -> Result<End> {
        let to = Side::Two.outer(Family::V4).to_string();
        let policy = self.hosts.wire.lab().unused("migration", ".toml");
        allow(&policy, &to)?;
        let cmd: Cmd = self.hosts.gw1.cmd(binary("testudo")?).arg("migrate").arg("--json");
        let cmd = cmd.arg("--source-qmp").arg(self.source.monitor());
        let cmd = cmd.arg("--destination-qmp").arg(self.destination.monitor());
        let cmd = cmd.arg("--source-vici").arg(daemons[0].socket());
        let cmd = cmd.arg("--destination-vici").arg(daemons[1].socket());
        let cmd = cmd.arg("--policy").arg(&policy).env("SUDO_UID", UID);
        let done = cmd.arg("--to").arg(to).args(more).limit(LIMIT).run_any()?;
        let unreadable = || {
            Error::unexpected("testudo migrate --json", "a report", format!("{}{}", done.stderr, done.stdout))
        };
        let report: Value = serde_json::from_str(&done.stdout).map_err(|_| unreadable())?;
        match report["result"].as_str() {
            Some("completed") => {
                let figures = &report["figures"];
                Ok(End { moved: moved(&figures["total_ms"], &figures["downtime_ms"]), cancelled: None })
            }
            Some("cancelled") => {
                let why = report["reason"].as_str().unwrap_or_default().to_owned();
                Ok(End { moved: None, cancelled: Some(why) })
            }
            _ => Err(unreadable()),
        }
    }

    /// Where the virtual machine goes on to count.
    fn counting(&self) -> Result<Vec<&'static str>> {
        let both = [("source", &self.source), ("destination", &self.destination)];
        let counts = || -> Result<[usize; 2]> { Ok([both[0].1.counts()?.len(), both[1].1.counts()?.len()]) };
        let before = counts()?;
        let more = |now: [usize; 2]| [now[0] - before[0], now[1] - before[1]];
        // By then the other one would have counted too.
        let more = wait_until("a counter that goes on", LIMIT, || {
            let more = more(counts()?);
            Ok(if more.iter().max() >= Some(&20) { Ok(more) } else { Err(format!("{more:?}")) })
        })?;
        let counting = both.into_iter().zip(more).filter(|(_, more)| *more > 0).map(|((name, _), _)| name);
        Ok(counting.collect())
    }
}

/// Both in milliseconds.
fn moved(total: &Value, downtime: &Value) -> Option<Moved> {
    Some(Moved { total_ms: total.as_u64()?, downtime_ms: downtime.as_u64()? })
}

fn monitor(migrant: &Migrant) -> Result<Client> {
    Client::connect(migrant.monitor(), LIMIT).map_err(qemu)
}

fn qemu(error: testudo_qmp::Error) -> Error {
    Error::unexpected("QEMU", "an answer", error.to_string())
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Lets the caller migrate everything to that address.
fn allow(policy: &Path, to: &str) -> Result<()> {
    let rule = format!("[[allow]]\nuser = \"{UID}\"\nvm = \"*\"\nto = [\"{to}\"]\nactions = [\"migrate\"]\n");
    fs::write(policy, rule).map_err(Error::io(format!("write {}", policy.display())))
}
