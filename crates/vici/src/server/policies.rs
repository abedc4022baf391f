//! `install` and `uninstall` on a node of a cluster. All nodes have one configuration, and such a
//! policy is a part of it: the node loads the connection with another `start_action`, and tells the
//! others as if an operator had loaded it so.

use super::commands;
use super::replication::{read, section_name};
use crate::control::Control;
use crate::error::CommandError;
use crate::message::{Element, Message};
use crate::session::Request;
use testudo_ike::config::StartAction;

const KEY: &str = "start_action";

/// The command that a node of a cluster carries out in the place of this one. `None`: this one
/// itself. The error is what the client is told.
pub(super) fn replaced(request: &Request, control: &dyn Control) -> Result<Option<Request>, CommandError> {
    if !["install", "uninstall"].contains(&request.name.as_str()) {
        return Ok(None);
    }
    let wanted = commands::policy_wanted(request)?;
    let Some(loaded) = control.command_behind(&wanted)? else { return Ok(None) };
    let (name, message) = read(&loaded)?;
    let connection = section_name(&message).unwrap_or_default();
    let children = control.connection(&connection).map(|found| found.children.as_slice()).unwrap_or_default();
    let child = children.iter().find(|child| child.name == wanted.child);
    let unknown = || CommandError::new(format!("connection {connection} has no child {}", wanted.child));
    let action = child.ok_or_else(unknown)?.start_action.with_trap(wanted.install);
    let message = with_action(message, &[&connection, "children", &wanted.child], name_of(action));
    Ok(Some(Request { id: request.id, name, message }))
}

/// The same message with that action in the section at the end of the path.
fn with_action(message: Message, path: &[&str], action: &str) -> Message {
    let mut changed = Message::new();
    for element in message.into_elements() {
        match (element, path) {
            (Element::Section(name, content), [next, rest @ ..]) if name == *next => {
                changed.add_section(&name, with_action(content, rest, action));
            }
            (element, []) if element.name() == KEY => {}
            (element, _) => changed.push(element),
        }
    }
    if path.is_empty() { changed.with(KEY, action) } else { changed }
}

/// As a configuration says it.
fn name_of(action: StartAction) -> &'static str {
    match action {
        StartAction::None => "none",
        StartAction::Start => "start",
        StartAction::Trap => "trap",
        StartAction::TrapStart => "trap|start",
    }
}
