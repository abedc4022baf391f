//! What a changed connection asks of the SAs that were made by it as it was, field by field.
//!
//! Three classes: what an SA was negotiated by, which only another SA can have; deadlines that are
//! ours alone, which change at once; and what is looked up when it is needed, which changes by
//! itself. Each type is taken apart to the last field, so that no new one can be forgotten.

use super::{Child, ChildLifetime, Connection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the IKE SAs of a changed connection need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IkeChange {
    /// Nothing: they are as the connection wants them.
    #[default]
    None,
    /// New keys, negotiated by the new proposals (RFC 7296 §1.3.2).
    Rekey,
    /// Another IKE SA, set up from scratch: what differs is agreed on in IKE_SA_INIT or IKE_AUTH
    /// and nowhere else.
    Reauthenticate,
}

/// What the Child SAs of one child need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// Nothing.
    None,
    /// Other deadlines.
    Retime,
    /// New keys: what differs is not negotiated, and the next Child SA has it.
    Rekey,
    /// Another Child SA in their place, negotiated by what is configured now.
    Replace,
    /// The child is no longer there, or is none that has SAs.
    Remove,
    /// It was not there before, or was none that has SAs.
    Add,
}

/// What a connection needs that takes the place of another of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// For its IKE SAs.
    pub ike: IkeChange,
    /// The keys that make it so, as in `swanctl.conf`.
    pub keys: Vec<&'static str>,
    /// The deadlines of its IKE SAs are others.
    pub retime: bool,
    /// For its children with SAs, by name, those that are gone included.
    pub children: BTreeMap<String, ChildChange>,
}

impl Difference {
    /// Between a connection and the one that takes its place.
    pub fn between(old: &Connection, new: &Connection) -> Self {
        let Connection {
            name: _,
            local_addrs,
            remote_addrs,
            names,
            local_port,
            remote_port,
            proposals,
            encap,
            fragmentation,
            // Taken over at once.
            dpd_delay: _,
            // Looked up when a peer is next authenticated, or another try or IKE SA is judged.
            send_cert: _,
            send_certreq: _,
            keyingtries: _,
            childless: _,
            unique: _,
            ppk,
            vips,
            vips_within,
            pools,
            lifetime,
            local,
            remote,
            rounds,
            children: _,
        } = old;
        let anew = [
            ("local_addrs", (local_addrs, &names.local) != (&new.local_addrs, &new.names.local)),
            ("remote_addrs", (remote_addrs, &names.remote) != (&new.remote_addrs, &new.names.remote)),
            ("local_port", *local_port != new.local_port),
            ("remote_port", *remote_port != new.remote_port),
            ("encap", *encap != new.encap),
            ("fragmentation", *fragmentation != new.fragmentation),
            ("ppk_id, ppk_required", *ppk != new.ppk),
            ("vips", *vips != new.vips),
            ("vips_within", *vips_within != new.vips_within),
            ("pools", *pools != new.pools),
            ("local", *local != new.local),
            ("remote", *remote != new.remote),
            ("further rounds of local and remote", *rounds != new.rounds),
        ];
        let mut keys: Vec<&'static str> =
            anew.iter().filter(|(_, differs)| *differs).map(|(key, _)| *key).collect();
        let mut ike = if keys.is_empty() { IkeChange::None } else { IkeChange::Reauthenticate };
        if *proposals != new.proposals {
            keys.push("proposals");
            ike = ike.max(IkeChange::Rekey);
        }
        Self { ike, keys, retime: *lifetime != new.lifetime, children: children(old, new) }
    }

    /// For the log: what becomes of the SAs of the connection of that name.
    pub(crate) fn describe(&self, connection: &str) -> String {
        let keys = self.keys.join(", ");
        let ike = match self.ike {
            IkeChange::None => None,
            IkeChange::Rekey => Some(format!("IKE_SAs rekeyed because of {keys}")),
            IkeChange::Reauthenticate => Some(format!("IKE_SAs set up anew because of {keys}")),
        };
        let anew = self.ike == IkeChange::Reauthenticate;
        let kept = if anew { "made anew with them" } else { "kept" };
        let named = [
            (ChildChange::Replace, "replaced"),
            (ChildChange::Rekey, if anew { kept } else { "rekeyed" }),
            (ChildChange::Remove, "removed"),
            (ChildChange::Add, "added"),
            (ChildChange::Retime, if anew { kept } else { "kept with other times" }),
            (ChildChange::None, kept),
        ];
        let children = named.into_iter().filter_map(|(change, verb)| {
            let names: Vec<&str> = self.children_to(change).collect();
            (!names.is_empty()).then(|| format!("{} {verb}", names.join(", ")))
        });
        let children: Vec<String> = children.collect();
        let children = (!children.is_empty()).then(|| format!("children {}", children.join(", ")));
        let said: Vec<String> = ike.into_iter().chain(children).collect();
        let said = if said.is_empty() { "no SA is touched".to_owned() } else { said.join("; ") };
        format!("connection {connection} changed: {said}")
    }

    /// The children of that change.
    pub fn children_to(&self, wanted: ChildChange) -> impl Iterator<Item = &str> {
        self.children.iter().filter(move |(_, change)| **change == wanted).map(|(name, _)| name.as_str())
    }
}

fn children(old: &Connection, new: &Connection) -> BTreeMap<String, ChildChange> {
    let names = old.children.iter().chain(&new.children).map(|child| &child.name);
    let of = |connection: &Connection, name: &str| {
        connection.child(name).filter(|child| child.mode.is_negotiated()).cloned()
    };
    let change = |name: &String| match (of(old, name), of(new, name)) {
        (Some(old), Some(new)) => Some(between(&old, &new)),
        (Some(_), None) => Some(ChildChange::Remove),
        (None, Some(_)) => Some(ChildChange::Add),
        // Without SAs a child is a policy and no more.
        (None, None) => None,
    };
    names.filter_map(|name| Some((name.clone(), change(name)?))).collect()
}

/// Of two children that have SAs.
fn between(old: &Child, new: &Child) -> ChildChange {
    let Child {
        name: _,
        local_ts,
        remote_ts,
        proposals,
        mode,
        // Looked up when the occasion is there.
        start_action: _,
        dpd_action: _,
        close_action: _,
        lifetime: ChildLifetime { time, bytes, packets },
        replay_window,
        copy,
        priority,
        // Of SAs that are made later. What a script has set up the same script takes down.
        reqid: _,
        updown: _,
    } = old;
    let agreed = *local_ts == new.local_ts
        && *remote_ts == new.remote_ts
        && *proposals == new.proposals
        && *mode == new.mode
        // Not agreed on, but the order of policies, which a rekeyed SA takes over.
        && *priority == new.priority;
    let ours = *replay_window == new.replay_window
        && *copy == new.copy
        // What an SA has carried before the limits changed would count against them.
        && *bytes == new.lifetime.bytes
        && *packets == new.lifetime.packets;
    match (agreed, ours) {
        (false, _) => ChildChange::Replace,
        (true, false) => ChildChange::Rekey,
        (true, true) if *time != new.lifetime.time => ChildChange::Retime,
        (true, true) => ChildChange::None,
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
