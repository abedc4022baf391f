//! A connection is loaded, loaded again, or unloaded.

use crate::config::{Connection, Difference};
use crate::endpoint::report::IMPORTANT;
use crate::endpoint::{Endpoint, LoadError};
use crate::exchange::change;
use crate::output::{ChildSaId, IkeSaId, Time};
use std::sync::Arc;

impl Endpoint {
    /// See [`Endpoint::load_connection`].
    pub(super) fn load(&mut self, now: Time, mut connection: Connection) -> Result<(), LoadError> {
        let name = connection.name.clone();
        self.fill_names(&mut connection);
        let before = self.env.loaded.connections.load(now, connection)?;
        self.follow_names(&name);
        let made_by = before.clone().or(self.env.loaded.former.remove(&name));
        let Some(loaded) =
            self.env.loaded.connections.get(&name).filter(|loaded| before.as_ref() != Some(loaded))
        else {
            return Ok(());
        };
        self.env.starts.keep(&loaded);
        if let Some(made_by) = made_by.filter(|made_by| *made_by != loaded) {
            self.follow_change(now, &made_by, &loaded);
        }
        for child in &loaded.children {
            if child.mode.is_negotiated() && child.start_action.starts() {
                self.env.starts.schedule(&name, &child.name, now);
            }
        }
        self.run_starts(now);
        Ok(())
    }

    /// See [`Endpoint::unload_connection`].
    pub(super) fn unload(&mut self, name: &str) -> bool {
        self.env.starts.forget(name);
        let Some(connection) = self.env.loaded.connections.unload(name) else { return false };
        self.env.names.forget(name);
        if self.env.has_made_sas(name) {
            self.env.loaded.former.insert(name.to_owned(), connection);
        }
        true
    }

    /// See [`Endpoint::outdated_children`].
    pub(super) fn outdated(&self, connection: &str) -> Vec<ChildSaId> {
        let children = self.env.table.of_connection(connection).flat_map(|sa| &sa.children);
        children
            .filter(|child| child.is_installed() && child.outdated.is_some())
            .map(|child| child.id)
            .collect()
    }

    fn follow_change(&mut self, now: Time, before: &Connection, connection: &Arc<Connection>) {
        let difference = Difference::between(before, connection);
        self.env.effects.log_connection(&connection.name, IMPORTANT, difference.describe(&connection.name));
        let of_it = self.env.table.of_connection(&connection.name).filter(|sa| !sa.is_gone());
        let ids: Vec<IkeSaId> = of_it.map(|sa| sa.id).collect();
        for (place, id) in (0..).zip(ids) {
            let turn = now.plus(self.env.config.replacement_pace.saturating_mul(place));
            self.env.with_sa(now, id, |session| change::follow_on(session, turn, connection, &difference));
        }
    }
}
