//! A Child SA replaces another one that has other selectors, because the configuration of their
//! child has changed. Traffic that both carry must never be without an SA, and nothing may leave in
//! clear.
//!
//! The new SA's policy is in the SPD from the start, and the old SA's until outbound traffic
//! switches over: until then both policies lead to the old SA. Before that, the configured children
//! are the new ones already, and the old SA stands in for them where its selectors allow.

use super::table::PolicyEntry;
use super::{Action, Policies, SelectorPair};
use std::collections::{BTreeMap, BTreeSet};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::{PolicyId, Rank};

/// A place in the SPD from which traffic goes through an old Child SA until the child that holds it
/// back has its own.
#[derive(Debug)]
pub(super) struct StandIn {
    pub(super) rank: Rank,
    pub(super) selectors: SelectorPair,
}

/// The places of Child SAs that stand in.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    /// By the policy of the old SA, with the connection for whose children it stands in.
    places: BTreeMap<PolicyId, (String, Vec<StandIn>)>,
    by_connection: BTreeMap<String, BTreeSet<PolicyId>>,
}

impl StandIns {
    fn insert(&mut self, id: PolicyId, connection: &str, places: Vec<StandIn>) {
        self.by_connection.entry(connection.to_owned()).or_default().insert(id);
        self.places.insert(id, (connection.to_owned(), places));
    }

    fn remove(&mut self, id: PolicyId) -> Vec<StandIn> {
        let Some((connection, places)) = self.places.remove(&id) else { return Vec::new() };
        if let Some(ids) = self.by_connection.get_mut(&connection) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
        places
    }

    fn of_connection(&self, connection: &str) -> Vec<PolicyId> {
        self.by_connection.get(connection).into_iter().flatten().copied().collect()
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = (PolicyId, &StandIn)> {
        self.places.iter().flat_map(|(id, (_, places))| places.iter().map(|place| (*id, place)))
    }
}

impl Policies {
    /// Outbound traffic switches from one Child SA to another: the old one's policy must not be in
    /// the way of the new one's. `is_current`: the new one was made by the present configuration.
    pub(crate) fn switch(&mut self, from: ChildSaId, to: ChildSaId, is_current: bool) {
        let Some(new) = self.installed.get(&to).copied() else { return };
        let old = self.installed.get(&from).copied().filter(|old| *old != new);
        self.put_up(new);
        if let Some(old) = old {
            self.put_down(old);
        } else if is_current && let Some(entry) = self.table.get_mut(new) {
            entry.seen = self.loaded;
            self.leave_places(new);
        }
    }

    /// A connection has changed, and its children's SAs will be replaced. Until then the `outdated`
    /// SAs stand in for the children, as far as their selectors allow. Otherwise a child that comes
    /// before such an SA, because its selectors are narrower now, would drop what the SA could
    /// carry.
    pub(crate) fn stand_in(&mut self, connection: &str, outdated: &[ChildSaId]) {
        for sa in outdated {
            let Some(id) = self.installed.get(sa).copied() else { continue };
            let is_around = self.table.get(id).is_some_and(|entry| entry.is_around);
            if is_around || self.resting.contains(&id) || self.stand_ins.places.contains_key(&id) {
                continue;
            }
            let places = self.places_for(connection, id);
            let claim = self.table.get(id).and_then(|entry| self.claim(entry));
            for StandIn { rank, selectors } in &places {
                self.insert(*rank, selectors, Action::Protect(id), claim);
            }
            if !places.is_empty() {
                self.stand_ins.insert(id, connection, places);
            }
        }
    }

    /// The places right before each child of the connection that comes before the SA now, and did
    /// not when the SA was made.
    fn places_for(&self, connection: &str, sa: PolicyId) -> Vec<StandIn> {
        let Some(sa) = self.table.get(sa) else { return Vec::new() };
        let children = self.of_connection(connection);
        let before = children
            .iter()
            .filter_map(|id| self.table.get(*id))
            .filter(|child| child.mode.is_negotiated() && child.rank.priority < sa.rank.priority)
            .filter(|child| child.since() > sa.seen && !child.is_around);
        let place = |(part, child): (u32, &PolicyEntry)| {
            let selectors = common(&child.selectors, &sa.selectors)?;
            let free = self.free_part(Rank { priority: child.rank.priority, place: sa.rank.place, part: 0 });
            let rank = Rank { part: free.part.saturating_add(part), ..free };
            Some(StandIn { rank, selectors })
        };
        (0..).zip(before).filter_map(place).collect()
    }

    /// The Child SA of a policy stands in no more.
    pub(super) fn leave_places(&mut self, sa: PolicyId) {
        for StandIn { rank, selectors } in self.stand_ins.remove(sa) {
            self.withdraw(rank, &selectors);
        }
    }

    /// The children of a connection change: no SA stands in for them any more.
    pub(super) fn stand_back(&mut self, connection: &str) {
        self.stand_ins.of_connection(connection).into_iter().for_each(|sa| self.leave_places(sa));
    }
}

/// The traffic that two pairs have in common. `None` if no packet can match both.
fn common(a: &SelectorPair, b: &SelectorPair) -> Option<SelectorPair> {
    let side = |a: Vec<TrafficSelector>, b: Vec<TrafficSelector>| -> Vec<TrafficSelector> {
        a.iter().flat_map(|one| b.iter().filter_map(|other| one.intersection(other))).collect()
    };
    let local = side(a.local_selectors().collect(), b.local_selectors().collect());
    let remote = side(a.remote_selectors().collect(), b.remote_selectors().collect());
    (!local.is_empty() && !remote.is_empty()).then(|| SelectorPair::new(&local, &remote))
}

#[cfg(test)]
mod tests;
