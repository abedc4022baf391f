//! The effect of a changed connection on its SAs, field by field.
//!
//! There are three classes: what was negotiated, which only another SA can have; our own deadlines,
//! which change at once; and what is looked up when it is needed, which changes by itself. Each
//! type is destructured to the last field, so that no new field can be forgotten.

use super::{Child, ChildLifetime, Connection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the IKE SAs of a changed connection need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IkeChange {
    /// Nothing: they match the connection.
    #[default]
    None,
    /// New keys, negotiated by the new proposals (RFC 7296 §1.3.2).
    Rekey,
    /// A new IKE SA: the difference is negotiated in IKE_SA_INIT or IKE_AUTH and nowhere else.
    Reauthenticate,
}

/// What the Child SAs of one child need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// Nothing.
    None,
    /// Other deadlines.
    Retime,
    /// New keys: the difference is not negotiated, and the next Child SA has it.
    Rekey,
    /// Another Child SA in their place, negotiated by the new configuration.
    Replace,
    /// The child does not exist any more, or has no SAs any more.
    Remove,
    /// The child is new, or had no SAs before.
    Add,
}

/// The difference between a connection and its replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What its IKE SAs need.
    pub ike: IkeChange,
    /// The keys with a difference, as in `swanctl.conf`.
    pub keys: Vec<&'static str>,
    /// True if the deadlines of its IKE SAs differ.
    pub retime: bool,
    /// What its children with SAs need, by name, including those that are gone.
    pub children: BTreeMap<String, ChildChange>,
}

impl Difference {
    /// Compares a connection and its replacement.
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
            // Effective at once.
            dpd_delay: _,
            // Looked up at the next authentication, attempt or IKE SA.
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

    /// For the log: the effect on the SAs of the connection.
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

    /// The children that need this change.
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
        // Without SAs a child is only a policy.
        (None, None) => None,
    };
    names.filter_map(|name| Some((name.clone(), change(name)?))).collect()
}

/// Compares two children with SAs.
fn between(old: &Child, new: &Child) -> ChildChange {
    let Child {
        name: _,
        local_ts,
        remote_ts,
        proposals,
        mode,
        // Looked up when needed.
        start_action: _,
        dpd_action: _,
        close_action: _,
        lifetime: ChildLifetime { time, bytes, packets },
        replay_window,
        copy,
        priority,
        per_cpu_sas,
        // For SAs made later. A script that has set something up also removes it.
        reqid: _,
        updown: _,
        // The host sets it for the SAs that there are.
        mss: _,
        icmp: _,
    } = old;
    let agreed = *local_ts == new.local_ts
        && *remote_ts == new.remote_ts
        && *proposals == new.proposals
        && *mode == new.mode
        && *per_cpu_sas == new.per_cpu_sas
        // Not negotiated, but the order of policies, which a rekeyed SA takes over.
        && *priority == new.priority;
    let ours = *replay_window == new.replay_window
        && *copy == new.copy
        // What an SA carried before the limits changed would count against them.
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
mod tests;
