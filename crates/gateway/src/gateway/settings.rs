//! Changes by an operator while the gateway runs: traps, bypass and discard policies, and the part
//! of `testudo.toml` that can change.

use super::Gateway;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ike::Ike;
use crate::remote_sas::piece_name;
use testudo_ike::config::Connection;
use testudo_ike::endpoint::Endpoint;
use testudo_ike::output::LogLevel;
use testudo_vici::control::{ConfigItem, LoadedBy, SetPolicy};
use zeroize::Zeroizing;

impl Gateway {
    /// On a node of a cluster: the command that has loaded the connection of that policy.
    pub(crate) fn command_of_cluster(&self, request: &SetPolicy) -> Result<Option<LoadedBy>> {
        let Ike::Member(member) = &self.endpoint else { return Ok(None) };
        let SetPolicy { child, ike, install } = request;
        let name = self.connection_of(child, ike.as_deref(), *install)?.name;
        let last = member.last_command(&piece_name(ConfigItem::connection(&name)));
        let last = last.ok_or(Error::UnknownConnection(name))?;
        Ok(Some(LoadedBy { command: Zeroizing::new(last.octets.to_vec()), digest: last.digest }))
    }

    /// `swanctl --install` and `--uninstall`, of a gateway that stands alone.
    pub(crate) fn set_child_policy(&mut self, request: &SetPolicy) -> Result<()> {
        let SetPolicy { child, ike, install } = request;
        let connection = self.connection_of(child, ike.as_deref(), *install)?;
        let mut changed = connection.clone();
        for found in changed.children.iter_mut().filter(|found| found.name == *child) {
            found.start_action = found.start_action.with_trap(*install);
        }
        Endpoint::check_connection(&changed)?;
        self.endpoint.set_trap(&connection.name, child, *install);
        self.policies_follow(&connection.name);
        let applied = self.apply_policies();
        if applied.is_err() {
            let before = connection.children.iter().any(|c| c.name == *child && c.start_action.traps());
            self.endpoint.set_trap(&connection.name, child, before);
            self.policies_follow(&connection.name);
        } else {
            let done = if *install { "installed" } else { "uninstalled" };
            let line = format!("{done} the policy of child {child}");
            self.log(None, Some(connection.name.clone()), LogLevel::Notice, line);
        }
        self.settle();
        applied
    }

    /// The connection that is meant. To uninstall, it is the first one whose policy is installed.
    fn connection_of(&self, child: &str, ike: Option<&str>, install: bool) -> Result<Connection> {
        let named = self.endpoint.connections().filter(|c| ike.is_none_or(|ike| c.name == ike));
        let mut with_child = named.filter(|c| c.children.iter().any(|found| found.name == child)).peekable();
        if with_child.peek().is_none() {
            let connection = ike.map(str::to_owned);
            return Err(Error::UnknownChild { child: child.to_owned(), connection });
        }
        let is_trapped = |connection: &&Connection| self.endpoint.is_trapped(&connection.name, child);
        let found = if install { with_child.next() } else { with_child.find(is_trapped) };
        found.cloned().ok_or_else(|| Error::NotInstalled(child.to_owned()))
    }

    /// `swanctl --reload-settings`.
    pub(crate) fn read_settings_again(&mut self) -> Result<()> {
        let Some(before) = &self.settings else { return Err(Error::Starting) };
        let after = Config::load(&before.file)?;
        let fixed = before.fixed_differences(&after);
        let followed = if before.ike == after.ike { "has not changed" } else { "holds from now on" };
        let file = after.file.display();
        let line =
            format!("read {file} again: [ike] {followed}; connections are loaded by swanctl --load-all");
        let waits =
            format!("{file}: changes of {} take effect only when testudod is restarted", fixed.join(", "));
        self.endpoint.reconfigure(|settings| after.ike.apply(settings));
        // Changes that wait for a restart are compared with the running settings next time, too.
        if let Some(settings) = &mut self.settings {
            settings.ike = after.ike;
        }
        self.log(None, None, LogLevel::Notice, line);
        if !fixed.is_empty() {
            self.log(None, None, LogLevel::Warning, waits);
        }
        self.settle();
        Ok(())
    }
}
