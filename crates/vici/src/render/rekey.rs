//! `ike-rekey` and `child-rekey`: the old SA and its successor.

use super::sa::{child_name, child_sa, ike_sa, named};
use crate::message::Message;
use crate::view::ChildUsage;
use testudo_ike::endpoint::{ChildSaStatus, IkeSaStatus};
use testudo_ike::output::{ChildSaId, Time};

/// The event for an IKE SA that has replaced another.
pub fn ike_rekey(old: &IkeSaStatus, new: &IkeSaStatus, now: Time) -> Message {
    named(old, Message::new().with_section("old", ike_sa(old, now)).with_section("new", ike_sa(new, now)))
}

/// The event for a Child SA of `sa` that has replaced another.
pub fn child_rekey(
    sa: &IkeSaStatus,
    old: &ChildSaStatus,
    new: &ChildSaStatus,
    now: Time,
    usage: &dyn Fn(ChildSaId) -> ChildUsage,
) -> Message {
    let both = Message::new()
        .with_section("old", child_sa(old, now, usage(old.id)))
        .with_section("new", child_sa(new, now, usage(new.id)));
    let children = Message::new().with_section(&child_name(old), both);
    named(sa, ike_sa(sa, now).with_section("child-sas", children))
}
