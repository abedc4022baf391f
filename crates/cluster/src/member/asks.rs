//! What operators ask of SAs, on any node: their owner does it. A command takes its place in the total order, and whoever owns the
//! SA there carries it out, once it speaks for it.

use super::{Member, MemberOutput};
use crate::alloc::OwnedHomes;
use crate::node::NodeId;
use crate::shard::ShardSet;
use crate::update::{Answer, Answered, Ask, Op, Sa};
use std::fmt;
use std::time::Duration;
use testudo_ike::endpoint::{Homes, IkeSaState, SaNames, Target};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{Event, IkeSaId, LogLevel, Time};
use testudo_ipsec::spi::Shard;

/// An owner that cannot speak yet for what it has been given tries again, for so long.
const AGAIN: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(10);

/// What this node does for others.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// What is to be done once this node speaks for it: until when, for whom, and when it tries again.
    waiting: Vec<Waiting>,
    again: Option<Time>,
    initiations: Vec<Initiation>,
}

#[derive(Debug)]
struct Waiting {
    until: Time,
    from: NodeId,
    job: u64,
    ask: Ask,
}

/// An initiation for another node.
#[derive(Debug)]
struct Initiation {
    from: NodeId,
    job: u64,
    ike: IkeSaId,
    /// Empty: for the IKE SA alone.
    child: String,
}

