//! The shared keys, and the selection of one for a pair of identities.

use crate::config::{Identity, SecretKind, SharedSecret};
use crate::message::IdPayload;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// All shared keys. They are found without a walk through all: a gateway may have one for each
/// peer.
#[derive(Debug, Default)]
pub struct Secrets {
    /// By the unique name that VICI gives them.
    by_name: BTreeMap<String, SharedSecret>,
    /// Names of pre-shared keys of IKE, by each owner.
    owned: NamesBy<Identity>,
    /// Names of those that have only this owner.
    sole: NamesBy<Identity>,
    /// Of those without owners.
    anybodys: BTreeSet<String>,
    /// Names of post-quantum pre-shared keys, by each owner in its encoded form.
    ppks: NamesBy<Vec<u8>>,
    /// Of those without owners.
    anybodys_ppks: BTreeSet<String>,
}

/// What loading a secret has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nothing: it was loaded before.
    Known,
    /// The secret of this name was another one.
    Replaced,
    /// There was none of this name, or it was for something else.
    New,
}

type NamesBy<T> = BTreeMap<T, BTreeSet<String>>;

impl Secrets {
    /// Loads a secret in place of one of the same name.
    pub(crate) fn load(&mut self, secret: SharedSecret) -> Load {
        let before = self.take(&secret.name);
        let load = match before {
            Some(before) if before == secret => Load::Known,
            Some(before) if before.kind == secret.kind && before.secret != secret.secret => Load::Replaced,
            Some(_) | None => Load::New,
        };
        self.index(&secret, |names, name| {
            names.insert(name.to_owned());
        });
        self.by_name.insert(secret.name.clone(), secret);
        load
    }

