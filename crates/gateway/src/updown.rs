//! `updown` scripts: which tunnels have had theirs run, and the threads that run them.
//!
//! A script is run when a tunnel comes up, and again, with the same variables, when its last Child
//! SA is gone. A rekeying runs nothing, as with charon. Scripts of one connection run in order.
//! Scripts of other connections wait for them only if they share a thread. The control thread never
//! waits for a script while the gateway runs.

mod environment;
mod script;

use crate::error::{Error, Result};
use crate::pool::{Pool, waking};
use environment::Run;
use mio::Waker;
use script::{Outcome, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testudo_ike::config::{Connection, UpdownScript};
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus};
use testudo_ike::output::ChildSaId;
use testudo_ike::output::LogLevel;
use testudo_vici::schema::scripts_not_run;
use testudo_vici::trust;

/// Threads that run scripts. More would seldom help: scripts often wait for iptables' one lock.
const SCRIPT_THREADS: usize = 4;
/// Scripts that may wait for one thread. More are not run, and the log says so.
const MAX_WAITING_SCRIPTS: usize = 4096;
/// Pairs of selectors of a Child SA that a script is run for: a peer may ask for very many.
const MAX_PAIRS: usize = 64;
/// How long a script may run.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the daemon's end waits for scripts.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a change of owners the SAs are looked at. They change hands within this time.
const OWNER_WINDOW: Duration = Duration::from_secs(30);

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScriptLine {
    /// `connections.<name>`.
    pub(crate) connection: String,
    /// As in [`testudo_ike::output::Event::Log`].
    pub(crate) level: LogLevel,
    /// The line.
    pub(crate) text: String,
}

/// A tunnel that a script was run for.
struct Tunnel {
    connection: String,
    child: String,
    script: UpdownScript,
    runs: Vec<Run>,
    /// The Child SAs that have carried the tunnel and are not gone yet.
    members: BTreeSet<ChildSaId>,
}

/// Control hears of each script as soon as it has ended.
fn takes_long(_: &Task) -> bool {
    true
}

/// A thread that runs scripts.
struct Lane {
    pool: Pool<Task, Outcome>,
    waiting: usize,
}

/// A Child SA that has come up.
#[derive(Clone, Copy)]
pub(crate) struct Risen<'a> {
    /// `connections.<name>`.
    pub(crate) connection: &'a str,
    /// Its IKE SA.
    pub(crate) ike: &'a IkeSaStatus,
    /// The Child SA.
    pub(crate) child: &'a ChildSaStatus,
    /// The interface towards the peer.
    pub(crate) interface: Option<&'a str>,
}

/// All tunnels with scripts, and the threads.
pub(crate) struct Updown {
    waker: Arc<Waker>,
    /// Empty before the first script.
    lanes: Vec<Lane>,
    /// The loaded connections that have a script.
    connections: BTreeSet<String>,
    /// Tunnels by the Child SA that came up first.
    tunnels: BTreeMap<ChildSaId, Tunnel>,
    /// The tunnel that a Child SA carries.
    tunnel_of: BTreeMap<ChildSaId, ChildSaId>,
    /// The daemon ends: scripts that still run are killed.
    ending: Arc<AtomicBool>,
    /// In a cluster: until when SAs may come from other nodes, and go to them.
    owner_changes_until: Option<Instant>,
    /// Lines about scripts that could not be run.
    refused: Vec<ScriptLine>,
}

/// A line for each script of a connection that will not be run.
pub(crate) fn refused(connection: &Connection) -> Vec<String> {
    let check = |program: &str| trust::check(Path::new(program)).map(drop);
    scripts_not_run(connection, check)
}