/// Why nobody can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// This node is in no quorate view.
    NoView,
    /// A node of the view knows nothing of this yet: it is to be upgraded first.
    OldVersion,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoView => "another node is to do it, and there is no quorum",
            Self::OldVersion => {
                "another node is to do it, and nodes of an older version are in the cluster: ask its owner itself"
            }
        })
    }
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
    /// Asks whoever owns it, this node too. Of an initiation [`MemberOutput::Initiated`] tells the end.
    pub fn ask(&mut self, now: Time, job: u64, ask: Ask) -> Result<(), AskError> {
        if !self.running {
            return Err(AskError::NoView);
        }
        if !self.has_control_plane() {
            return Err(AskError::OldVersion);
        }
        self.publish(vec![Op::Ask { job, ask }]);
        self.pump(now);
        Ok(())
    }

    /// An operator has asked, at that node.
    pub(super) fn asked(&mut self, now: Time, from: NodeId, job: u64, ask: Ask) {
        if self.unheard_of.is_some() {
            return;
        }
        let ask = match ask {
            Ask::Initiate { connection, child } => {
                let owner = self.table.owner(self.initiating_shard(&connection));
                (owner == Some(self.node)).then_some(Ask::Initiate { connection, child })
            }
            Ask::Terminate { mut sas, force } => {
                sas.retain(|sa| self.table.owner(sa.shard()) == Some(self.node));
                (!sas.is_empty()).then_some(Ask::Terminate { sas, force })
            }
            Ask::Rekey { mut sas, reauth } => {
                sas.retain(|sa| self.table.owner(sa.shard()) == Some(self.node));
                (!sas.is_empty()).then_some(Ask::Rekey { sas, reauth })
            }
        };
        if let Some(ask) = ask {
            self.asks.waiting.push(Waiting { until: now.plus(PATIENCE), from, job, ask });
            self.do_what_is_asked(now);
        }
    }

    /// Where a child of the connection is brought up: where there is an IKE SA already, else at its home.
    fn initiating_shard(&self, connection: &str) -> Shard {
        let carries = |outline: &testudo_ike::endpoint::Outline| {
            outline.established && outline.connection == connection
        };
        let found = self.replicas.ikes.iter().find(|(_, ike)| carries(&ike.outline));
        found.map_or_else(|| self.home_shard(connection), |(spi, _)| spi.shard())
    }

    /// The home of a connection that nobody has initiated yet.
    pub(super) fn home_shard(&self, connection: &str) -> Shard {
        OwnedHomes { key: self.key, owned: ShardSet::EMPTY }.shard_of(connection)
    }

    /// Does what this node speaks for by now.
    pub(super) fn do_what_is_asked(&mut self, now: Time) {
        if self.asks.waiting.is_empty() {
            return;
        }
        let speaks = self.ike.without(self.handover.held());
        for mut waiting in std::mem::take(&mut self.asks.waiting) {
            let can = |shard: Shard| self.may_speak(now) && speaks.contains(shard);
            let ready = match &mut waiting.ask {
                Ask::Initiate { connection, .. } => can(self.initiating_shard(connection)),
                Ask::Terminate { sas, .. } | Ask::Rekey { sas, .. } => sas.iter().all(|sa| can(sa.shard())),
            };
            if ready {
                self.do_for(now, waiting.from, waiting.job, waiting.ask);
            } else if waiting.until > now {
                self.asks.waiting.push(waiting);
            } else if let Ask::Initiate { .. } = waiting.ask {
                let node = self.node;
                let why = format!("node {node} is to initiate it, and cannot speak for its shard yet");
                self.answer(waiting.from, waiting.job, Answered::Initiated(Err(why)));
            }
        }
        self.asks.again = Some(now.plus(AGAIN));
    }

    fn do_for(&mut self, now: Time, from: NodeId, job: u64, ask: Ask) {
        match ask {
            Ask::Initiate { connection, child } => {
                let shard = self.initiating_shard(&connection);
                let unread: Vec<IkeSpi> =
                    self.imports.iter().copied().filter(|spi| spi.shard() == shard).collect();
                unread.into_iter().for_each(|spi| self.import(now, spi));
                let begun = match child.is_empty() {
                    true => self.endpoint.initiate_alone(now, &connection),
                    false => self.endpoint.initiate(now, Some(&connection), &child),
                };
                let is_up = |ike| {
                    let state = || self.endpoint.names_of(ike).map(SaNames::state);
                    child.is_empty() && state() == Some(IkeSaState::Established)
                };
                match begun {
                    Ok(ike) if is_up(ike) => self.answer(from, job, Answered::Initiated(Ok(()))),
                    Ok(ike) => self.asks.initiations.push(Initiation { from, job, ike, child }),
                    Err(error) => self.answer(from, job, Answered::Initiated(Err(error.to_string()))),
                }
            }
            Ask::Terminate { sas, force } => {
                for sa in sas {
                    // One that has gone meanwhile needs no termination.
                    let Some(target) = self.target(now, sa) else { continue };
                    let _ = self.endpoint.terminate(now, &target, force);
                }
            }
            Ask::Rekey { sas, reauth } => {
                for sa in sas {
                    let Some(target) = self.target(now, sa) else { continue };
                    self.endpoint.renew_target(now, &target, reauth);
                }
            }
        }
        self.turn(now);
    }

    /// An SA of this node in its endpoint.
    fn target(&mut self, now: Time, sa: Sa) -> Option<Target> {
        let ike = match sa {
            Sa::Ike(spi) => spi,
            Sa::Child(spi) => self.replicas.child(spi)?.ike,
        };
        if self.imports.contains(&ike) {
            self.import(now, ike);
        }
        match sa {
            Sa::Ike(spi) => self.replicas.ikes.get(&spi).map(|ike| Target::Ike(ike.id)),
            Sa::Child(spi) => self.replicas.child(spi).map(|child| Target::Child(child.id)),
        }
    }

    fn answer(&mut self, to: NodeId, job: u64, what: Answered) {
        self.publish(vec![Op::Answer(Answer { to, job, what })]);
    }

    /// What has happened may be what another node waits for.
    pub(super) fn tell_who_asked(&mut self, event: &Event, ops: &mut Vec<Op>) {
        let initiations = &mut self.asks.initiations;
        match event {
            Event::Log { ike: Some(ike), connection, level, message } if *level <= LogLevel::Info => {
                let waits = initiations.iter().filter(|initiation| initiation.ike == *ike);
                ops.extend(waits.map(|Initiation { from, job, .. }| {
                    let (level, message, connection) = (level.charon(), message.clone(), connection.clone());
                    let what = Answered::Line { connection, level, message };
                    Op::Answer(Answer { to: *from, job: *job, what })
                }));
            }
            // Whoever waits for the IKE SA alone.
            Event::IkeUp(ike) => ops.extend(ended(initiations, *ike, "", &Ok(()))),
            Event::IkeDown(ike, reason) => {
                ops.extend(ended(initiations, *ike, "", &Err(reason.to_string())));
            }
            Event::InitiateMoved { from, to, child } => {
                let moved = initiations.iter_mut().filter(|i| i.ike == *from && i.child == *child);
                moved.for_each(|initiation| initiation.ike = *to);
            }
            Event::InitiateDone { ike, child, result } => {
                let result = result.as_ref().map(drop).map_err(ToString::to_string);
                ops.extend(ended(initiations, *ike, child, &result));
            }
            _ => {}
        }
    }

    /// An owner answers.
    pub(super) fn answered(&mut self, Answer { to, job, what }: Answer) {
        if to == self.node {
            self.outputs.push_back(match what {
                Answered::Line { connection, level, message } => {
                    MemberOutput::Line { job, connection, level, message }
                }
                Answered::Initiated(result) => MemberOutput::Initiated { job, result },
            });
        }
    }
}

/// The answers to all who wait for that child of an IKE SA, or, without a name, for the IKE SA
/// alone.
fn ended(
    initiations: &mut Vec<Initiation>,
    ike: IkeSaId,
    child: &str,
    result: &Result<(), String>,
) -> Vec<Op> {
    let done = initiations.extract_if(.., |i| i.ike == ike && i.child == child);
    let answer = |Initiation { from, job, .. }| {
        Op::Answer(Answer { to: from, job, what: Answered::Initiated(result.clone()) })
    };
    done.map(answer).collect()
}
