//! Testudo itself as a gateway of the lab.

use crate::command::Cmd;
use crate::cpu::{self, CpuTime};
use crate::namespace::write_private;
use crate::process::Process;
use crate::swanctl::Swanctl;
use crate::topology::{INNER, OUTER};
use crate::{Error, Namespace, Result, interrupt, receive};
use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// A `testudod` with the two ports of a lab's gateway.
#[derive(Debug)]
pub struct Testudo {
    namespace: Namespace,
    config: PathBuf,
    /// Its `/etc/hosts`, if it is not the machine's.
    hosts: Option<PathBuf>,
    socket: PathBuf,
    process: Process,
    swanctl: Swanctl,
    /// Kernel threads that receive for its ports.
    receivers: Vec<u32>,
    /// Packets dropped by its daemons that have been stopped, as each said at its end.
    dropped_before: BTreeMap<String, u64>,
}

impl Testudo {
    /// Starts it in the namespace and waits until it answers.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        Self::start_with(namespace, "")
    }

    /// Like [`Self::start`], with further sections of the configuration.
    pub fn start_with(namespace: &Namespace, more: &str) -> Result<Self> {
        Self::start_with_hosts(namespace, more, "")
    }

    /// Like [`Self::start_with`], with the content of its `/etc/hosts`; if empty, it uses the
    /// machine's.
    pub fn start_with_hosts(namespace: &Namespace, more: &str, hosts: &str) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-testudod", namespace.role()))?;
        let socket = dir.join("vici.sock");
        let config = dir.join("testudo.toml");
        let instance = namespace.lab().instance(namespace.role());
        write_private(&config, &config_text(&instance, &socket, more))?;
        let swanctl = Swanctl::new(namespace, &dir, &socket)?;
        let hosts = (!hosts.is_empty()).then_some(hosts).map(|text| {
            let path = dir.join("hosts");
            write_private(&path, text).map(|()| path)
        });
        let hosts = hosts.transpose()?;
        let process = launch(namespace, &config, hosts.as_deref())?;
        // From here on a drop cleans up after any error.
        let mut testudo = Self {
            namespace: namespace.clone(),
            config,
            hosts,
            socket,
            process,
            swanctl,
            receivers: Vec::new(),
            dropped_before: BTreeMap::new(),
        };
        testudo.await_answer()?;
        Ok(testudo)
    }

    /// Starts it again after its end, with the same configuration.
    pub fn restart(&mut self) -> Result<()> {
        self.process = launch(&self.namespace, &self.config, self.hosts.as_deref())?;
        self.await_answer()
    }

    /// Stops it as an operator does: SAs are deleted at the peer.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(STOP_LIMIT)?;
        if !status.success() {
            let found = crate::command::describe(status);
            return Err(Error::unexpected("the end of testudod", "exit code 0", found));
        }
        for (reason, count) in dropped(&self.log()?)? {
            *self.dropped_before.entry(reason).or_default() += count;
        }
        Ok(())
    }

    /// Packets dropped, by reason, by this daemon and those that were stopped before it: a reason may
    /// come twice. What a killed one has dropped is unknown.
    pub fn drops_of_all(&mut self) -> Result<Vec<(String, u64)>> {
        let mut all: Vec<(String, u64)> = self.dropped_before.clone().into_iter().collect();
        if self.process.alive().is_ok() {
            all.extend(self.drops()?);
        }
        Ok(all)
    }

    /// Removes the protection that remains while the daemon is down: `testudod --cleanup`.
    pub fn cleanup(&self) -> Result<()> {
        self.command(["--cleanup"])?.run().map(drop)
    }

    /// The output of `testudo status --json`.
    pub fn status(&self) -> Result<serde_json::Value> {
        self.shown("status")
    }

    /// The output of `testudo cluster --json`.
    pub fn cluster(&self) -> Result<serde_json::Value> {
        self.shown("cluster")
    }

    /// The output of `testudo cluster --json` with those arguments.
    pub fn cluster_with(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        self.shown_with("cluster", arguments)
    }

    /// The output of `testudo drain --json` with those arguments.
    pub fn drain(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        self.shown_with("drain", arguments)
    }

    /// The output of `testudo alarms --json`.
    pub fn alarms(&self) -> Result<serde_json::Value> {
        self.shown("alarms")
    }

    /// `testudo alarms --accept`: lets packets of a source in again.
    pub fn accept(&self, source: IpAddr) -> Result<serde_json::Value> {
        self.shown_with("alarms", &["--accept", &source.to_string()])
    }

    /// The output of `testudo shut --json`.
    pub fn shut(&self) -> Result<serde_json::Value> {
        self.shown("shut")
    }

    /// The output of `testudo release --yes --json`.
    pub fn release(&self, prefix: &str) -> Result<serde_json::Value> {
        self.shown_with("release", &[prefix, "--yes"])
    }

    /// The output of `testudo configured --json` with that timeout.
    pub fn configured(&self, seconds: u32) -> Result<serde_json::Value> {
        self.shown_with("configured", &["--wait", &seconds.to_string()])
    }

    /// Changes its testudo.toml, which it reads when it starts.
    pub fn reconfigure(&self, change: impl FnOnce(String) -> String) -> Result<()> {
        let failed = Error::io(format!("read {}", self.config.display()));
        let text = std::fs::read_to_string(&self.config).map_err(failed)?;
        write_private(&self.config, &change(text))
    }

    fn shown(&self, what: &str) -> Result<serde_json::Value> {
        self.shown_with(what, &[])
    }

    fn shown_with(&self, what: &str, arguments: &[&str]) -> Result<serde_json::Value> {
        let cmd =
            self.namespace.cmd(binary("testudo")?).arg(what).args(arguments).args(["--json", "--socket"]);
        let shown = cmd.arg(&self.socket).run()?.stdout;
        serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected(format!("testudo {what} --json"), "JSON", e.to_string()))
    }

    /// Total of packets dropped, by reason.
    pub fn drops(&self) -> Result<BTreeMap<String, u64>> {
        let status = self.status()?;
        let drops = &status["counters"]["drops"];
        let found =
            || Error::unexpected("testudo status --json", "numbers in counters.drops", drops.to_string());
        let drops = drops.as_object().ok_or_else(found)?;
        drops.iter().map(|(reason, n)| Ok((reason.clone(), n.as_u64().ok_or_else(found)?))).collect()
    }

    /// Packets that it has refused because their sequence numbers are behind the window of their
    /// SA, or came before.
    pub fn replays(&self) -> Result<u64> {
        let drops = self.drops()?;
        Ok(drops.iter().filter(|(reason, _)| reason.starts_with("replay")).map(|(_, count)| count).sum())
    }

    /// Its VICI socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A swanctl for it.
    pub fn swanctl(&self) -> &Swanctl {
        &self.swanctl
    }

    /// The daemon's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// From now on kernel threads receive for its ports, instead of the senders' system calls.
    pub fn receive_in_threads(&mut self) -> Result<()> {
        self.receivers = receive::in_threads(&self.namespace, &[OUTER, INNER])?;
        Ok(())
    }

    /// CPU time of the daemon, and of the kernel threads that receive for it.
    pub fn cpu(&self) -> Result<CpuTime> {
        let receivers = self.receivers.iter().map(|thread| cpu::of_tree(*thread));
        receivers.chain([self.process.cpu()]).sum()
    }

    /// Its log.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    fn await_answer(&mut self) -> Result<()> {
        self.process.wait_ready(START_LIMIT, || self.swanctl.is_served())
    }

    fn command<const N: usize>(&self, args: [&str; N]) -> Result<Cmd> {
        Ok(self.namespace.cmd(binary("testudod")?).arg("--config").arg(&self.config).args(args))
    }
}

