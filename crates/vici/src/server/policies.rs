//! `install` and `uninstall` on a node of a cluster. All nodes have one configuration, and such a
//! policy is a part of it: the node loads the connection with another `start_action`, and tells the
//! others as if an operator had loaded it so.

use super::commands;
use super::replication::read;
use crate::control::{Control, LoadedBy, SetPolicy};
use crate::error::CommandError;
use crate::message::{Element, Message};
use crate::schema;
use crate::session::Request;

const KEY: &str = "start_action";

/// A command that loads a connection with another `start_action`.
pub(super) struct Replacement {
    pub(super) request: Request,
    /// Digest of the command from which it derives.
    pub(super) of: u64,
}

/// The command that a node of a cluster carries out in the place of this one. `None`: this one
/// itself. The error is what the client is told.
pub(super) fn replaced(
    request: &Request,
    control: &dyn Control,
) -> Result<Option<Replacement>, CommandError> {
    if !["install", "uninstall"].contains(&request.name.as_str()) {
        return Ok(None);
    }
    let wanted = commands::policy_wanted(request)?;
    let Some(LoadedBy { command, digest }) = control.command_behind(&wanted)? else { return Ok(None) };
    let (name, message) = read(&command)?;
    let SetPolicy { child, install, .. } = &wanted;
    // Not the connection as it is loaded: another node may have loaded that, before this command.
    let loaded = schema::connection(&message, control.policy())?;
    let found = loaded.children.iter().find(|found| found.name == *child);
    let unknown = || CommandError::new(format!("connection {} has no child {child}", loaded.name));
    let before = found.ok_or_else(unknown)?.start_action;
    if !install && !before.traps() {
        // Such a trap is not a part of the configuration, which alone reaches all nodes.
        return Err(CommandError::new(format!(
            "child {child} has no trap by start_action; one by dpd_action or close_action stands until connection {} is loaded without that",
            loaded.name
        )));
    }
    let action = before.with_trap(*install).name();
    let message = with_action(message, &[&loaded.name, "children", child], action);
    Ok(Some(Replacement { request: Request { name, message, ..request.clone() }, of: digest }))
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
