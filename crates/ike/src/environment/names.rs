//! DNS names in place of addresses. The host resolves them when a connection is loaded, before each
//! initiation, and now and then, so that the address of an incoming peer is recognised.
//!
//! A name without an address matches no peer. A name that cannot be resolved any more keeps its
//! former addresses.

use crate::alloc::Home;
use crate::config::Connection;
use crate::endpoint::InitiateError;
use crate::environment::Environment;
use crate::environment::begin::Beginning;
use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::change;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::Phase;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;

/// Bound on the addresses of a name; more are ignored.
const MAX_ADDRS: usize = 16;

/// All names, and the initiations that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<String, Known>,
    /// When each name is resolved again, unless that is under way.
    due: BTreeSet<(Time, String)>,
    /// Names to be handed to the host.
    wanted: Vec<String>,
    /// Initiations that wait for names.
    waiting: Vec<Waiting>,
}

/// A name that connections have.
#[derive(Debug, Default)]
struct Known {
    connections: BTreeSet<String>,
    addrs: Vec<IpAddr>,
    /// True if the host is resolving it.
    asked: bool,
    /// True if an initiation has asked for it.
    initiates: bool,
    /// The last resolution failed.
    failed: bool,
    due: Time,
}

/// An initiation that waits for the names of its connection.
#[derive(Debug)]
struct Waiting {
    ike: IkeSaId,
    connection: String,
    child: String,
    names: BTreeSet<String>,
}

impl Names {
    /// When a name is resolved again.
    pub(crate) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Requests the resolution of names that are due.
    pub(crate) fn run(&mut self, now: Time) {
        while self.due.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, name)) = self.due.pop_first()
        {
            self.ask(&name);
        }
    }

    fn ask(&mut self, name: &str) {
        let Some(known) = self.known.get_mut(name) else { return };
        self.due.remove(&(known.due, name.to_owned()));
        if !std::mem::replace(&mut known.asked, true) {
            self.wanted.push(name.to_owned());
        }
    }

    /// Requests the names of a connection. `before`: the former connection.
    pub(crate) fn follow(&mut self, before: Option<&Connection>, connection: &Connection) {
        let names = host_names(connection);
        if let Some(before) = before {
            host_names(before).difference(&names).for_each(|name| self.leave(&connection.name, name));
        }
        for name in &names {
            self.known.entry(name.clone()).or_default().connections.insert(connection.name.clone());
            self.ask(name);
        }
    }

    /// A connection is gone. Its initiations fail when their names are resolved.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        host_names(connection).iter().for_each(|name| self.leave(&connection.name, name));
    }

    fn leave(&mut self, connection: &str, name: &str) {
        let Some(known) = self.known.get_mut(name) else { return };
        known.connections.remove(connection);
        // The answer for a name that is being resolved is still to come.
        if known.connections.is_empty() && !known.asked {
            self.due.remove(&(known.due, name.to_owned()));
            self.known.remove(name);
        }
    }

    /// Gives the names of a connection the addresses that are known.
    pub(crate) fn fill(&self, connection: &mut Connection) {
        for host in connection.names.iter_mut() {
            let known = self.known.get(&host.name);
            host.addrs = known.map(|known| known.addrs.clone()).unwrap_or_default();
        }
    }

    /// Has the initiation wait until all names of its connection have been looked up.
    pub(crate) fn wait(&mut self, ike: IkeSaId, connection: &Connection, child: &str) {
        self.look_names_up(connection);
        self.waiting.push(Waiting {
            ike,
            connection: connection.name.clone(),
            child: child.to_owned(),
            names: host_names(connection),
        });
    }

    /// Takes the names that are to be resolved.
    pub(crate) fn take_wanted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wanted)
    }

    /// The initiation of the child, if it waits for names.
    pub(crate) fn waiting_for(&self, connection: &str, child: &str) -> Option<IkeSaId> {
        let is_it = |waiting: &&Waiting| waiting.connection == connection && waiting.child == child;
        self.waiting.iter().find(is_it).map(|waiting| waiting.ike)
    }

    /// The first initiation of the connection that waits for names.
    pub(crate) fn first_waiting(&self, connection: &str) -> Option<IkeSaId> {
        self.waiting.iter().find(|waiting| waiting.connection == connection).map(|waiting| waiting.ike)
    }
}

