//! Detection of nodes that are configured differently: every node publishes a digest of all its
//! pieces, and if these differ, the digest of each piece.

use super::Configuration;
use crate::member::core::Core;
use crate::node::NodeId;
use crate::update::{Manifest, Op, PieceName};
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_ike::output::Time;

/// A change is published after this time without another one: very many pieces may be loaded one
/// after the other.
const MANIFEST_DELAY: Duration = Duration::from_millis(200);
/// Digests that still differ after this time really differ; before it one node may just have
/// published earlier.
const DIFFERENCE_DELAY: Duration = Duration::from_secs(1);
/// Bound on the differences that are shown.
const MAX_DIFFERENCES_SHOWN: usize = 20;
/// Bound on the pieces whose digests are published one by one.
const MAX_DIGESTS_TOLD: usize = 10_000;

/// The digests that nodes have published in this view.
#[derive(Default)]
pub(super) struct Manifests {
    /// The digest that this node last published, and whether it included that of each piece.
    own: Option<(u64, bool)>,
    of: BTreeMap<NodeId, Manifest>,
    /// When to publish a change, and when to check whether digests still differ.
    due: Option<Time>,
    look: Option<Time>,
}

/// How a piece differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Only the other node has it.
    ThereOnly,
    /// Only this node has it.
    HereOnly,
    /// Both have it with different contents, or one of them refuses it.
    Other,
}

/// A piece of configuration that differs between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The other node.
    pub node: NodeId,
    /// How it differs.
    pub found: Found,
    /// The piece.
    pub name: PieceName,
}

/// The state of the configuration, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationStatus {
    /// True if a piece that is loaded on one node is loaded on all.
    pub replicates: bool,
    /// True if this node is in a view, and knows the others' pieces.
    pub is_current: bool,
    /// How many pieces this node has.
    pub pieces: usize,
    /// Some of the pieces that differ.
    pub differences: Vec<Difference>,
    /// Nodes whose digest differs.
    pub differ: Vec<NodeId>,
    /// Pieces that this node refuses, and the reasons.
    pub refused: Vec<(PieceName, String)>,
}

impl Configuration {
    /// The configuration has changed.
    pub(in crate::member) fn configuration_changed(&mut self, now: Time) {
        self.told.due = Some(now.plus(MANIFEST_DELAY));
    }

    /// A view begins: the digests of the last one are void.
    pub(in crate::member) fn begin_manifests(&mut self, core: &Core, now: Time) {
        let told = &mut self.told;
        let members = &core.view.members;
        told.of.retain(|node, _| members.contains(node));
        (told.own, told.look) = (None, None);
        let concerns = !self.pieces.is_empty() || !told.of.is_empty();
        told.due = concerns.then(|| now.plus(MANIFEST_DELAY));
    }

    fn digests(&self) -> impl Iterator<Item = (&PieceName, u64)> {
        self.pieces.iter().map(|(name, piece)| match piece.refused {
            None => (name, piece.digest),
            Some(_) => (name, !piece.digest),
        })
    }

    /// The digest of all pieces.
    pub(in crate::member) fn configuration_digest(&self) -> Option<u64> {
        self.replicates.then(|| self.whole())
    }

    /// The digest of all pieces, independent of their order.
    fn whole(&self) -> u64 {
        let key = self.key;
        let one = |(name, digest): (&PieceName, u64)| {
            let mut octets = name.name.clone().into_bytes();
            octets.extend(digest.to_le_bytes());
            key.hash(&octets)
        };
        self.digests().map(one).fold(0, |whole, one| whole ^ one)
    }

    fn may_tell_manifest(&self, core: &Core) -> bool {
        core.view.running && core.has_control_plane() && self.hearing.is_none()
    }

    /// Publishes this node's digests, if that is due.
    pub(in crate::member) fn tell_manifest(&mut self, core: &mut Core, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if !self.may_tell_manifest(core) {
            return;
        }
        let (due, look) = (self.told.due, self.told.look);
        if !is_due(due) && !is_due(look) {
            return;
        }
        let whole = self.whole();
        let told = &mut self.told;
        if is_due(due) {
            told.due = None;
            if told.own.is_none_or(|(own, _)| own != whole) {
                told.own = Some((whole, false));
                told.look = Some(now.plus(DIFFERENCE_DELAY));
                core.publish(vec![Op::Manifest(Manifest { whole, pieces: None })]);
            }
        }
        let told = &mut self.told;
        if is_due(look) && told.due.is_none() {
            told.look = None;
            let differs = told.of.values().any(|manifest| manifest.whole != whole);
            if differs && told.own != Some((whole, true)) {
                told.own = Some((whole, true));
                let pieces =
                    self.digests().take(MAX_DIGESTS_TOLD).map(|(name, digest)| (name.clone(), digest));
                let pieces = Some(pieces.collect());
                core.publish(vec![Op::Manifest(Manifest { whole, pieces })]);
            }
        }
    }

    /// When [`Self::tell_manifest`] has something to do.
    pub(in crate::member) fn next_manifest(&self, core: &Core) -> Option<Time> {
        let told = &self.told;
        let look = told.look.filter(|_| told.due.is_none());
        [told.due, look].into_iter().flatten().min().filter(|_| self.may_tell_manifest(core))
    }

    /// A node has published its digests.
    pub(in crate::member) fn manifest_told(
        &mut self,
        core: &Core,
        now: Time,
        from: NodeId,
        manifest: Manifest,
    ) {
        if from == core.node {
            return;
        }
        let told = &mut self.told;
        told.of.insert(from, manifest);
        told.look = Some(now.plus(DIFFERENCE_DELAY));
        if told.own.is_none() {
            told.due.get_or_insert(now.plus(MANIFEST_DELAY));
        }
    }

    /// The state for `testudo cluster`.
    pub(in crate::member) fn configuration_status(&self, core: &Core) -> ConfigurationStatus {
        let whole = self.whole();
        let differ = self.told.of.iter().filter(|(_, manifest)| manifest.whole != whole);
        let refused = |(name, piece): (&PieceName, &super::ConfigPiece)| {
            piece.refused.as_ref().map(|reason| (name.clone(), reason.clone()))
        };
        ConfigurationStatus {
            replicates: self.replicates,
            is_current: core.view.running && core.unheard_of.is_none() && self.hearing.is_none(),
            pieces: self.pieces.len(),
            differences: differ
                .clone()
                .flat_map(|(node, told)| self.differences(*node, told))
                .take(MAX_DIFFERENCES_SHOWN)
                .collect(),
            differ: differ.map(|(node, _)| *node).collect(),
            refused: self.pieces.iter().filter_map(refused).collect(),
        }
    }

    fn differences(&self, node: NodeId, told: &Manifest) -> Vec<Difference> {
        let Some(pieces) = &told.pieces else { return Vec::new() };
        let there: BTreeMap<&PieceName, u64> = pieces.iter().map(|(name, digest)| (name, *digest)).collect();
        let here: BTreeMap<&PieceName, u64> = self.digests().collect();
        let names = here.keys().chain(there.keys().filter(|name| !here.contains_key(*name)));
        let found = names.filter_map(|name| match (here.get(name), there.get(name)) {
            (Some(here), Some(there)) => (here != there).then_some((name, Found::Other)),
            (Some(_), None) => Some((name, Found::HereOnly)),
            (None, _) => Some((name, Found::ThereOnly)),
        });
        found
            .map(|(name, found)| Difference { node, found, name: (*name).clone() })
            .take(MAX_DIFFERENCES_SHOWN)
            .collect()
    }
}
