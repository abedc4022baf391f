//! The configuration of the cluster. An operator gives a piece to any node, and all nodes get it.
//! It takes its place in the total order; of two pieces for one name the later stays, on every node
//! alike. The host interprets the contents of a piece; here it is a name and octets.
//!
//! A node that joins receives the pieces of the others and adopts them. Pieces that it loaded
//! before (the files that are read at its start) go to the others only if they have none of that
//! name; otherwise theirs stays.

mod differences;
mod telling;

pub use differences::{ConfigurationStatus, Difference, Found};

use super::core::Core;
use super::{Member, MemberOutput};
use crate::group::Ticket;
use crate::hkdf::Hkdf;
use crate::node::NodeId;
use crate::update::{Class, Configure, Effect, Op, PieceName, REPLACEMENTS, Secret};
use differences::Manifests;
use std::collections::{BTreeMap, BTreeSet};
use telling::Hearing;
use testudo_base::siphash::SipKey;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};
use zeroize::Zeroizing;

/// A piece of configuration.
struct ConfigPiece {
    octets: Secret,
    digest: u64,
    /// Not all nodes have it: it was loaded while there was no view.
    is_untold: bool,
    /// Why this node's host refused it.
    refused: Option<String>,
}

/// A command of this node that has not been delivered yet.
struct UnderWay {
    /// The number of changes that the host had been asked for before.
    asked: u64,
    effect: Effect,
    octets: Secret,
}

/// The last command that set a piece.
pub struct LastCommand<'a> {
    /// The command.
    pub octets: &'a [u8],
    /// Its digest, for [`Effect::Replace`].
    pub digest: u64,
}

/// All pieces.
pub(super) struct Configuration {
    /// True if all nodes are to have the same configuration.
    replicates: bool,
    key: SipKey,
    pieces: BTreeMap<PieceName, ConfigPiece>,
    /// Removals made while there was no view.
    untold: Vec<(Effect, Secret)>,
    /// True if there may be untold pieces, so that a turn need not search all of them.
    may_be_untold: bool,
    /// What a fresh node has received so far; `None` once it knows the others' pieces.
    hearing: Option<Hearing>,
    /// By job, and so in the order in which the host carried them out.
    under_way: BTreeMap<u64, UnderWay>,
    asked: u64,
    /// The update with the last of this node's own pieces.
    said: Option<Ticket>,
    told: Manifests,
}

impl Configuration {
    pub(super) fn new(cluster_key: &[u8; 32], replicates: bool) -> Self {
        Self {
            replicates,
            key: SipKey::new(*Hkdf::extract(b"testudo cluster configuration 1", cluster_key).expand(&[])),
            pieces: BTreeMap::new(),
            untold: Vec::new(),
            may_be_untold: false,
            hearing: None,
            under_way: BTreeMap::new(),
            asked: 0,
            said: None,
            told: Manifests::default(),
        }
    }

    fn set(&mut self, name: PieceName, octets: Secret, is_untold: bool) {
        let digest = self.key.hash(octets.octets());
        self.pieces.insert(name, ConfigPiece { octets, digest, is_untold, refused: None });
    }

    fn has(&self, name: &PieceName, octets: &[u8]) -> bool {
        let digest = self.key.hash(octets);
        self.pieces.get(name).is_some_and(|piece| piece.digest == digest && piece.refused.is_none())
    }

    fn change(&mut self, effect: &Effect, octets: Secret, is_untold: bool) {
        match effect {
            Effect::Set(name) | Effect::Replace { name, .. } => self.set(name.clone(), octets, is_untold),
            Effect::Unset(name) => drop(self.pieces.remove(name)),
            Effect::ClearCredentials => self.pieces.retain(|name, _| name.class != Class::Credential),
        }
    }

    /// Changes the configuration without a view, and so without others to inform.
    fn change_alone(&mut self, effect: Effect, octets: Secret) {
        self.change(&effect, octets.clone(), true);
        self.may_be_untold = true;
        if !matches!(effect, Effect::Set(_)) && self.replicates {
            self.untold.push((effect, octets));
        }
    }

    /// True if this node is as the command wants it, or will be.
    fn is_done(&self, effect: &Effect, octets: &[u8]) -> bool {
        match effect {
            Effect::Set(name) | Effect::Replace { name, .. } => self.has(name, octets),
            Effect::Unset(name) => !self.pieces.contains_key(name),
            Effect::ClearCredentials => self.pieces.keys().all(|name| name.class != Class::Credential),
        }
    }

