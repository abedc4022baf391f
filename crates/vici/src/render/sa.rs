//! IKE SAs and their Child SAs: `list-sa`, `ike-updown`, `child-updown`.

use super::{split_events, text};
use crate::message::Message;
use crate::view::{ChildUsage, Usage};
use testudo_ike::config::Identity;
use testudo_ike::endpoint::{AlgorithmName, ChildSaStatus, IkeSaState, IkeSaStatus};
use testudo_ike::output::{ChildSaId, Time};
use testudo_ipsec::sa::Mode;

/// charon's name for an IKE SA whose connection is not known yet.
const UNNAMED: &str = "(unnamed)";

/// The events for one IKE SA: one, or several if its Child SAs do not fit. `node` is the node of a
/// cluster that has it.
pub fn list_sa(
    sa: &IkeSaStatus,
    node: Option<u32>,
    now: Time,
    usage: &dyn Fn(ChildSaId) -> ChildUsage,
) -> Vec<Message> {
    let children = sa.children.iter().map(|child| (child_name(child), child_sa(child, now, usage(child.id))));
    split_events(children, |children| {
        let mut content = ike_sa(sa, now);
        if let Some(node) = node {
            content.add_text("node", node);
        }
        named(sa, content.with_section("child-sas", children))
    })
}

/// The event for an IKE SA that came up or went down.
pub fn ike_updown(up: bool, sa: &IkeSaStatus, now: Time) -> Message {
    updown(up, named(sa, ike_sa(sa, now)))
}

/// The event for a Child SA that came up or went down.
pub fn child_updown(
    up: bool,
    sa: &IkeSaStatus,
    child: &ChildSaStatus,
    now: Time,
    usage: &dyn Fn(ChildSaId) -> ChildUsage,
) -> Message {
    let children = Message::new().with_section(&child_name(child), child_sa(child, now, usage(child.id)));
    updown(up, named(sa, ike_sa(sa, now).with_section("child-sas", children)))
}

fn updown(up: bool, sa: Message) -> Message {
    let mut message = if up { Message::new().with("up", "yes") } else { Message::new() };
    for element in sa.into_elements() {
        message.push(element);
    }
    message
}

pub(super) fn named(sa: &IkeSaStatus, content: Message) -> Message {
    Message::new().with_section(sa.connection.as_deref().unwrap_or(UNNAMED), content)
}

pub(super) fn child_name(child: &ChildSaStatus) -> String {
    format!("{}-{}", child.name, child.id.0)
}

pub(super) fn ike_sa(sa: &IkeSaStatus, now: Time) -> Message {
    let mut message = Message::new();
    message.add_text("uniqueid", sa.id.0);
    message.add("version", "2");
    message.add("state", sa.state.as_str());
    message.add_text("local-host", sa.local.ip());
    message.add_text("local-port", sa.local.port());
    message.add("local-id", peer_identity(sa.local_id.as_ref()));
    message.add_text("remote-host", sa.remote.ip());
    message.add_text("remote-port", sa.remote.port());
    message.add("remote-id", peer_identity(sa.remote_id.as_ref()));
    add_flag(&mut message, "initiator", sa.initiator);
    message.add_text("initiator-spi", sa.spi_i);
    message.add_text("responder-spi", sa.spi_r);
    add_flag(&mut message, "nat-local", sa.nat.local);
    add_flag(&mut message, "nat-remote", sa.nat.remote);
    add_flag(&mut message, "nat-fake", sa.nat.fake);
    add_flag(&mut message, "nat-any", sa.nat.any());
    add_algorithm(&mut message, "encr", sa.encryption);
    add_algorithm(&mut message, "integ", sa.integrity);
    if let Some(prf) = sa.prf {
        message.add("prf-alg", prf.name);
    }
    add_key_exchanges(&mut message, sa.ke, &sa.additional_ke);
    add_flag(&mut message, "ppk", sa.ppk);
    if let Some(established) = sa.established.filter(|_| sa.state == IkeSaState::Established) {
        message.add_text("established", seconds_since(established, now));
        if let Some(rekey) = sa.rekey {
            message.add_text("rekey-time", seconds_until(rekey, now));
        }
        if let Some(reauth) = sa.reauth {
            message.add_text("reauth-time", seconds_until(reauth, now));
        }
    }
    for (key, addrs) in [("local-vips", &sa.local_vips), ("remote-vips", &sa.remote_vips)] {
        if !addrs.is_empty() {
            message.add_list(key, addrs.iter().map(ToString::to_string));
        }
    }
    for (key, tasks) in [("tasks-queued", &sa.tasks_queued), ("tasks-active", &sa.tasks_active)] {
        if !tasks.is_empty() {
            message.add_list(key, tasks.iter().copied());
        }
    }
    message
}