/// A name was resolved. Returns the connections whose addresses have changed.
pub(crate) fn resolved<E: Display>(
    env: &mut Environment,
    now: Time,
    name: &str,
    result: Result<Vec<IpAddr>, E>,
) -> Vec<String> {
    let Some(known) = env.names.known.get_mut(name).filter(|known| known.asked) else {
        return Vec::new();
    };
    known.asked = false;
    known.due = now.plus(env.config.name_refresh);
    let (due, initiates) = (known.due, std::mem::take(&mut known.initiates));
    let connections: Vec<String> = known.connections.iter().cloned().collect();
    let result = match result.map(usable) {
        Ok(addrs) if addrs.is_empty() => Err("it has no address that a host can have".to_owned()),
        Ok(addrs) => Ok(addrs),
        Err(error) => Err(error.to_string()),
    };
    let failed = std::mem::replace(&mut known.failed, result.is_err());
    let mut changed = Vec::new();
    match result {
        Ok(addrs) if addrs != known.addrs => {
            known.addrs.clone_from(&addrs);
            changed = connections;
            readdress(env, now, name, &addrs, &changed);
        }
        Ok(_) => {}
        // A lasting failure is logged once, and whenever it stops an initiation.
        Err(why) if initiates || !failed => {
            for connection in &connections {
                env.effects.log_connection(connection, FAILURE, format!("cannot resolve {name}: {why}"));
            }
        }
        Err(_) => {}
    }
    match env.names.known.get(name) {
        Some(known) if known.connections.is_empty() => drop(env.names.known.remove(name)),
        _ => drop(env.names.due.insert((due, name.to_owned()))),
    }
    go_on_with_name(env, now, name);
    changed
}

fn readdress(env: &mut Environment, now: Time, name: &str, addrs: &[IpAddr], connections: &[String]) {
    let shown: Vec<String> = addrs.iter().map(IpAddr::to_string).collect();
    for connection in connections {
        env.effects.log_connection(connection, ORDINARY, format!("{name} is {}", shown.join(" ")));
        env.loaded.connections.readdress(connection, name, addrs);
        begin_at_new_address(env, now, connection);
    }
}

/// Begins an attempt again that looks for the peer at an old address.
fn begin_at_new_address(env: &mut Environment, now: Time, name: &str) {
    let Some(connection) = env.loaded.connections.get(name) else { return };
    let hosts = connection.remote_hosts();
    let coming = env.table.of_connection(name).filter_map(|sa| match &sa.phase {
        Phase::InitSent(init) if !hosts.contains(sa.path.remote.ip()) => Some((sa.id, init.attempt.clone())),
        _ => None,
    });
    let coming: Vec<_> = coming.collect();
    for (id, attempt) in coming {
        env.with_sa(now, id, |session| {
            let line = "the peer has another address: the IKE_SA is initiated again";
            change::begin_again(session, &connection, attempt.child, attempt.number, line)
        });
    }
}

/// Continues the initiations that waited for this name and no other.
fn go_on_with_name(env: &mut Environment, now: Time, name: &str) {
    for waiting in &mut env.names.waiting {
        waiting.names.remove(name);
    }
    let ready: Vec<Waiting> = env.names.waiting.extract_if(.., |waiting| waiting.names.is_empty()).collect();
    for Waiting { ike, connection, child, .. } in ready {
        if let Err(error) = begin_resolved(env, now, ike, &connection, &child) {
            let why = error.to_string();
            let what = if child.is_empty() { "the IKE_SA" } else { &child };
            env.effects.log_connection(&connection, FAILURE, format!("cannot initiate {what}: {why}"));
            env.initiation_failed(now, &connection, ike, &child, Reason::Refused(why));
        }
    }
}

fn begin_resolved(
    env: &mut Environment,
    now: Time,
    id: IkeSaId,
    connection: &str,
    child: &str,
) -> Result<(), InitiateError> {
    let connection = env.loaded.connections.get(connection).ok_or(InitiateError::ConnectionUnloaded)?;
    if !child.is_empty() && !connection.has_sas(child) {
        return Err(InitiateError::ChildUnloaded);
    }
    let path = env.loaded.initial_path(&connection)?;
    let home: Option<Home<'_>> = env.home_of(&connection.name, child);
    let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
    let beginning = Beginning { id, child, path, reauth: None, home };
    env.begin_ike_sa_at(now, &connection, beginning).map(drop)
}

impl Names {
    /// Looks the names of an attempt up again. It goes on at once with the known addresses; if they
    /// change, it begins again there.
    pub(crate) fn look_names_up(&mut self, connection: &Connection) {
        for host in connection.names.iter() {
            self.ask(&host.name);
            if let Some(known) = self.known.get_mut(&host.name) {
                known.initiates = true;
            }
        }
    }
}

/// Each address once, without those that no host can have.
fn usable(addrs: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut used: Vec<IpAddr> = Vec::new();
    for addr in addrs {
        if !addr.is_unspecified() && !addr.is_multicast() && !used.contains(&addr) && used.len() < MAX_ADDRS {
            used.push(addr);
        }
    }
    used
}

fn host_names(connection: &Connection) -> BTreeSet<String> {
    connection.names.iter().map(|host| host.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_due_and_not_known_is_passed_over() {
        let mut names = Names::default();
        names.due.insert((Time::default(), "gone.example.org".to_owned()));
        names.run(Time::default());
        assert_eq!((names.next(), names.wanted.len()), (None, 0));
    }
}