impl Drop for Testudo {
    fn drop(&mut self) {
        let _shield = interrupt::shield();
        self.process.kill();
        if let Err(error) = self.cleanup() {
            // Pins outlive the namespace; the next lab removes them.
            let _ = writeln!(std::io::stderr(), "pins of {} stay behind: {error}", self.namespace.name());
        }
    }
}

fn launch(namespace: &Namespace, config: &Path, hosts: Option<&Path>) -> Result<Process> {
    let binary = binary("testudod")?;
    let cmd = match hosts {
        None => namespace.cmd(binary),
        // A mount namespace of its own: the machine's file stays unchanged for all others.
        Some(hosts) => {
            let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
            namespace.cmd("unshare").args(["--mount", "sh", "-c", script, "sh"]).arg(hosts).arg(binary)
        }
    };
    namespace.start("testudod", cmd.arg("--config").arg(config))
}

/// The tests start hundreds of gateways, and memory for frames is a third of what a start costs. The
/// benchmarks, which are built with the release profile, measure the defaults.
const WORKER: &str =
    if cfg!(debug_assertions) { "[worker]\nring = 1024\nframes = 4096\n" } else { "[worker]\n" };

/// The configuration. Keys without a table must be at the top of a TOML file.
fn config_text(instance: &str, socket: &Path, more: &str) -> String {
    let (top, more) = more.split_at(more.find('[').unwrap_or(more.len()));
    let more = match more.contains("[worker]\n") {
        true => more.replacen("[worker]\n", WORKER, 1),
        false => format!("{WORKER}{more}"),
    };
    format!(
        "instance = \"{instance}\"
{top}
[vici]
socket = \"{socket}\"

[log]
level = \"info\"

[[port]]
interface = \"{OUTER}\"

[[port]]
interface = \"{INNER}\"
{more}",
        socket = socket.display(),
    )
}

/// The drops, by reason, that a daemon's log tells at its end.
fn dropped(log: &str) -> Result<BTreeMap<String, u64>> {
    let Some((_, told)) = log.rsplit_once("packets dropped since the start: ") else {
        return Ok(BTreeMap::new());
    };
    let told = told.lines().next().unwrap_or_default();
    let of_reason =
        |told: &str| Some((told.rsplit_once(' ')?.0.to_owned(), told.rsplit_once(' ')?.1.parse().ok()?));
    let drops: Option<_> = told.split(", ").map(of_reason).collect();
    drops.ok_or_else(|| Error::unexpected("the log of testudod", "reasons and numbers", told.to_owned()))
}

/// Path of a binary of this workspace: in `TESTUDO_BIN_DIR`, or in the directory of the running
/// one.
pub fn binary(name: &str) -> Result<PathBuf> {
    let dir = match env::var_os("TESTUDO_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let exe = env::current_exe().map_err(Error::io("find the running program"))?;
            let dir = exe.parent().unwrap_or(Path::new("/"));
            // Tests are in target/<profile>/deps.
            if dir.ends_with("deps") { dir.parent().unwrap_or(dir).to_owned() } else { dir.to_owned() }
        }
    };
    let path = dir.join(name);
    if path.is_file() { Ok(path) } else { Err(Error::Missing { program: path.display().to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_has_dropped_is_read_from_its_log() {
        let log =
            "INFO testudod: packets dropped since the start: fenced 3, no_source 12\nINFO testudod: ended\n";
        let expected = [("fenced".to_owned(), 3), ("no_source".to_owned(), 12)];
        assert_eq!(dropped(log).unwrap(), BTreeMap::from(expected));
        assert_eq!(dropped("INFO testudod: ended\n").unwrap(), BTreeMap::new());
        assert!(dropped("packets dropped since the start: fenced\n").is_err());
    }
}