impl Updown {
    /// Without connections. `waker` wakes the control thread when a script has ended.
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self {
            waker,
            lanes: Vec::new(),
            connections: BTreeSet::new(),
            tunnels: BTreeMap::new(),
            tunnel_of: BTreeMap::new(),
            ending: Arc::default(),
            owner_changes_until: None,
            refused: Vec::new(),
        }
    }

    /// The connection is loaded.
    pub(crate) fn load(&mut self, connection: &Connection) {
        if connection.children.iter().any(|child| child.updown.is_some()) {
            self.connections.insert(connection.name.clone());
        } else {
            self.connections.remove(&connection.name);
        }
    }

    /// The connection is unloaded. Its scripts take down what they have set up when the SAs go.
    pub(crate) fn unload(&mut self, connection: &str) {
        self.connections.remove(connection);
    }

    /// True if no loaded connection has a script.
    pub(crate) fn is_unused(&self) -> bool {
        self.connections.is_empty()
    }

    /// True if a child of the connection has a script.
    pub(crate) fn is_scripted(&self, connection: &str) -> bool {
        self.connections.contains(connection)
    }

    /// True if a script has been run for the tunnel of this Child SA.
    pub(crate) fn knows(&self, child: ChildSaId) -> bool {
        self.tunnel_of.contains_key(&child)
    }

    /// The Child SAs that a script was run for, and that are not gone.
    pub(crate) fn members(&self) -> impl Iterator<Item = ChildSaId> {
        self.tunnel_of.keys().copied()
    }

    /// A tunnel is up: runs its script.
    pub(crate) fn up(&mut self, risen: Risen<'_>, script: &UpdownScript) {
        let id = risen.child.id;
        if self.knows(id) {
            return;
        }
        let mut runs = environment::runs(risen, script.host_access);
        if runs.len() > MAX_PAIRS {
            let text = format!(
                "child {} has {} pairs of selectors: updown script is run for the first {MAX_PAIRS} only",
                risen.child.name,
                runs.len()
            );
            self.refused.push(ScriptLine {
                connection: risen.connection.to_owned(),
                level: LogLevel::Warning,
                text,
            });
            runs.truncate(MAX_PAIRS);
        }
        let tunnel = Tunnel {
            connection: risen.connection.to_owned(),
            child: risen.child.name.clone(),
            script: script.clone(),
            runs,
            members: BTreeSet::from([id]),
        };
        // If `up` is not run, `down` is not either. The next Child SA tries again.
        if self.submit(&tunnel, "up", MAX_WAITING_SCRIPTS) {
            self.tunnels.insert(id, tunnel);
            self.tunnel_of.insert(id, id);
        }
    }

    /// A Child SA has taken the place of another. False if no script was run for that one.
    pub(crate) fn renewed(&mut self, old: ChildSaId, new: ChildSaId) -> bool {
        let Some(first) = self.tunnel_of.get(&old).copied() else { return false };
        if let Some(tunnel) = self.tunnels.get_mut(&first) {
            tunnel.members.insert(new);
            self.tunnel_of.insert(new, first);
        }
        true
    }

    /// A Child SA is gone. Runs the script if it was the tunnel's last.
    pub(crate) fn gone(&mut self, child: ChildSaId) {
        let Some(first) = self.tunnel_of.remove(&child) else { return };
        let Some(tunnel) = self.tunnels.get_mut(&first) else { return };
        tunnel.members.remove(&child);
        if tunnel.members.is_empty()
            && let Some(tunnel) = self.tunnels.remove(&first)
        {
            // What `up` has opened must be shut again, so there is no limit: each `down` follows an
            // `up` that was within it.
            self.submit(&tunnel, "down", usize::MAX);
        }
    }

    /// Other nodes own other SAs from now on.
    pub(crate) fn owners_change(&mut self, now: Instant) {
        self.owner_changes_until = Some(now + OWNER_WINDOW);
    }

    /// True if SAs may have come from other nodes, or gone to them.
    pub(crate) fn looks_at_owners(&mut self, now: Instant) -> bool {
        self.owner_changes_until = self.owner_changes_until.filter(|until| now < *until);
        self.owner_changes_until.is_some() && !(self.is_unused() && self.tunnels.is_empty())
    }

    /// False if there is no room for more than `limit` runs.
    fn submit(&mut self, tunnel: &Tunnel, direction: &'static str, limit: usize) -> bool {
        if let Err(why) = self.start_lanes() {
            self.refused.push(refusal(tunnel, direction, &why.to_string()));
            return false;
        }
        let lane = lane_of(&tunnel.connection, self.lanes.len());
        let Some(lane) = self.lanes.get_mut(lane) else { return false };
        if lane.waiting + tunnel.runs.len() > limit {
            let why = format!("{} scripts wait already, expected at most {limit}", lane.waiting);
            self.refused.push(refusal(tunnel, direction, &why));
            return false;
        }
        lane.waiting += tunnel.runs.len();
        lane.pool.submit(tunnel.runs.iter().map(|run| Task {
            connection: tunnel.connection.clone(),
            child: tunnel.child.clone(),
            script: tunnel.script.clone(),
            verb: format!("{direction}-{}", run.verb),
            variables: run.variables.clone(),
        }));
        true
    }

    /// Without scripts there are no threads.
    fn start_lanes(&mut self) -> Result<()> {
        while self.lanes.len() < SCRIPT_THREADS {
            let ending = Arc::clone(&self.ending);
            let run = move |task: Task| script::run(&task, SCRIPT_TIMEOUT, &ending);
            let name = format!("updown{}", self.lanes.len());
            let pool = Pool::start(&name, 1, || {}, takes_long, run, waking(Arc::clone(&self.waker)))
                .map_err(Error::io("start a thread for scripts"))?;
            self.lanes.push(Lane { pool, waiting: 0 });
        }
        Ok(())
    }

    /// Takes what scripts have written, and how scripts that failed have ended.
    pub(crate) fn take_lines(&mut self) -> Vec<ScriptLine> {
        let mut lines = std::mem::take(&mut self.refused);
        for lane in &mut self.lanes {
            let outcomes = lane.pool.done();
            lane.waiting = lane.waiting.saturating_sub(outcomes.len());
            lines.extend(outcomes.into_iter().flat_map(Outcome::into_lines));
        }
        lines
    }

    /// The daemon ends: its scripts take down what they have set up, within a few seconds.
    pub(crate) fn end(&mut self) -> Vec<ScriptLine> {
        for child in self.members().collect::<Vec<_>>() {
            self.gone(child);
        }
        let until = Instant::now() + END_TIMEOUT;
        let mut lines = self.take_lines();
        while self.lanes.iter().any(|lane| lane.waiting > 0) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
            lines.extend(self.take_lines());
        }
        self.ending.store(true, Ordering::Relaxed);
        let left: usize = self.lanes.iter().map(|lane| lane.waiting).sum();
        if left > 0 {
            let text = format!("testudod ends before {left} runs of updown scripts have ended");
            lines.push(ScriptLine { connection: "-".into(), level: LogLevel::Warning, text });
        }
        lines
    }
}

/// Scripts of one connection share a thread, which keeps their order.
fn lane_of(connection: &str, lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    connection.hash(&mut hasher);
    let lanes = u64::try_from(lanes.max(1)).unwrap_or(1);
    usize::try_from(hasher.finish() % lanes).unwrap_or(0)
}

fn refusal(tunnel: &Tunnel, direction: &str, why: &str) -> ScriptLine {
    let Tunnel { connection, child, script, .. } = tunnel;
    let text = format!("updown script {} {direction} of child {child} is not run: {why}", script.program);
    ScriptLine { connection: connection.clone(), level: LogLevel::Warning, text }
}

#[cfg(test)]
mod tests;
