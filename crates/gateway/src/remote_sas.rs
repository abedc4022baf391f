//! Commands about SAs that another node of the cluster owns. That node carries them out.

use crate::error::Result;
use crate::gateway::Gateway;
use crate::ike::Ike;
use testudo_cluster::member::{Ask, Class, Effect, PieceName, Sa};
use testudo_ike::endpoint::Terminating;
use testudo_vici::control::{ConfigChange, ConfigItem, ConfigItemKind, JobId, Selection};

/// SAs of other nodes: as their owners know them, and by their numbers here.
#[derive(Default)]
pub(crate) struct RemoteSas {
    pub(crate) sas: Vec<Sa>,
    pub(crate) numbers: Terminating,
}

impl Gateway {
    /// The SAs of other nodes that match every given field.
    pub(crate) fn matching_remote_sas(&self, wanted: &Selection) -> RemoteSas {
        let mut found = RemoteSas::default();
        let Ike::Member(member) = &self.endpoint else { return found };
        if wanted.is_of_children() {
            for (ike, connection, id, name, sa) in member.remote_children() {
                if wanted.takes_ike(ike, Some(connection)) && wanted.takes_child(id, name) {
                    found.sas.push(sa);
                    found.numbers.children.push(id);
                }
            }
        } else {
            for (id, connection, sa) in member.remote_ikes() {
                if wanted.takes_ike(id, Some(connection)) {
                    found.sas.push(sa);
                    found.numbers.ikes.push(id);
                }
            }
        }
        found
    }

    /// The connection of the child, if another node is to bring it up.
    pub(crate) fn initiated_remotely(&self, connection: Option<&str>, child: &str) -> Option<String> {
        let Ike::Member(member) = &self.endpoint else { return None };
        let connection = self.endpoint.replication().connection_to_initiate(connection, child)?;
        member.is_remote(&connection).then_some(connection)
    }

    /// Asks the other nodes.
    pub(crate) fn ask(&mut self, job: JobId, ask: Ask) -> Result<()> {
        let now = self.now;
        let Some(member) = self.endpoint.member() else { return Ok(()) };
        member.ask(now, job.0, ask)?;
        self.settle();
        Ok(())
    }

    /// Notes that this node refuses a part of the cluster's configuration.
    pub(crate) fn refused(&mut self, effect: &Effect, why: String) {
        if let Effect::Set(name) = effect {
            self.in_cluster(|member, now| member.refused(now, name, why));
        }
    }
}

/// The change as the other nodes are told of it.
pub(crate) fn effect(change: ConfigChange) -> Effect {
    match change {
        ConfigChange::Set(item) => Effect::Set(piece_name(item)),
        ConfigChange::Unset(item) => Effect::Unset(piece_name(item)),
        ConfigChange::ClearCredentials => Effect::ClearCredentials,
        ConfigChange::Replace { item, of } => Effect::Replace { name: piece_name(item), of },
    }
}

/// An item as the cluster names it.
pub(crate) fn piece_name(ConfigItem { kind, name }: ConfigItem) -> PieceName {
    let class = match kind {
        ConfigItemKind::Authority => Class::Authority,
        ConfigItemKind::Credential => Class::Credential,
        ConfigItemKind::Pool => Class::Pool,
        ConfigItemKind::Connection => Class::Connection,
    };
    PieceName { class, name }
}