    /// Unloads a shared key. Returns false if there is none of this name.
    pub fn unload(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    fn take(&mut self, name: &str) -> Option<SharedSecret> {
        let secret = self.by_name.remove(name)?;
        self.index(&secret, |names, name| {
            names.remove(name);
        });
        Some(secret)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Changes every list to which the secret belongs.
    fn index(&mut self, secret: &SharedSecret, change: impl Fn(&mut BTreeSet<String>, &str)) {
        let change = |names: &mut BTreeSet<String>| change(names, &secret.name);
        match (secret.kind, secret.owners.is_empty()) {
            (SecretKind::Ike, true) => change(&mut self.anybodys),
            (SecretKind::Ike, false) => {
                let owners: BTreeSet<Identity> = secret.owners.iter().map(Identity::canonical).collect();
                if let (1, Some(owner)) = (owners.len(), owners.first()) {
                    change_at(&mut self.sole, owner.clone(), change);
                }
                for owner in owners {
                    change_at(&mut self.owned, owner, change);
                }
            }
            (SecretKind::Ppk, true) => change(&mut self.anybodys_ppks),
            (SecretKind::Ppk, false) => {
                for owner in &secret.owners {
                    change_at(&mut self.ppks, IdPayload::from(owner).data().to_vec(), change);
                }
            }
        }
    }

    /// True if there is any pre-shared key of IKE.
    pub(crate) fn has_ike(&self) -> bool {
        !self.owned.is_empty() || !self.anybodys.is_empty()
    }

    /// True if there is any post-quantum pre-shared key.
    pub(crate) fn has_ppk(&self) -> bool {
        !self.ppks.is_empty() || !self.anybodys_ppks.is_empty()
    }

    /// The post-quantum pre-shared key with this name on the wire; one without owners matches any
    /// name.
    pub(crate) fn ppk(&self, id: &[u8]) -> Option<&SharedSecret> {
        self.first(self.ppks.get(id)).or_else(|| self.first(Some(&self.anybodys_ppks)))
    }

    fn first(&self, names: Option<&BTreeSet<String>>) -> Option<&SharedSecret> {
        names.and_then(BTreeSet::first).and_then(|name| self.by_name.get(name))
    }

    /// The best matching secret; among equals the first by name. Owners with both ends are best,
    /// then the peer, then only us, then no owners. A secret that is owned by us and others must
    /// name the peer too: otherwise one of the others could use any name.
    pub(crate) fn find(&self, local: Option<&Identity>, remote: Option<&Identity>) -> Option<&SharedSecret> {
        let local = local.map(Identity::canonical);
        let peers = remote.and_then(|remote| self.owned.get(&remote.canonical()));
        let ours = local.as_ref().and_then(|local| self.owned.get(local));
        // The peer has few secrets, unless it has one with each of us.
        let both = peers.zip(ours).and_then(|(peers, ours)| {
            let (few, many) = if peers.len() < ours.len() { (peers, ours) } else { (ours, peers) };
            few.iter().find(|name| many.contains(*name))
        });
        // Before the peer has sent its identity, any secret of ours may be the one.
        let ours_alone = match remote {
            None => ours,
            Some(_) => local.as_ref().and_then(|local| self.sole.get(local)),
        };
        both.and_then(|name| self.by_name.get(name))
            .or_else(|| self.first(peers))
            .or_else(|| self.first(ours_alone))
            .or_else(|| self.first(Some(&self.anybodys)))
    }
}

/// Changes the list of this key, and removes it if it is empty.
fn change_at<T: Ord>(lists: &mut NamesBy<T>, key: T, change: impl Fn(&mut BTreeSet<String>)) {
    match lists.entry(key) {
        Entry::Vacant(entry) => {
            let mut names = BTreeSet::new();
            change(&mut names);
            if !names.is_empty() {
                entry.insert(names);
            }
        }
        Entry::Occupied(mut entry) => {
            change(entry.get_mut());
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How well a secret matches.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Fit {
        Anybody,
        Local,
        Remote,
        Both,
    }

    fn fit(secret: &SharedSecret, local: Option<&Identity>, remote: Option<&Identity>) -> Option<Fit> {
        if secret.owners.is_empty() {
            return Some(Fit::Anybody);
        }
        let owns = |end: Option<&Identity>| end.is_some_and(|id| secret.owners.iter().any(|o| o.matches(id)));
        let is_us = |owner: &Identity| local.is_some_and(|id| owner.matches(id));
        match (owns(local), owns(remote)) {
            (true, true) => Some(Fit::Both),
            (false, true) => Some(Fit::Remote),
            (true, false) if remote.is_none() || secret.owners.iter().all(is_us) => Some(Fit::Local),
            _ => None,
        }
    }

    fn party() -> impl Strategy<Value = Identity> {
        prop::sample::select(vec!["moon", "Moon", "sun", "venus", "earth"]).prop_map(id)
    }

    fn loaded() -> impl Strategy<Value = SharedSecret> {
        let kind = prop::sample::select(vec![SecretKind::Ike, SecretKind::Ike, SecretKind::Ppk]);
        (0_u8..8, kind, proptest::collection::vec(party(), 0..4)).prop_map(|(number, kind, owners)| {
            SharedSecret { name: number.to_string(), kind, owners, secret: b"key".to_vec() }
        })
    }

    proptest! {
        /// Compared with a walk through all secrets.
        #[test]
        fn the_best_is_found(
            list in proptest::collection::vec((loaded(), any::<bool>()), 0..16),
            local in proptest::option::of(party()),
            remote in proptest::option::of(party()),
        ) {
            let mut secrets = Secrets::default();
            let mut model: BTreeMap<String, SharedSecret> = BTreeMap::new();
            for (secret, stays) in list {
                model.insert(secret.name.clone(), secret.clone());
                secrets.load(secret.clone());
                if !stays {
                    model.remove(&secret.name);
                    prop_assert!(secrets.unload(&secret.name));
                }
            }
            let of_kind = |kind| model.values().filter(move |secret| secret.kind == kind);
            let mut best: Option<(Fit, &SharedSecret)> = None;
            for secret in of_kind(SecretKind::Ike) {
                if let Some(fit) = fit(secret, local.as_ref(), remote.as_ref())
                    && best.is_none_or(|(other, _)| fit > other)
                {
                    best = Some((fit, secret));
                }
            }
            let found = secrets.find(local.as_ref(), remote.as_ref());
            prop_assert_eq!(found, best.map(|(_, secret)| secret));
            prop_assert_eq!(secrets.has_ppk(), of_kind(SecretKind::Ppk).next().is_some());
            let named = |secret: &&SharedSecret| secret.owners.iter().any(|o| IdPayload::from(o).data() == b"sun");
            let ppk = of_kind(SecretKind::Ppk).find(named);
            let ppk = ppk.or_else(|| of_kind(SecretKind::Ppk).find(|secret| secret.owners.is_empty()));
            prop_assert_eq!(secrets.ppk(b"sun"), ppk);
            if model.is_empty() {
                prop_assert!(secrets.owned.is_empty() && secrets.sole.is_empty() && secrets.ppks.is_empty());
            }
        }
    }

    fn id(name: &str) -> Identity {
        Identity::Fqdn(name.into())
    }

    fn secrets(list: &[(&str, &[&str])]) -> Secrets {
        let mut secrets = Secrets::default();
        for (name, owners) in list {
            let owners = owners.iter().map(|o| id(o)).collect();
            secrets.load(SharedSecret {
                name: (*name).into(),
                kind: SecretKind::Ike,
                owners,
                secret: b"key".to_vec(),
            });
        }
        secrets
    }

    fn found<'a>(secrets: &'a Secrets, local: &str, remote: &str) -> Option<&'a str> {
        secrets.find(Some(&id(local)), Some(&id(remote))).map(|s| s.name.as_str())
    }

    #[test]
    fn the_most_specific_owner_list_wins() {
        let all =
            secrets(&[("any", &[]), ("moon", &["moon"]), ("pair", &["moon", "sun"]), ("sun", &["sun"])]);
        assert_eq!(found(&all, "moon", "sun"), Some("pair"));
        assert_eq!(found(&all, "earth", "sun"), Some("pair"), "named first among equals");
        assert_eq!(found(&all, "moon", "venus"), Some("moon"));
        assert_eq!(found(&all, "earth", "venus"), Some("any"));
    }

    #[test]
    fn an_owner_of_a_shared_secret_cannot_take_another_name() {
        let pair = secrets(&[("pair", &["moon", "sun"])]);
        assert_eq!(found(&pair, "moon", "sun"), Some("pair"));
        assert_eq!(found(&pair, "moon", "venus"), None);
        assert!(pair.find(Some(&id("moon")), None).is_some(), "before the peer has said who it is");
    }
}
