//! The routing rule that leads to the guard's table.

use super::connection::Connection;
use super::error::{NetlinkError, Result};
use super::guard::{GuardConfig, PROTOCOL};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Makes the rule `not fwmark MARK lookup TABLE`, and removes our rules that differ.
pub(super) fn install(
    connection: &mut Connection,
    family: AddressFamily,
    config: &GuardConfig,
) -> Result<()> {
    let wanted = rule(family, config);
    let found = at_priority(connection, family, config.priority)?;
    if found.iter().any(|r| !is_ours(r)) {
        return Err(NetlinkError::ForeignRule { priority: config.priority, family: name(family) });
    }
    if !found.iter().any(|r| same(r, &wanted)) {
        let operation = || format!("cannot make the {} routing rule {}", name(family), config.priority);
        let request = RouteNetlinkMessage::NewRule(wanted.clone());
        connection.request(operation, request, NLM_F_CREATE | NLM_F_EXCL)?;
    }
    found.into_iter().filter(|r| !same(r, &wanted)).try_for_each(|r| delete(connection, r, config.priority))
}

/// Removes our rules.
pub(super) fn remove(connection: &mut Connection, family: AddressFamily, config: &GuardConfig) -> Result<()> {
    let found = at_priority(connection, family, config.priority)?;
    found.into_iter().filter(is_ours).try_for_each(|r| delete(connection, r, config.priority))
}

fn rule(family: AddressFamily, config: &GuardConfig) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.header.flags = RuleFlags::Invert;
    message.header.table = u8::try_from(config.table).unwrap_or(0);
    message.attributes = vec![
        RuleAttribute::Priority(config.priority),
        RuleAttribute::FwMark(config.mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(config.table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    message
}

/// True if both rules have the same effect; the kernel adds attributes of its own.
fn same(found: &RuleMessage, wanted: &RuleMessage) -> bool {
    let flags = |m: &RuleMessage| m.header.flags & RuleFlags::Invert;
    flags(found) == flags(wanted)
        && found.header.action == wanted.header.action
        && wanted.attributes.iter().all(|a| found.attributes.contains(a))
}

fn is_ours(message: &RuleMessage) -> bool {
    message.attributes.contains(&RuleAttribute::Protocol(PROTOCOL))
}

fn at_priority(
    connection: &mut Connection,
    family: AddressFamily,
    priority: u32,
) -> Result<Vec<RuleMessage>> {
    let mut message = RuleMessage::default();
    message.header.family = family;
    let request = RouteNetlinkMessage::GetRule(message);
    connection.dump("cannot list the routing rules", &request, |rules: &mut Vec<RuleMessage>, object| {
        if let RouteNetlinkMessage::NewRule(message) = object
            && message.header.family == family
            && message.attributes.contains(&RuleAttribute::Priority(priority))
        {
            rules.push(message);
        }
    })
}

fn delete(connection: &mut Connection, mut message: RuleMessage, priority: u32) -> Result<()> {
    // The attributes that identify a rule. The kernel does not accept the rest of its answer back.
    message.header.flags &= RuleFlags::Invert;
    message.attributes.retain(|a| {
        matches!(
            a,
            RuleAttribute::Priority(_)
                | RuleAttribute::FwMark(_)
                | RuleAttribute::FwMask(_)
                | RuleAttribute::Table(_)
                | RuleAttribute::Protocol(_)
        )
    });
    let operation = || format!("cannot remove the routing rule {priority}");
    connection.request(operation, RouteNetlinkMessage::DelRule(message), 0)
}

fn name(family: AddressFamily) -> &'static str {
    if family == AddressFamily::Inet { "IPv4" } else { "IPv6" }
}
