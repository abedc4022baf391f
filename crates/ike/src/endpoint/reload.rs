//! Loading, reloading and unloading connections.

use crate::config::{Connection, Difference};
use crate::endpoint::{Endpoint, LoadError};
use crate::environment::Environment;
use crate::environment::report::IMPORTANT;
use crate::exchange::change;
use crate::output::{ChildSaId, IkeSaId, Time};
use std::sync::Arc;

impl Endpoint {
    /// Loads a connection in place of one of the same name, and initiates its children with
    /// `start_action = start`, again after failures. If nothing has changed, nothing happens. SAs
    /// that a change affects ([`Difference`](crate::config::Difference)) are replaced, each as soon
    /// as the new one exists.
    pub fn load_connection(&mut self, now: Time, mut connection: Connection) -> Result<(), LoadError> {
        let name = connection.name.clone();
        self.fill_names(&mut connection);
        let before = self.env.loaded.connections.load(now, connection)?;
        if let Some(loaded) = self.env.loaded.connections.find(&name) {
            self.env.names.follow(before.as_deref(), loaded);
        }
        let made_by = before.clone().or(self.env.loaded.former.remove(&name));
        let Some(loaded) =
            self.env.loaded.connections.get(&name).filter(|loaded| before.as_ref() != Some(loaded))
        else {
            return Ok(());
        };
        self.env.starts.keep(before.as_deref(), &loaded);
        if let Some(made_by) = made_by.filter(|made_by| *made_by != loaded) {
            follow_change(&mut self.env, now, &made_by, &loaded);
        }
        for child in &loaded.children {
            if child.mode.is_negotiated() && child.start_action.starts() {
                self.env.starts.schedule(&name, &child.name, now);
            }
        }
        self.run_starts(now);
        Ok(())
    }

    /// Unloads a connection. Its SAs stay up, and end at their time. Returns false if there is none
    /// of this name.
    pub fn unload_connection(&mut self, name: &str) -> bool {
        self.env.starts.forget(name);
        let Some(connection) = self.env.loaded.connections.unload(name) else { return false };
        self.env.names.forget(&connection);
        if self.env.has_made_sas(name) {
            self.env.loaded.former.insert(name.to_owned(), connection);
        }
        true
    }

    /// The Child SAs of a connection that were made before it changed and are to be replaced.
    pub fn outdated_children(&self, connection: &str) -> Vec<ChildSaId> {
        let children = self.env.table.of_connection(connection).flat_map(|sa| &sa.children);
        children
            .filter(|child| child.is_installed() && child.outdated.is_some())
            .map(|child| child.id)
            .collect()
    }
}

fn follow_change(env: &mut Environment, now: Time, before: &Connection, connection: &Arc<Connection>) {
    let difference = Difference::between(before, connection);
    env.effects.log_connection(&connection.name, IMPORTANT, difference.describe(&connection.name));
    let of_it = env.table.of_connection(&connection.name).filter(|sa| !sa.is_gone());
    let ids: Vec<IkeSaId> = of_it.map(|sa| sa.id).collect();
    for (place, id) in (0..).zip(ids) {
        let turn = now.plus(env.config.replacement_pace.saturating_mul(place));
        env.with_sa(now, id, |session| change::follow_on(session, turn, connection, &difference));
    }
}