/// charon shows an identity that is not known yet as `%any`.
fn peer_identity(identity: Option<&Identity>) -> String {
    identity.map_or_else(|| "%any".to_owned(), text::identity)
}

pub(super) fn child_sa(child: &ChildSaStatus, now: Time, usage: ChildUsage) -> Message {
    let mut message = Message::new();
    message.add("name", child.name.as_str());
    message.add_text("uniqueid", child.id.0);
    message.add_text("reqid", child.reqid);
    message.add("state", child.state.as_str());
    message.add("mode", mode(child.mode));
    message.add("protocol", if child.ah { "AH" } else { "ESP" });
    add_flag(&mut message, "encap", child.encap);
    message.add_text("spi-in", child.spi_in);
    message.add_text("spi-out", child.spi_out);
    add_algorithm(&mut message, "encr", child.encryption);
    add_algorithm(&mut message, "integ", child.integrity);
    add_key_exchanges(&mut message, child.ke, &child.additional_ke);
    if child.esn {
        message.add("esn", "1");
    }
    add_usage(&mut message, "in", usage.inbound);
    add_usage(&mut message, "out", usage.outbound);
    for (key, at) in [("rekey-time", child.rekey), ("life-time", child.end)] {
        if let Some(at) = at {
            message.add_text(key, seconds_until(at, now));
        }
    }
    message.add_text("install-time", seconds_since(child.installed, now));
    add_flag(&mut message, "per-cpu-sas", child.per_cpu);
    if let Some(worker) = child.worker {
        message.add_text("cpu", worker);
    }
    message.add_list("local-ts", child.local_ts.iter().map(text::selector));
    message.add_list("remote-ts", child.remote_ts.iter().map(text::selector));
    message
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tunnel => "TUNNEL",
        Mode::Transport => "TRANSPORT",
    }
}

fn add_flag(message: &mut Message, key: &str, set: bool) {
    if set {
        message.add(key, "yes");
    }
}

fn add_algorithm(message: &mut Message, kind: &str, algorithm: Option<AlgorithmName>) {
    let Some(algorithm) = algorithm else { return };
    message.add(&format!("{kind}-alg"), algorithm.name);
    if let Some(bits) = algorithm.keysize {
        message.add_text(&format!("{kind}-keysize"), bits);
    }
}

/// Adds the additional key exchanges with strongSwan 6's keys.
fn add_key_exchanges(message: &mut Message, first: Option<AlgorithmName>, more: &[Option<AlgorithmName>]) {
    if let Some(method) = first {
        message.add("dh-group", method.name);
    }
    for (number, method) in (1..).zip(more) {
        if let Some(method) = method {
            message.add(&format!("ake{number}"), method.name);
        }
    }
}

fn add_usage(message: &mut Message, direction: &str, usage: Usage) {
    message.add_text(&format!("bytes-{direction}"), usage.bytes);
    message.add_text(&format!("packets-{direction}"), usage.packets);
    if let Some(idle) = usage.idle {
        message.add_text(&format!("use-{direction}"), idle.as_secs());
    }
}

/// Seconds until `then`; negative if it is in the past, as in charon.
fn seconds_until(then: Time, now: Time) -> i64 {
    let whole = |span: std::time::Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    whole(then.since(now)) - whole(now.since(then))
}

fn seconds_since(then: Time, now: Time) -> u64 {
    now.0.saturating_sub(then.0).as_secs()
}
