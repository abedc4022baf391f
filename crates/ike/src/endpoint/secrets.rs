//! The shared keys, and which of them belongs to a pair of identities.

use crate::config::{Identity, SecretKind, SharedSecret};
use crate::message::IdPayload;
use std::collections::BTreeMap;

/// Shared keys by the unique name that VICI gives them.
#[derive(Debug, Default)]
pub(crate) struct Secrets(BTreeMap<String, SharedSecret>);

/// How well a secret fits: owners that name both ends beat those that name one, and those beat a secret without owners.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Anybody,
    Local,
    Remote,
    Both,
}

impl Secrets {
    /// Adds a secret, in the place of one of the same name.
    pub(crate) fn load(&mut self, secret: SharedSecret) {
        self.0.insert(secret.name.clone(), secret);
    }

    /// False if there is none of that name.
    pub(crate) fn unload(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// True if there is any post-quantum pre-shared key.
    pub(crate) fn has_ppk(&self) -> bool {
        self.ppks().next().is_some()
    }

    /// The post-quantum pre-shared key of that name on the wire; one without owners has any name.
    pub(crate) fn ppk(&self, id: &[u8]) -> Option<&SharedSecret> {
        let named =
            |secret: &&SharedSecret| secret.owners.iter().any(|owner| IdPayload::from(owner).data() == id);
        self.ppks().find(named).or_else(|| self.ppks().find(|secret| secret.owners.is_empty()))
    }

    fn ppks(&self) -> impl Iterator<Item = &SharedSecret> {
        self.0.values().filter(|secret| secret.kind == SecretKind::Ppk)
    }

    /// The secret that fits best; among equals the first by name.
    pub(crate) fn find(&self, local: Option<&Identity>, remote: Option<&Identity>) -> Option<&SharedSecret> {
        let mut best: Option<(Fit, &SharedSecret)> = None;
        for secret in self.0.values().filter(|secret| secret.kind == SecretKind::Ike) {
            if let Some(fit) = fit(secret, local, remote)
                && best.is_none_or(|(other, _)| fit > other)
            {
                best = Some((fit, secret));
            }
        }
        best.map(|(_, secret)| secret)
    }
}

/// A secret owned by us and others must name the peer too: else one of the others could call itself anything.
fn fit(secret: &SharedSecret, local: Option<&Identity>, remote: Option<&Identity>) -> Option<Fit> {
    if secret.owners.is_empty() {
        return Some(Fit::Anybody);
    }
    let owns =
        |end: Option<&Identity>| end.is_some_and(|id| secret.owners.iter().any(|owner| owner.matches(id)));
    match (owns(local), owns(remote)) {
        (true, true) => Some(Fit::Both),
        (false, true) => Some(Fit::Remote),
        (true, false)
            if remote.is_none()
                || secret.owners.iter().all(|owner| local.is_some_and(|id| owner.matches(id))) =>
        {
            Some(Fit::Local)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
