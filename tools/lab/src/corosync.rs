//! Corosync: one daemon in each namespace, all of one cluster.
//!
//! Each daemon has a mount namespace with its own /run, for the lock, and its own
//! /var/lib/corosync, for the state. Abstract socket names are separate for each network namespace;
//! names of files in /dev/shm contain the process id.

use crate::lock::Company;
use crate::namespace::write_private;
use crate::process::Process;
use crate::{Error, Lab, Namespace, Result, interrupt, sweep, wait_until};
use nix::sys::signal::Signal;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(120);
/// How long the answer to a question counts, if the daemon logs nothing meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Its log line for every new membership.
const READY: &str = "ready to provide service";

/// Timers of Totem. The time to detect a failure is about the sum of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Without a token for that long, the token counts as lost.
    pub token: Duration,
    /// Time to agree on the new membership.
    pub consensus: Duration,
}

impl Default for Timers {
    /// Detection in about 225 ms, without false alarms on a busy machine with two processors.
    fn default() -> Self {
        Self { token: Duration::from_millis(100), consensus: Duration::from_millis(120) }
    }
}

/// The minimum if other labs may run at the same time.
const BESIDE_OTHERS: Timers =
    Timers { token: Duration::from_millis(500), consensus: Duration::from_millis(600) };

/// A token that is not answered is sent again after this time at the latest.
const TOKEN_AGAIN: Duration = Duration::from_millis(160);

/// Configuration that the daemons of a cluster share.
#[derive(Clone, Debug)]
pub struct Ring {
    dir: PathBuf,
    nodes: Vec<(u8, IpAddr)>,
    timers: Timers,
    /// Further lines of the quorum section.
    quorum: String,
}

impl Ring {
    /// Nodes 1, 2, ... at these addresses, with a new key.
    pub fn new(lab: &Lab, nodes: Vec<IpAddr>, timers: Timers) -> Result<Self> {
        let dir = lab.subdir("corosync")?;
        let mut key = [0; 256];
        aws_lc_rs::rand::fill(&mut key)
            .map_err(|e| Error::io("make corosync's key")(std::io::Error::other(e.to_string())))?;
        let path = dir.join("authkey");
        let failed = || Error::io(format!("write {}", path.display()));
        fs::write(&path, key).map_err(failed())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).map_err(failed())?;
        let nodes = (1..).zip(nodes).collect();
        Ok(Self { dir, nodes, timers, quorum: String::new() })
    }

    /// The same where no node fails, and none may count as failed: a machine that is busy with others
    /// has let a daemon wait for 1.5 s.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.timers = Timers { token: Duration::from_secs(10), consensus: Duration::from_secs(12) };
        self
    }

    /// The same with other nodes.
    #[must_use]
    pub fn with_nodes(mut self, nodes: Vec<(u8, IpAddr)>) -> Self {
        self.nodes = nodes;
        self
    }

    /// Adds a line to the quorum section.
    pub fn quorum(mut self, line: &str) -> Self {
        self.quorum.push_str(&format!("  {line}\n"));
        self
    }

    /// Beside other labs the daemons run at normal priority and with longer timers. At their usual
    /// priority, above all ordinary processes, the daemons of several labs would block a small
    /// machine for seconds. And they hold the token as soon as a rotation has brought nothing new.
    fn config_text(&self, company: Company) -> String {
        let Timers { token, consensus } = self.timers;
        let (token, consensus, unchanged, scheduling) = match company {
            Company::Alone => (token, consensus, 3, "yes"),
            Company::Places(_) => {
                let least = BESIDE_OTHERS;
                (token.max(least.token), consensus.max(least.consensus), 1, "no\n  priority: max")
            }
        };
        let (token, consensus) = (token.as_millis(), consensus.as_millis());
        let retransmits = (token / TOKEN_AGAIN.as_millis()).max(3);
        let key = self.dir.join("authkey");
        let nodes: String = self
            .nodes
            .iter()
            .map(|(n, address)| {
                format!("  node {{\n    name: n{n}\n    nodeid: {n}\n    ring0_addr: {address}\n  }}\n")
            })
            .collect();
        format!(
            "totem {{
  version: 2
  cluster_name: lab
  transport: knet
  keyfile: {key}
  crypto_model: openssl
  crypto_cipher: aes256
  crypto_hash: sha256
  token: {token}
  token_coefficient: 0
  token_retransmits_before_loss_const: {retransmits}
  seqno_unchanged_const: {unchanged}
  consensus: {consensus}
  join: 30
  interface {{
    linknumber: 0
    knet_ping_interval: 50
    knet_ping_timeout: 1000
  }}
}}
nodelist {{
{nodes}}}
quorum {{
  provider: corosync_votequorum
{quorum}}}
system {{
  sched_rr: {scheduling}
}}
logging {{
  to_stderr: yes
  to_syslog: no
  to_logfile: no
  timestamp: hires
}}
",
            key = key.display(),
            quorum = self.quorum,
        )
    }
}

