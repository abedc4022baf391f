//! Tasks that operators give for SAs on any node, and that the SA's owner does. A task takes its
//! place in the total order. The owner at that place does it, as soon as it speaks for the SA.

use super::Member;
use super::core::Core;
use super::replication::Replication;
use super::shards::Shards;
use crate::alloc::OwnedHomes;
use crate::node::NodeId;
use crate::update::{Answer, Answered, Ask, InitiationOutcome, Op, Sa};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::endpoint::{Homes, IkeSaState, SaNames, Target};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{LogLevel, Time};

/// Pause before an owner that does not speak for an SA yet tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How long it tries.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// Tasks that this node does for operators.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// Tasks to be done once this node speaks for the SA: their deadline, the asking node, and the
    /// next attempt.
    waiting: Vec<Waiting>,
    again: Option<Time>,
}

#[derive(Debug)]
struct Waiting {
    until: Time,
    from: NodeId,
    job: u64,
    ask: Ask,
}

/// Why a task cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// This node is in no quorate view.
    #[error("another node must do this, and there is no quorum to agree on it")]
    NoView,
    /// A node of the view does not support this yet: it must be upgraded first.
    #[error(
        "another node must do this, and a node runs an older version: give the command on the owner itself"
    )]
    OldVersion,
}

impl Asks {
    /// When an owner tries again.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.again.filter(|_| !self.waiting.is_empty())
    }

    /// This node has lost its SAs.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Sa {
    fn shard(self) -> Shard {
        match self {
            Self::Ike(spi) => spi.shard(),
            Self::Child(spi) => spi.shard(),
        }
    }
}

impl Member {
    /// Gives a task to the SA's owner, which may be this node. The end of an initiation comes as
    /// [`MemberOutput::Initiated`].
    pub fn ask(&mut self, now: Time, job: u64, ask: Ask) -> Result<(), AskError> {
        if !self.core.view.running {
            return Err(AskError::NoView);
        }
        if !self.core.has_control_plane() {
            return Err(AskError::OldVersion);
        }
        self.core.publish(vec![Op::Ask { job, ask }]);
        self.pump(now);
        Ok(())
    }
}

impl Asks {
    /// A task has been delivered, given by an operator on node `from`.
    #[expect(clippy::too_many_arguments, reason = "the parts that it touches, and a message field by field")]
    pub(super) fn asked(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        shards: &mut Shards,
        now: Time,
        from: NodeId,
        job: u64,
        ask: Ask,
    ) {
        if core.unheard_of.is_some() {
            return;
        }
        let ask = match ask {
            Ask::Initiate { connection, child } => {
                let owner = core.table.owner(self.initiating_shard(core, replication, &connection));
                (owner == Some(core.node)).then_some(Ask::Initiate { connection, child })
            }
            Ask::Terminate { mut sas, force } => {
                sas.retain(|sa| core.table.owner(sa.shard()) == Some(core.node));
                (!sas.is_empty()).then_some(Ask::Terminate { sas, force })
            }
            Ask::Rekey { mut sas, reauth } => {
                sas.retain(|sa| core.table.owner(sa.shard()) == Some(core.node));
                (!sas.is_empty()).then_some(Ask::Rekey { sas, reauth })
            }
        };
        if let Some(ask) = ask {
            self.waiting.push(Waiting { until: now.plus(ASK_TIMEOUT), from, job, ask });
            self.do_what_is_asked(core, replication, shards, now);
        }
    }

    /// The shard in which a child of the connection is initiated: that of an existing IKE SA, else
    /// the connection's home.
    fn initiating_shard(&self, core: &Core, replication: &Replication, connection: &str) -> Shard {
        let carries = |outline: &testudo_ike::endpoint::Outline| {
            outline.established && outline.connection == connection
        };
        let found = replication.replicas.ikes.iter().find(|(_, ike)| carries(&ike.outline));
        found.map_or_else(|| self.home_shard(core, connection), |(spi, _)| spi.shard())
    }

    /// The home of a connection that nobody has initiated yet.
    pub(super) fn home_shard(&self, core: &Core, connection: &str) -> Shard {
        OwnedHomes { key: core.key, owned: ShardSet::EMPTY }.shard_of(connection)
    }

