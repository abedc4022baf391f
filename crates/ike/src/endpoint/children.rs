//! The status of the configured children: which are up, and why the others are not.

use crate::config::{Child, ChildMode};
use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::environment::record::{ChildFailure, ChildRecord};
use crate::output::Time;
use crate::sa::{IkeSa, Task};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a configured child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChildState {
    /// It has a Child SA.
    Up,
    /// The peer is being asked for one.
    Establishing,
    /// The last attempt failed, and the next one is scheduled.
    Waiting,
    /// It should be up, and this node is doing nothing about it.
    #[default]
    Down,
    /// The next packet initiates it.
    Trapped,
    /// The peer or an operator has to initiate it.
    Passive,
    /// It has no SA: its traffic passes in clear.
    Pass,
    /// It has no SA: its traffic is dropped.
    Drop,
}

impl ChildState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Up,
        Self::Establishing,
        Self::Waiting,
        Self::Down,
        Self::Trapped,
        Self::Passive,
        Self::Pass,
        Self::Drop,
    ];

    /// The name of the state, for operators and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Establishing => "establishing",
            Self::Waiting => "waiting",
            Self::Down => "down",
            Self::Trapped => "trapped",
            Self::Passive => "passive",
            Self::Pass => "pass",
            Self::Drop => "drop",
        }
    }
}

/// A configured child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// `children.<name>`.
    pub name: String,
    /// Its state.
    pub state: ChildState,
    /// True if it should be up by itself: by its `start_action`, or because it was lost and is
    /// restarted.
    pub expected: bool,
    /// Since when it is up, or not up. `None` while this is about to change.
    pub since: Option<Time>,
    /// The last failure.
    pub failure: Option<ChildFailure>,
    /// When the peer is asked again, if that is scheduled.
    pub next_try: Option<Time>,
    /// When its peer last proved to be alive; of several peers, the latest time.
    pub heard: Option<Time>,
    /// Number of its Child SAs that are up: one for each peer, without those of single workers.
    pub sas: usize,
}

/// What a connection's IKE SAs know of one child.
#[derive(Debug, Default)]
struct Found {
    sas: usize,
    installed: Option<Time>,
    heard: Option<Time>,
    asked: bool,
    /// When the peer of an established IKE SA is asked again.
    retry: Option<Time>,
}

impl Endpoint {
    /// The children of a connection, in the order of the configuration, as far as this node knows.
    /// The cost grows with the connection's children and IKE SAs.
    pub fn children(&self, connection: &str) -> Vec<ChildStatus> {
        let found = found(&self.env, connection);
        let none = Found::default();
        let records = self.env.loaded.connections.records(connection);
        let status = |(child, record): (&Child, &ChildRecord)| {
            child_status(
                &self.env,
                connection,
                child,
                record,
                found.get(child.name.as_str()).unwrap_or(&none),
            )
        };
        records.map(status).collect()
    }
}

fn child_status(
    env: &Environment,
    connection: &str,
    child: &Child,
    record: &ChildRecord,
    found: &Found,
) -> ChildStatus {
    let start = env.starts.due_at(connection, &child.name);
    let next_try = found.retry.into_iter().chain(start).min();
    let state = child_state(env, connection, child, found, next_try.is_some());
    let wanted = env.starts.is_wanted(connection, &child.name);
    let tried = matches!(state, ChildState::Up | ChildState::Establishing | ChildState::Waiting);
    let starts = child.mode.is_negotiated() && child.start_action.starts();
    let up = state == ChildState::Up;
    ChildStatus {
        name: child.name.clone(),
        state,
        expected: starts || wanted && tried,
        since: record.since(up).or(found.installed),
        failure: record.failure().cloned(),
        next_try: next_try.filter(|_| state == ChildState::Waiting),
        heard: found.heard,
        sas: found.sas,
    }
}

fn child_state(env: &Environment, connection: &str, child: &Child, found: &Found, waits: bool) -> ChildState {
    match child.mode {
        // It waits until an operator installs it.
        ChildMode::Pass | ChildMode::Drop if !child.start_action.traps() => return ChildState::Passive,
        ChildMode::Pass => return ChildState::Pass,
        ChildMode::Drop => return ChildState::Drop,
        ChildMode::Tunnel | ChildMode::Transport => {}
    }
    if found.sas > 0 {
        ChildState::Up
    } else if found.asked || env.names.waiting_for(connection, &child.name).is_some() {
        ChildState::Establishing
    } else if waits {
        ChildState::Waiting
    } else if env.is_trapped(connection, &child.name) {
        ChildState::Trapped
    } else if child.start_action.starts() {
        ChildState::Down
    } else {
        ChildState::Passive
    }
}

/// By child.
fn found<'a>(env: &'a Environment, connection: &'a str) -> BTreeMap<&'a str, Found> {
    let mut found = BTreeMap::new();
    for sa in env.table.of_connection(connection).filter(|sa| sa.is_live()) {
        if let Some(attempt) = sa.phase.attempt() {
            of(&mut found, &attempt.child).asked = true;
        } else if sa.is_established() {
            look_at(sa, &mut found);
        }
    }
    found
}

fn look_at<'a>(sa: &'a IkeSa, found: &mut BTreeMap<&'a str, Found>) {
    for child in sa.children.iter().filter(|child| child.is_installed()) {
        let of_child = of(found, &child.name);
        if child.is_missed() {
            // Its renewal makes it again.
            of_child.asked |= sa.is_renewing(child.id);
            continue;
        }
        of_child.sas += usize::from(!sa.is_additional(child));
        of_child.heard = of_child.heard.max(Some(sa.last_heard));
        of_child.installed = of_child.installed.into_iter().chain([child.installed]).min();
    }
    let asked = sa.creating.as_ref().and_then(|creating| creating.new_child());
    let waiting = sa.outgoing.tasks.iter().filter_map(Task::new_child);
    for name in asked.into_iter().chain(waiting) {
        of(found, name).asked = true;
    }
    for delayed in &sa.outgoing.later {
        if let Some(name) = delayed.task.new_child() {
            let retry = &mut of(found, name).retry;
            *retry = retry.iter().copied().chain([delayed.at]).min();
        }
    }
}

fn of<'a, 'f>(found: &'f mut BTreeMap<&'a str, Found>, child: &'a str) -> &'f mut Found {
    found.entry(child).or_default()
}