    /// True if the command would change nothing that all nodes have.
    fn is_known(&self, effect: &Effect, octets: &[u8]) -> bool {
        let is_untold = |name: &PieceName| self.pieces.get(name).is_some_and(|piece| piece.is_untold);
        let told = !matches!(effect, Effect::Set(name) | Effect::Replace { name, .. } if is_untold(name));
        told && self.untold.is_empty() && self.under_way.is_empty() && self.is_done(effect, octets)
    }
}

impl Member {
    /// The command by which a piece of the configuration is here, if it is. It may be one that was
    /// carried out here and has not been delivered yet.
    pub fn last_command(&self, name: &PieceName) -> Option<LastCommand<'_>> {
        self.configuration.last_command(name)
    }

    /// The host has carried out a command that changes its configuration. Returns true if the other
    /// nodes will be informed; [`MemberOutput::Configured`] with `job` (not 0) says when they know.
    /// Returns false if there is no view, or nothing changes.
    pub fn configure(&mut self, now: Time, job: u64, effect: Effect, octets: Zeroizing<Vec<u8>>) -> bool {
        let told = self.configuration.carried_out(&mut self.core, now, job, effect, octets);
        if told {
            self.pump(now);
        }
        told
    }
}

impl Configuration {
    /// See [`Member::last_command`].
    fn last_command(&self, name: &PieceName) -> Option<LastCommand<'_>> {
        for UnderWay { effect, octets, .. } in self.under_way.values().rev() {
            let octets = octets.octets();
            match effect {
                Effect::Set(found) | Effect::Replace { name: found, .. } if found == name => {
                    return Some(LastCommand { octets, digest: self.key.hash(octets) });
                }
                Effect::Unset(found) if found == name => return None,
                Effect::ClearCredentials if name.class == Class::Credential => return None,
                _ => {}
            }
        }
        let piece = self.pieces.get(name)?;
        Some(LastCommand { octets: piece.octets.octets(), digest: piece.digest })
    }

    /// See [`Member::configure`].
    fn carried_out(
        &mut self,
        core: &mut Core,
        now: Time,
        job: u64,
        effect: Effect,
        octets: Zeroizing<Vec<u8>>,
    ) -> bool {
        if self.is_known(&effect, &octets) {
            return false;
        }
        let octets = Secret::new(octets);
        if !core.view.running || !self.replicates_configuration(core) {
            self.change_alone(effect, octets);
            self.configuration_changed(now);
            return false;
        }
        let effect = match effect {
            Effect::Replace { name, .. } if core.view.version < REPLACEMENTS => Effect::Set(name),
            effect => effect,
        };
        let under_way = UnderWay { asked: self.asked, effect: effect.clone(), octets: octets.clone() };
        self.under_way.insert(job, under_way);
        core.publish(vec![Op::Configure(Box::new(Configure { job, effect, octets }))]);
        true
    }

    /// The host could not do what [`MemberOutput::Configure`] asked for.
    pub(in crate::member) fn refused(&mut self, now: Time, name: &PieceName, reason: String) {
        if let Some(piece) = self.pieces.get_mut(name) {
            piece.refused = Some(reason);
            self.configuration_changed(now);
        }
    }

    /// True if all nodes have the same configuration, or should.
    pub(in crate::member) fn replicates_configuration(&self, core: &Core) -> bool {
        self.replicates && core.has_control_plane()
    }

    /// A view begins.
    pub(in crate::member) fn begin_configuration(
        &mut self,
        core: &Core,
        now: Time,
        is_fresh: bool,
        is_reset: bool,
    ) {
        let replicates = self.replicates_configuration(core);
        self.hearing = (is_fresh && replicates).then(Hearing::default);
        self.said = None;
        if is_fresh {
            // Commands published from a state that is void do not come back.
            self.under_way.clear();
            self.untold.clear();
        }
        if is_reset {
            self.pieces.values_mut().for_each(|piece| piece.is_untold = true);
        }
        self.may_be_untold = true;
        self.begin_manifests(core, now);
    }

    /// An operator's command has been delivered. `is_joining`: a node of the view is being brought
    /// up to date.
    pub(in crate::member) fn configured(
        &mut self,
        core: &mut Core,
        now: Time,
        from: NodeId,
        mut configure: Configure,
        is_joining: bool,
    ) {
        if let Effect::Replace { name, of } = configure.effect {
            if is_joining || self.is_outdated(&name, of) {
                return self.outdated(core, from, configure.job, name);
            }
            configure.effect = Effect::Set(name);
        }
        self.carry_out(core, now, from, configure);
    }

    /// True if a replacement of the command with this digest comes too late. All nodes agree,
    /// except about a piece that one of them has not told the others: that node publishes the piece
    /// later, and so sets it on all.
    fn is_outdated(&self, name: &PieceName, of: u64) -> bool {
        !self.pieces.get(name).is_some_and(|piece| piece.digest == of && !piece.is_untold)
    }

    /// A replacement has come too late, or while a node is joining: that node may have received the
    /// piece from a later time than that of the replacement, and would not judge as the others do.
    /// The node on which it was carried out goes back to what all have.
    fn outdated(&mut self, core: &mut Core, from: NodeId, job: u64, name: PieceName) {
        if from != core.node || self.under_way.remove(&job).is_none() {
            return;
        }
        core.outputs.push_back(MemberOutput::Outdated { job });
        let what = &name.name;
        let line = format!(
            "undoing a change of {what}: another node has loaded it meanwhile, or a node was joining"
        );
        core.log(LogLevel::Notice, line);
        // If the piece is gone, the host has been asked to remove it since.
        let Some(piece) = self.pieces.get(&name) else { return };
        self.asked += 1;
        let octets = Zeroizing::new(piece.octets.octets().to_vec());
        let effect = Effect::Set(name);
        core.outputs.push_back(MemberOutput::Configure { from, effect, octets });
    }

    /// Carries out a command in its place in the order.
    fn carry_out(&mut self, core: &mut Core, now: Time, from: NodeId, configure: Configure) {
        if let Some(hearing) = &mut self.hearing {
            return hearing.later.push((from, configure));
        }
        let Configure { job, effect, octets } = configure;
        let own = (from == core.node).then(|| self.under_way.remove(&job)).flatten();
        let own = own.map(|command| command.asked);
        // The command was carried out when it was given and nothing was changed since, or there is
        // nothing to do.
        let is_done = own == Some(self.asked) || own.is_none() && self.is_done(&effect, octets.octets());
        if self.replicates {
            if !is_done {
                self.asked += 1;
                let octets = Zeroizing::new(octets.octets().to_vec());
                core.outputs.push_back(MemberOutput::Configure { from, effect: effect.clone(), octets });
            }
            self.change(&effect, octets, false);
            self.configuration_changed(now);
        }
        if own.is_some() {
            core.outputs.push_back(MemberOutput::Configured { job });
        }
    }

    /// A fresh node has received all pieces.
    pub(in crate::member) fn pieces_told(&mut self, core: &mut Core, now: Time, epoch: u64) {
        if epoch != core.view.epoch {
            return;
        }
        let Some(Hearing { pieces, later }) = self.hearing.take() else { return };
        let told: BTreeSet<&PieceName> = pieces.keys().collect();
        let given_up = |(name, piece): (&PieceName, &ConfigPiece)| {
            (!piece.is_untold && !told.contains(name)).then(|| name.clone())
        };
        let gone: Vec<PieceName> = self.pieces.iter().filter_map(given_up).collect();
        for name in gone {
            let Some(piece) = self.pieces.remove(&name) else { continue };
            self.asked += 1;
            let octets = Zeroizing::new(piece.octets.octets().to_vec());
            core.outputs.push_back(MemberOutput::Unconfigure { name, octets });
        }
        for (name, octets) in pieces {
            self.adopt(core, name, octets);
        }
        self.configuration_changed(now);
        for (from, configure) in later.into_iter().filter(|_| !planted(Plant::CommandsMissed)) {
            self.carry_out(core, now, from, configure);
        }
    }

    /// Adopts a piece as the others have it.
    fn adopt(&mut self, core: &mut Core, name: PieceName, octets: Secret) {
        if self.has(&name, octets.octets()) {
            if let Some(piece) = self.pieces.get_mut(&name) {
                piece.is_untold = false;
            }
            return;
        }
        if self.pieces.get(&name).is_some_and(|piece| piece.is_untold) {
            let what = &name.name;
            core.log(
                LogLevel::Warning,
                format!("{what} differs from the cluster's copy; keeping the cluster's"),
            );
        }
        let copy = Zeroizing::new(octets.octets().to_vec());
        let effect = Effect::Set(name.clone());
        self.set(name, octets, false);
        self.asked += 1;
        core.outputs.push_back(MemberOutput::Configure { from: core.node, effect, octets: copy });
    }
}

#[cfg(test)]
mod tests;