    /// Does the tasks for SAs that this node speaks for by now.
    pub(super) fn do_what_is_asked(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        shards: &mut Shards,
        now: Time,
    ) {
        if self.waiting.is_empty() {
            return;
        }
        let speaks = shards.ike.without(shards.handover.held());
        for mut waiting in std::mem::take(&mut self.waiting) {
            let can = |shard: Shard| core.may_speak(now) && speaks.contains(shard);
            let ready = match &mut waiting.ask {
                Ask::Initiate { connection, .. } => can(self.initiating_shard(core, replication, connection)),
                Ask::Terminate { sas, .. } | Ask::Rekey { sas, .. } => sas.iter().all(|sa| can(sa.shard())),
            };
            if ready {
                self.do_for(core, replication, shards, now, waiting.from, waiting.job, waiting.ask);
            } else if waiting.until > now {
                self.waiting.push(waiting);
            } else if let Ask::Initiate { connection, child } = waiting.ask {
                let node = core.node;
                let reason = format!("node {node} must initiate this, and does not speak for its shard yet");
                self.not_initiated(core, waiting.from, waiting.job, &connection, &child, reason);
            }
        }
        self.again = Some(now.plus(RETRY_INTERVAL));
    }

    #[expect(clippy::too_many_arguments, reason = "the parts that it touches, and a message field by field")]
    fn do_for(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        shards: &mut Shards,
        now: Time,
        from: NodeId,
        job: u64,
        ask: Ask,
    ) {
        match ask {
            Ask::Initiate { connection, child } => {
                let shard = self.initiating_shard(core, replication, &connection);
                let unread: Vec<IkeSpi> =
                    shards.imports.iter().copied().filter(|spi| spi.shard() == shard).collect();
                unread.into_iter().for_each(|spi| shards.import(core, replication, now, spi));
                let begun = match child.is_empty() {
                    true => core.endpoint.initiate_alone(now, &connection),
                    false => core.endpoint.initiate(now, Some(&connection), &child),
                };
                let is_up = |ike| {
                    let state = || core.endpoint.names_of(ike).map(SaNames::state);
                    child.is_empty() && state() == Some(IkeSaState::Established)
                };
                match begun {
                    Ok(ike) if is_up(ike) => {
                        self.answer(core, from, job, Answered::Initiated(InitiationOutcome::Up));
                    }
                    Ok(ike) => replication.initiations.begun(from, job, ike, child),
                    Err(error) => {
                        self.not_initiated(core, from, job, &connection, &child, error.to_string());
                    }
                }
            }
            Ask::Terminate { sas, force } => {
                for sa in sas {
                    // An SA that is gone needs no termination.
                    let Some(target) = self.target(core, replication, shards, now, sa) else { continue };
                    let _ = core.endpoint.terminate(now, &target, force);
                }
            }
            Ask::Rekey { sas, reauth } => {
                for sa in sas {
                    let Some(target) = self.target(core, replication, shards, now, sa) else { continue };
                    core.endpoint.renew_target(now, &target, reauth);
                }
            }
        }
        replication.turn(core, now);
    }

    /// The number of this node's SA in its endpoint.
    fn target(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        shards: &mut Shards,
        now: Time,
        sa: Sa,
    ) -> Option<Target> {
        let ike = match sa {
            Sa::Ike(spi) => spi,
            Sa::Child(spi) => replication.replicas.child(spi)?.ike,
        };
        if shards.imports.contains(&ike) {
            shards.import(core, replication, now, ike);
        }
        match sa {
            Sa::Ike(spi) => replication.replicas.ikes.get(&spi).map(|ike| Target::Ike(ike.id)),
            Sa::Child(spi) => replication.replicas.child(spi).map(|child| Target::Child(child.id)),
        }
    }

    /// An initiation could not begin. The client at the asking node gets the reason, and so does
    /// this node's log: no other has it.
    fn not_initiated(
        &self,
        core: &mut Core,
        from: NodeId,
        job: u64,
        connection: &str,
        child: &str,
        reason: String,
    ) {
        let what = if child.is_empty() { "the IKE_SA" } else { child };
        let line = format!("cannot initiate {what} for node {from}: {reason}");
        core.log_connection(connection, LogLevel::Warning, line);
        self.answer(core, from, job, Answered::Initiated(InitiationOutcome::Failed { reason }));
    }

    fn answer(&self, core: &mut Core, to: NodeId, job: u64, what: Answered) {
        core.publish(vec![Op::Answer(Answer { to, job, what })]);
    }
}

#[cfg(test)]
mod tests;