/// A running corosync, or one that has been killed.
#[derive(Debug)]
pub struct Corosync {
    namespace: Namespace,
    dir: PathBuf,
    process: Process,
}

impl Corosync {
    /// Starts the daemon of the namespace's address, and waits until it has a membership: of itself
    /// alone if it is the first.
    pub fn start(namespace: &Namespace, ring: &Ring) -> Result<Self> {
        let dir = namespace.lab().subdir(&format!("{}-corosync", namespace.role()))?;
        for part in ["run", "lib"] {
            fs::create_dir(dir.join(part)).map_err(Error::io(format!("make {}/{part}", dir.display())))?;
        }
        write_private(&dir.join("corosync.conf"), &ring.config_text(namespace.lab().company()))?;
        let process = launch(namespace, &dir)?;
        let mut corosync = Self { namespace: namespace.clone(), dir, process };
        corosync.process.wait_log(READY, START_LIMIT)?;
        Ok(corosync)
    }

    /// Writes its corosync.conf anew.
    pub fn rewrite(&self, ring: &Ring) -> Result<()> {
        write_private(&self.dir.join("corosync.conf"), &ring.config_text(self.namespace.lab().company()))
    }

    /// Has the daemons of all nodes read their corosync.conf again.
    pub fn reload(&self) -> Result<()> {
        self.namespace.cmd("corosync-cfgtool").arg("-R").run().map(drop)
    }

    /// Whether it calls its membership quorate.
    pub fn is_quorate(&self) -> Result<bool> {
        let shown = self.namespace.cmd("corosync-quorumtool").arg("-s").run_any()?.stdout;
        Ok(shown.lines().any(|line| line.starts_with("Quorate:") && line.ends_with("Yes")))
    }

    /// Starts it again after its end.
    pub fn restart(&mut self) -> Result<()> {
        self.process = launch(&self.namespace, &self.dir)?;
        self.process.wait_log(READY, START_LIMIT)
    }

    /// SIGKILL: the others notice when their timers expire.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill();
        sweep::remove_ipc_of(self.process.pid())
    }

    /// SIGSTOP.
    pub fn pause(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn resume(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }

    /// Waits until that many nodes are one quorate cluster, as this node sees it.
    pub fn wait_for_members(&self, members: usize, limit: Duration) -> Result<()> {
        self.wait_for_quorum(&format!("a quorate membership of {members}"), "Nodes", members, limit)
    }

    /// Waits until there are that many votes, including a witness's, as this node sees it.
    pub fn wait_for_votes(&self, votes: usize, limit: Duration) -> Result<()> {
        self.wait_for_quorum(&format!("a quorum of {votes} votes"), "Total votes", votes, limit)
    }

    /// Waits until that many votes are expected, as this node sees it: nodes that are gone do not
    /// count any more.
    pub fn wait_for_expected(&self, votes: usize, limit: Duration) -> Result<()> {
        self.wait_for_quorum(&format!("{votes} expected votes"), "Expected votes", votes, limit)
    }

    fn wait_for_quorum(&self, what: &str, key: &str, count: usize, limit: Duration) -> Result<()> {
        let mut asked: Option<(Instant, usize, String)> = None;
        wait_until(what, limit, || {
            // Each question costs the daemon megabytes of new shared memory. It logs most changes.
            let logged = self.log()?.len();
            if let Some((at, was, shown)) = &asked
                && *was == logged
                && at.elapsed() < ASK_AGAIN
            {
                return Ok(Err(shown.clone()));
            }
            let shown = self.namespace.cmd("corosync-quorumtool").arg("-s").run_any()?.stdout;
            let value = |key: &str| {
                let line = shown.lines().find(|line| line.starts_with(key));
                line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
            };
            let there = value(key) == Some(count.to_string()) && value("Quorate").as_deref() == Some("Yes");
            asked = Some((Instant::now(), logged, shown.clone()));
            Ok(if there { Ok(()) } else { Err(shown) })
        })
    }

    /// The daemon's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What it has logged.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }
}

impl Drop for Corosync {
    fn drop(&mut self) {
        let _shield = interrupt::shield();
        if let Err(error) = self.kill() {
            // The next lab will sweep it.
            let _ = writeln!(std::io::stderr(), "shared memory of a corosync stays behind: {error}");
        }
    }
}

fn launch(namespace: &Namespace, dir: &Path) -> Result<Process> {
    let script = "mount --bind \"$0/run\" /run && mount --bind \"$0/lib\" /var/lib/corosync \
                  && exec corosync -f -c \"$0/corosync.conf\"";
    let cmd = namespace.cmd("unshare").args(["-m", "--propagation", "private", "sh", "-c", script]).arg(dir);
    namespace.start("corosync", cmd)
}
